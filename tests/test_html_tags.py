"""What is a tag and what is markup, on text that must survive and text that must not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.html_tags import code_spans, evidence, tags

NOT_MARKUP = [
    "",
    "no tags at all",
    "if a<3 and b>2",
    "if a<3 and b>2: <b>",
    "价格<100元，且>50元",
    "a<b>c",
    "a<b and c>d",
    "for i in range(n): x<i and i>y or p<q>r",
    "std::vector<int> v; std::map<std::string, std::vector<int>> m;",
    "List<String> names; Map<String, List<Object>> m; Vector<A> a; Foo<Time>",
    "#include <map>\n#include <time.h>\n#include <link>",
    "template <class T> struct A { T<b> x; };",
    "x <- y; z <<- 3; a <= b >= c; a<-b; 1 << 2 >> 3",
    "0<x<1, y>0; p<0.05; <3 </3",
    "<john@example.org> and <https://example.org/?a=1>",
    "<s>I am</s> <|im_start|>user <think>why</think> <unk> <mask>",
    "<note><to>Tove</to></note> <xs:element name=\"a\"></xs:element>",
    'print("<b>bold</b>") + \'<br>\'',
    "write `<b>bold</b>` for bold\n```html\n<p>one</p><br>\n```\n",
    "the <script> tag comes first",
    "<!-- toc -->\n# Title",
    "a[b[0]]>1 && <![x",
    "<", ">", "<>", "</", "</>", "<!", "<!--", "<p", "<p class='x", "&lt;b&gt; &amp;",
]  # fmt: skip

MARKUP = [
    ("<!DOCTYPE html>\n<p>x", "page"),
    ("\ufeff <?xml version='1.0'?> <!-- a --> <!-- b --> <HTML lang=zh>", "page"),
    ("text <body>x</body>", "page"),
    ("Hello <b>world</b>", "fragment"),
    ("<p>第一段<p>第二段", "fragment"),
    ("see <a href='x'>this</a>", "fragment"),
    ("line<br>line", "fragment"),
    ("line<BR/>line", "fragment"),
    ('<div class="x">cut off', "fragment"),
    ("cut off</div>", "fragment"),
    ('<img src="a.png">', "fragment"),
    ("<ul><li>one<li>two</ul>", "fragment"),
]


@pytest.mark.parametrize("text", NOT_MARKUP)
def test_text_is_not_markup(text):
    assert evidence(text) == ""


@pytest.mark.parametrize("text, kind", MARKUP)
def test_markup_is_recognised(text, kind):
    assert evidence(text).startswith(kind)


# Texts that hold no HTML tag; the others of the list are markup as soon as a page is around them.
HTML = ("<s>", ": <b>", "<!", "<link>", "<script>", "<p", "`", "'", '"')
NO_TAGS = [text for text in NOT_MARKUP if not any(part in text for part in HTML)]


def test_most_of_the_texts_are_tried_inside_a_page():
    assert len(NO_TAGS) == 19


@pytest.mark.parametrize("text", NO_TAGS)
def test_such_text_has_no_tags_inside_a_page_either(text):
    page = f"<html><body><div>{text}</div></body></html>"
    assert [t.name for t in tags(page)] == ["html", "body", "div", "div", "body", "html"]


def names(text):
    return [("/" if t.closing else "") + t.name for t in tags(text)]


def test_names_attributes_and_partners():
    found = tags("<P Class='a>b'>x<br/><b>y</b></P>")
    assert [t.name for t in found] == ["p", "br", "b", "b", "p"]
    assert [t.partner for t in found] == [4, -1, 3, 2, 0]
    assert names('<a href="x"class="y">') == ["a"]
    assert names("<td width=100%>") == names("<td nowrap data-x>") == ["td"]
    assert names("<a href=http://x.y/?a=b&c=d>z</a>") == ["a", "/a"]
    assert names("<input disabled checked>") == ["input"]
    assert names("<b and c>") == names("<vector<int>>") == names("</100元>") == []
    assert names("vector<int x, <b>bold</b>") == ["b", "/b"]


def test_unbalanced_quotes_swallow_nothing():
    text = '<a href="x>Click</a> and <a href="y">here</a>'
    assert [text[t.start : t.end] for t in tags(text)] == ['<a href="x>', "</a>", '<a href="y">', "</a>"]


def test_glued_tags_need_their_end():
    assert names("<p>a<b>c") == ["p"]
    assert names("<p>a<b>c</b>") == ["p", "b", "/b"]
    assert names("a<b>c and <b>bold</b>") == ["b", "/b"]
    assert names("<div>List<Object> x</div>") == ["div", "/div"]
    assert names("<o:p></o:p> a<x-y>b <my-tag/>") == ["o:p", "/o:p", "my-tag"]


def test_dropped_elements_are_one_tag_with_all_that_is_in_them():
    text = "a<script>if (a<b) '<p>'</script>b<STYLE>p{}</style ><svg><path d='M'/></svg>c<script src=x />"
    text += "d<script>open <b>"
    assert [text[t.start : t.end] for t in tags(text)] == [
        "<script>if (a<b) '<p>'</script>", "<STYLE>p{}</style >", "<svg><path d='M'/></svg>", "<script src=x />", "<b>",
    ]  # fmt: skip
    assert names("<p>a</p><script>open <b>") == ["p", "/p", "script"]


def test_comments_and_declarations():
    text = "<!-- a > b --><!doctype html><!--> <![CDATA[x]]> a[b[0]]>1 <?php echo '<b>' ?> <? no <! no <!-- open <b>"
    assert [text[t.start : t.end] for t in tags(text)] == [
        "<!-- a > b -->", "<!doctype html>", "<!-->", "<![CDATA[", "]]>", "<?php echo '<b>' ?>", "<!-- open <b>",
    ]  # fmt: skip


def test_code_spans():
    text = "a `b` ``c ` d`` `open\n`e`\n```\nf `g`\n```\n~~~\nopen fence"
    assert [text[a:b] for a, b in code_spans(text)] == [
        "`b`", "``c ` d``", "`e`", "```\nf `g`\n```", "~~~\nopen fence",
    ]  # fmt: skip


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.text("<>/!-=\"'`b pai\n[]?&;科", max_size=60))
def test_tags_are_in_order_and_partners_point_at_each_other(text):
    found, last = tags(text), 0
    for index, tag in enumerate(found):
        assert last <= tag.start < tag.end <= len(text)
        last = tag.end
        if tag.partner >= 0:
            assert found[tag.partner].partner == index and found[tag.partner].name == tag.name
        assert text[tag.start] == "<" or text[tag.start : tag.end] == "]]>"


@pytest.mark.parametrize(
    "part",
    ["<a ", '<a "', "<a ''", "<!--", "<![", "<b>", "<p x=", "<script>", "<!--x-->", "` ", "<?xml", "<p y=", "~~~\n<b>"],
)
def test_broken_markup_takes_linear_work(part):
    # Counted, not timed: a scan that starts over at each part would look at 10 times as many
    # characters per part in a text 10 times as long, and would not end here at all.
    text = part * (200_000 // len(part))
    assert all(tag.end <= len(text) for tag in tags(text))
    assert isinstance(evidence(text), str)
