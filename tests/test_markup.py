"""HTML to text: fragments with the text a reader would expect, and generated pages against HTMLParser."""

from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.edits import apply
from workbench.data.html_tags import tags
from workbench.data.markup import markup_edits


def text_of(html: str, always: bool = False) -> str:
    return apply(html, markup_edits(html, always))


CASES = [
    # blocks, lines, white space
    ("<p>one</p><p>two</p>", "one\n\ntwo"),
    ("<p>a   b\n c</p>", "a b c"),
    ("<p>x<br>y<br/><br />z</p>", "x\ny\n\nz"),
    ("<h1>Title</h1>\n<div>text</div>", "Title\ntext"),
    ("<ul>\n  <li>one</li>\n  <li>two <b>bold</b></li>\n</ul>", "one\ntwo bold"),
    ("<p>wo<b>rd</b> and <i> space </i>.</p>", "word and space ."),
    ("<p></p>", ""),
    ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td></td><td>3</td></tr></table>", "a\tb\n1\t\t3"),
    ("<table><tr><td></td><td>1</td></tr><tr><td></td><td></td><td>2</td></tr></table>x<td>y", "1\n\t\t2\nx\ty"),
    ("<div>\n\n  <p>\n deep </p></div>\n", "deep"),
    # Chinese and Japanese lines are joined without a blank, others with one
    ("<p>你好，\n世界</p>", "你好，世界"),
    ("<p>你好\n<b>world</b>\n世界</p>", "你好 world 世界"),
    ("<p>你好 世界  你\t好</p>", "你好 世界 你 好"),
    # preformatted
    ("<div>x</div><pre>\n  a\n    b  c\n</pre><p>y   z</p>", "x\n  a\n    b  c\n\ny z"),
    ("<pre>  first\n\tsecond</pre>", "  first\n\tsecond"),
    ("<p>call <code>f(a, b)</code> now</p>", "call f(a, b) now"),
    ("<pre><code>if a &lt; b:\n    <span class='k'>pass</span>\n</code></pre>", "if a < b:\n    pass"),
    # what goes
    ("<p>a<script>var x='<b>';</script>b<!-- c > d -->e</p><style>p{}</style>", "abe"),
    ("<p>a</p><script>unclosed <b>", "a"),
    ("<p>a</p><!-- unclosed <b>x</b>", "a"),
    ("<html><head><title>T</title><meta charset=utf-8></head><body>b</body></html>", "T\nb"),
    ("<p>x<svg><text>no</text></svg>y</p>", "xy"),
    ("<math><mi>x</mi><mo>&lt;</mo><mn>3</mn></math>", "x<3"),
    # character references, decoded once, only with their semicolon or where nothing else is meant
    ("<p>&lt;b&gt; &amp;amp; &#65;&#x4f60; &hellip; &copy &notanentity; AT&T a&copy=1 &#; &#xZZ; &</p>",
     "<b> &amp; A你 … © &notanentity; AT&T a&copy=1 &#; &#xZZ; &"),
    ("<p>a&nbsp; b</p>", "a\u00a0 b"),
    ("<p>&#0;&#150;&#xD800;</p>", "\ufffd–\ufffd"),
    # text inside a page that looks like tags
    ("<html><body><p>if a<3 and b>2, 价格<100元，且>50元</p></body></html>", "if a<3 and b>2, 价格<100元，且>50元"),
    ("<html><body>vector<int> v; a<b and c>d; x <y> z; 1<2</body></html>", "vector<int> v; a<b and c>d; x <y> z; 1<2"),
    ("<div>vector<int x, <b>bold</b></div>", "vector<int x, bold"),
    ("<p>a &#x; <b>bold</b> c; <i>x</i></p>", "a &#x; bold c; x"),
    # fragments: Markdown and plain text keep their shape
    ("Hello <b>world</b>\n\n  * item one\n  * item <i>two</i>\n", "Hello world\n\n  * item one\n  * item two\n"),
    ("one<br>\ntwo<br>three\n", "one\ntwo\nthree\n"),
    ("  <b>x</b>  ", "  x  "),
    ("use `<b>` so: <b>x</b>\n```\n<p>kept</p>\n```\n", "use `<b>` so: x\n```\n<p>kept</p>\n```\n"),
    ("cut off</p>\nnext", "cut off\n\nnext"),
]  # fmt: skip


@pytest.mark.parametrize("html, text", CASES)
def test_fragments(html, text):
    assert text_of(html) == text


@pytest.mark.parametrize(
    "text", ["if a<3 and b>2", "价格<100元，且>50元 &amp; &lt;", "vector<int>  a;\n\n b", "", "<s>x</s>"]
)
def test_what_is_not_markup_has_no_edits(text):
    assert markup_edits(text) == []


def test_always_takes_text_for_a_page():
    assert text_of("a  &lt;\n b", always=True) == "a < b"
    assert text_of("a  &lt;\n b") == "a  &lt;\n b"
    assert text_of("if a<3 and b>2", always=True) == "if a<3 and b>2"


class Reference(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen, self.hidden = "", 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        self.seen += "" if self.hidden else data


WORDS = st.text("abc 你好，<>&;'\"#3=/\n", max_size=12)
LEAVES = st.one_of(
    WORDS.map(escape),
    st.sampled_from(["<br>", "<img src='a>b'>", "<!-- <p> -->", "<script>if (a<b) x()</script>", "<hr/>", "&hellip;"]),
)
NAMES = st.sampled_from(["p", "div", "b", 'span class="a > b"', "a href=x", "li", "td", "h2", "em", "section", "ul"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(NAMES, st.lists(inner, max_size=4)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0].split()[0]}>"
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(TREES)
def test_pages_show_the_characters_that_html_parser_shows(tree):
    page = f"<!doctype html><html><body>{tree}</body></html>"
    reference = Reference()
    reference.feed(page)
    reference.close()
    visible = text_of(page)
    assert "".join(visible.split()) == "".join(reference.seen.split())
    assert visible == visible.strip() and "   " not in visible and "\n\n\n\n" not in visible.replace("\n\n\n", "")


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.text("<>/!-=\"'`bp ai\n[]?&;#3科", max_size=60), st.booleans())
def test_edits_are_sorted_and_change_only_what_they_say(text, always):
    last = 0
    for edit in markup_edits(text, always):
        assert last <= edit.start <= edit.end <= len(text)
        assert text[edit.start : edit.end] != edit.replacement
        last = edit.end


def test_no_tags_are_left_in_a_page_that_escapes_its_text():
    inner = "".join(f"<{n} id='x'>word</{n}>" for n in ("p", "div", "b", "o:p", "table", "font"))
    page = f"<html><body>{inner}</body></html>"
    assert tags(text_of(page)) == [] and text_of(page).split() == ["word", "word", "wordword", "word", "word"]
