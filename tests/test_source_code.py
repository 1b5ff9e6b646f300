"""Programs and data survive byte for byte, whatever HTML is in them; pages, posts and Markdown do not."""

import ast
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.cleaning import CleaningPolicy, clean
from workbench.data.html_tags import NAMES, evidence
from workbench.data.source_code import begins_as, read_source

PROGRAMS = {
    "tsx": "import React from 'react';\n\nexport const Card = ({ title, items }: Props) => {\n  return (\n"
    '    <div className="card">\n      <h2>{title}</h2>\n      <p>Hello, <b>{items.length}</b> items &amp; more</p>\n'
    "      <ul>\n        {items.map((i) => <li key={i}>{i}</li>)}\n      </ul>\n      <br />\n    </div>\n  );\n};\n",
    "jsx without imports": "function App() {\n  const [n, setN] = useState(0);\n  return (\n    <section>\n"
    "      <p>You clicked {n} times</p>\n      <p>twice</p>\n    </section>\n  );\n}\n",
    "generic arrows": "const a = <P>(x: P) => x;\nconst b = <P>(y: P) => [y];\n",
    "impl": "impl <P> Show for Box<P> {\n    fn show(&self) {}\n}\nimpl <P> Hide for Box<P> {}\n",
    "javadoc": "/**\n * Returns the first line.\n * <p>The text is not trimmed.\n * <p>Never {@code null}.\n * <ul>\n"
    " * <li>one\n * <li>two\n * </ul>\n */\npublic String first() {\n    return lines.get(0);\n}\n",
    "javadoc alone": "/**\n * One.\n * <p>Two.\n * <p>Three <b>bold</b>.\n */\n",
    "c#": "/// <summary>\n/// Adds <b>two</b> numbers.\n/// </summary>\n/// <param name=\"a\">The first.</param>\n"
    "public int Add(int a, int b) => a + b;\n",
    "diff": "--- a/page.html\n+++ b/page.html\n@@ -1,3 +1,4 @@\n <body>\n-<p>old</p>\n+<p>new</p>\n+<br>\n </body>\n",
    "hunk": "+<div>\n+  <p>new</p>\n+</div>\n-<span>old</span>\n",
    "git": "Fix the footer\n\ndiff --git a/x.html b/x.html\nindex 0a1..0b2 100644\n <p>one</p>\n <p>two</p>\n",
    "string": '"  <td>%s</td>"\n',
    "c strings": 'static const char *row =\n    "<tr>"\n    "  <td>%s</td>"\n    "</tr>\\n";\n',
    "shell": '#!/bin/sh\necho "hello <b>world</b>"\ncat <<EOF > out.html\n<p>one</p>\n<p>two</p>\nEOF\n',
    "one echo": 'echo "hello <b>world</b>"',
    "python": "import os\n\nPAGE = '''\n<html><body>\n<h1>%s</h1>\n<p>text</p><br>\n</body></html>\n'''\n\n\n"
    "def page(title):\n    # a <br> in a comment\n    return PAGE % title\n",
    "python docstring": 'def f(x):\n    """Draw <b>x</b>.\n\n    Prose about <i>it</i><br>\n    and more.\n    """\n'
    "    return x\n",
    "template literal": "const row = (x) => `\n  <tr>\n    <td>${x}</td>\n  </tr>\n`;\nel.innerHTML = row(1);\n",
    "php": "<?php\n$name = 'x';\necho <<<HTML\n<p>Hello <b>$name</b></p>\n<br>\nHTML;\n?>\n<p>footer</p>\n",
    "php heredoc": "$page = <<<HTML\n<div class=\"x\">\n  <p>one</p>\n</div>\nHTML;\nprint($page);\n",
    "go": "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(\"<b>x</b> and <i>y</i>\")\n"
    "\tfmt.Println(\"a <br> b\")\n}\n",
    "kotlin": 'fun page(): String {\n    val text = """\n        <p>one</p>\n        <p>two</p>\n    """\n'
    '    return text\n}\n',
    "ruby": "class Page\n  def to_s\n    body = \"a <b>#{@title}</b> c\"\n    return body\n  end\nend\n",
    "sql": "INSERT INTO posts (id, body) VALUES (1, 'one <p>two</p>');\nINSERT INTO posts VALUES (2, '<br>');\n",
    "vue": "<template>\n  <p>{{ text }}</p>\n</template>\n\n<script setup>\nconst text = 'x'\n</script>\n",
    "script": "<script>\ndocument.write('<p>one</p>');\n</script>\n",
    "minified": '!function(e){"use strict";var t=e.x;t.innerHTML="a<b>"+t.y+"</b><br>",e.z=t}(window);',
    "rss": '<rss version="2.0"><channel><title>News</title><link>https://example.org</link>\n'
    "<item><title>One</title><description>&lt;p&gt;text</description></item></channel></rss>\n",
    "atom": "<?xml version='1.0'?>\n<feed xmlns='urn:x'><title>x</title><link href=\"y\"/></feed>\n",
    "pom": "<project>\n  <name>x</name>\n  <dependencies>\n    <dependency><artifactId>y</artifactId></dependency>\n"
    "  </dependencies>\n  <source>1.8</source>\n</project>\n",
    "svg": '<svg xmlns="http://www.w3.org/2000/svg"><title>x</title><path d="M0 0"/></svg>\n',
    "json": '{"html": "<p>one</p><p>two</p>", "n": 1}\n',
    "json list": '[\n  {"body": "<b>x</b> and <br>"}\n]\n',
    "json after a mark": "\ufeff" + '{"html": "<p>one</p>"}',
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_and_data_survive_byte_for_byte(name):
    text = PROGRAMS[name]
    assert evidence(text) == ""
    if not text.startswith("\ufeff"):  # the policy takes a byte order mark away
        assert clean(text).text == text and not clean(text).changes


MARKUP = {
    "post": (
        "I get an error here, see <b>below</b>. What is wrong?<br>\nThanks; and sorry (again).\n",
        "I get an error here, see below. What is wrong?\nThanks; and sorry (again).\n",
    ),
    "post with code": (
        "<p>I tried this:</p>\n<pre><code>int main() {\n    x = a&lt;b;\n    return 0;\n}</code></pre>\n<p>Why?</p>",
        "I tried this:\n\nint main() {\n    x = a<b;\n    return 0;\n}\n\nWhy?",
    ),
    "blog": ('<p>Read <a href="/x">this</a>:</p>\n<p>“Well,” he said.</p>', "Read this:\n\n“Well,” he said."),
    "page of scripts": (
        "<html><head><script>\nvar a = 1;\nif (a<2) { b(); }\n</script></head><body><p>text</p>"
        "<script>\nc();\nd();\ne();\n</script></body></html>",
        "text",
    ),
    "body of scripts": ("<body>\n<p>text</p>\n<script>\nvar a = 1;\nc();\nd();\n</script>\n</body>\n", "text"),
    "xhtml": (
        '<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x.dtd">\n'
        '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>x</p></body></html>',
        "x",
    ),
    "markdown": (
        "# Title\n\nSome <b>bold</b> text with a list:\n\n* one\n* two\n\n```js\nconst a = `<p>`;\nf(a);\n```\n",
        "# Title\n\nSome bold text with a list:\n\n* one\n* two\n\n```js\nconst a = `<p>`;\nf(a);\n```\n",
    ),
    "law": (
        "(a) the owner of the <i>goods</i>;\n(b) the person who sold them (if known);\n(c) both.\n",
        "(a) the owner of the goods;\n(b) the person who sold them (if known);\n(c) both.\n",
    ),
    "novel": ('"I <i>am</i> here," she said.\n"Where?" he asked.\nNobody answered.', None),
    "chinese": ("他说：<b>你好</b>。\n第二行<br>第三行", "他说：你好。\n第二行\n第三行"),
    "sum": ("We have <i>n</i> = 3 and so\nx = 5 for all of them.\nThe proof is left to the reader.", None),
}


@pytest.mark.parametrize("name", MARKUP)
def test_pages_posts_and_prose_are_cleaned(name):
    raw, text = MARKUP[name]
    if text is None:
        text = raw.replace("<i>", "").replace("</i>", "")
    assert clean(raw).text == text


def test_prose_around_a_line_of_code_keeps_the_code_and_its_tags_are_no_sign():
    prose = 'This line greets the reader by name.\n\n    echo "hello <b>world</b>"\n\nIt is printed once a day.\n' * 3
    assert clean(prose).text == prose
    assert clean("Note <b>well</b>. " + prose).text != prose


OURS = sorted((Path(__file__).parents[1] / "workbench").rglob("*.py")) + sorted(Path(ast.__file__).parent.glob("*.py"))


def test_no_module_of_ours_or_of_the_standard_library_is_markup():
    read = [path.read_text(encoding="utf-8") for path in OURS if path.stat().st_size < 100_000]
    assert sum("<" in text for text in read) > 100
    assert [text[:60] for text in read if evidence(text)] == []


def test_python_programs_written_by_the_standard_library_are_source():
    rng = random.Random(20231024)
    for path in rng.sample(OURS, 30):
        program = ast.unparse(ast.parse(path.read_text(encoding="utf-8"))) + "\nx = '<b>y</b>'\n"
        source = read_source(program)
        assert source.whole and source.code > source.other


WORDS = st.lists(
    st.sampled_from("the reader of a page has 3 small wishes, and (often) more. 你好，世界".split()), min_size=4
)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=12))
def test_prose_holds_no_source(lines):
    assert read_source("\n".join(lines))[:2] == ([], 0)


LEAVES = st.sampled_from(["<p>x</p>", "a<br>b", 1, None])
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=4), LEAVES, max_size=3)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.dictionaries(st.text(max_size=8), VALUES, min_size=1, max_size=4), st.sampled_from([None, 2]))
def test_json_survives(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert evidence(text) == ""


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.text("<>/*-=\"'`{};() \n\\ab$+@#:,.你", max_size=80))
def test_spans_are_sorted_inside_the_text_and_outside_what_is_hidden(text):
    hidden = [(5, 9)] if len(text) > 9 else []
    source = read_source(text, hidden)
    assert source.spans == sorted(source.spans)
    assert all(0 <= start < end <= len(text) and not 5 <= start < 9 or not hidden for start, end in source.spans)
    assert source.code + source.other <= text.count("\n") + 1


@pytest.mark.parametrize(
    "text, what",
    [
        ("#!/bin/sh\n", "a script"),
        ("<%@ page language='java' %>", "a script"),
        ("<script lang='ts'>", "a component"),
        ("<?xml version='1.0'?><a/>", "XML"),
        ("<?xml version='1.0'?>\n<?xml-stylesheet href='x'?><html>", ""),
        ("<!DOCTYPE rss><rss/>", "XML"),
        ("<!DOCTYPE NETSCAPE-Bookmark-file-1>\n<TITLE>x</TITLE>", ""),
        ("<note><to>x</to></note>", "XML"),
        ("<p><b>x</b> <my-tag>y</my-tag></p>", ""),
        ('["quoted"](https://example.org) text', ""),
        ("[[File:x.png|thumb]] text", ""),
        ("@@ -1 +1,2 @@\n", "a diff"),
        ("text\n--- \nmore", ""),
        ("", ""),
    ],
)
def test_beginnings(text, what):
    assert begins_as(text, NAMES) == what


@pytest.mark.parametrize(
    "part",
    [
        "/*",
        "'''",
        "x = '''",
        "=`",
        "=`\\`",
        "<<A\n",
        "x<<A\nA\n",
        "a = ",
        "f(",
        "{",
        "const ",
        '"',
        '",',
        "+  x",
        "}\n",
        "a.b",
        "[[",
    ],
)
def test_broken_source_takes_linear_work(part):
    # As in the tests of tags: work that grows with the square would not end here.
    for text in (part * (100_000 // len(part)), (part + "\n") * (100_000 // len(part))):
        assert read_source(text).code >= 0 and isinstance(begins_as(text, NAMES), str)


def test_always_still_cleans_what_auto_leaves():
    assert clean(PROGRAMS["json"], CleaningPolicy(markup="always")).text == '{"html": "\n\none\n\ntwo\n\n", "n": 1}'
