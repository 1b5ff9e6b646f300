"""Which parts of a text are program source, and whether the text as a whole is source or data.

Both keep a cleaner from taking HTML inside a program for the markup of a page. ``begins_as`` looks
at how the text begins: a script, a component, XML that is not XHTML, JSON; or whether it holds a
diff. ``read_source`` looks at the lines: comment blocks, triple-quoted strings, template literals
and here-documents are source, and so are lines of a shape that prose and HTML do not have
(``const x =``, ``} else {``, ``call(x);``, ``'<td>' +``). Where such lines are a large enough share,
the whole text is source.

Costs some regular expressions a line, linear in the text; called only for texts in which a sign of
markup was found. Knows no grammar: tells source from prose, not languages from each other. In doubt
a line of symbols is source: a tag left in a text can be seen, a program without its tags cannot be
mended.
"""

import re
from bisect import bisect_right
from typing import Collection, Iterator, NamedTuple, Sequence

Span = tuple[int, int]

_LEAST_LINES, _LEAST_SHARE = 3, 0.25
_LONG = 240  # of a longer line its ends are enough


class Source(NamedTuple):
    """Sorted ``spans`` of source, blocks and lines; the lines outside blocks that are source and that are not.

    ``other_characters``: how many characters the lines that are not source have.
    """

    spans: list[Span]
    code: int
    other: int
    other_characters: int

    @property
    def whole(self) -> bool:
        """Whether all of the text is source: a quarter of its lines (at least three), or half of its characters."""
        if self.code >= _LEAST_LINES and self.code >= _LEAST_SHARE * (self.code + self.other):
            return True
        return self.code > 0 and sum(end - start for start, end in self.spans) >= self.other_characters


# Possessive quantifiers where a repetition could otherwise be tried in more than one way.
_STRING = r'"(?:[^"\\\n]|\\.)*+"'
_BEGINS = [
    ("a script", re.compile(r"#!\s*+/|\s*+<\?(?:php|=|hh)|\s*+<%[@!]", re.I)),
    ("a component", re.compile(r"\s*+(?:<script\b[^>]*\s(?:setup|lang|context|module)\b|<template>)", re.I)),
    ("XML", re.compile(r"\s*+<\?xml\b(?!.{0,1000}?<html[\s>])", re.I | re.S)),
    ("XML", re.compile(r"\s*+(?:<!--.*?-->\s*+)*+<!doctype\s+(?!html\b|netscape-bookmark)\w", re.I | re.S)),
    ("JSON", re.compile(rf'\s*+(?:\{{\s*+{_STRING}\s*+:|\[\s*+(?:\{{\s*+["}}]|\[\s*+["\d\[-]|{_STRING}\s*+,))')),
]
_DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)", re.M)
_ELEMENT = re.compile(r"<([a-z][\w.:-]*+)[\s/>]", re.I | re.A)

# What opens a block, what must come before it on its line, and what ends it.
_OPENS = re.compile(r"/\*|\"{3}|'{3}|`")
_BEFORE = {
    "/*": re.compile(r"^[ \t]*\Z", re.M),
    '"""': re.compile(r"(?:^|[=(,\[:{]|\breturn|\byield)[ \t]*[rbfu]{0,2}\Z", re.M | re.I),
    "`": re.compile(r"(?:[=(,:?+\[{>]|\breturn)\s*[\w.]*\Z"),
}
_BEFORE["'''"] = _BEFORE['"""']
_TEMPLATE_ENDS = re.compile(r"[^`\\]*+(?:\\.[^`\\]*+)*+`", re.S)
_HERE = re.compile(r"""<<<?[-~]?[ \t]*+(["']?)(\w++)\1[^\n]*+\n""")
_LABEL = re.compile(r"^[ \t]*+(\w++)[;,)]*+[ \t]*+$", re.M)

_LINE = re.compile(r"^[ \t]*+(\S[^\n]*+)", re.M)
_NEUTRAL = re.compile(r"#(?![!\[])|\W{1,3}$|\* |=\w|\w+,$")  # comment or heading, bullet, rule, POD, one word

# Each pattern is matched at the first character of a line that is not white space.
_CODE = [
    # comments, preprocessor, attributes, decorators
    r"""//(?=[\s/!@*-]|\w) | \#!\s*/ | \#!?\[\w | \#\s*(?:include\s*[<"]|define\s+\w|ifn?def\s|endif\b|pragma\s|undef\s)
      | @\w[\w.]*+(?:\(.*)?$ | ["']{3}""",
    # a line of a diff: no blank after the sign, or more than a bullet has
    r"""[+-](?:[<}{@\#/.;$]|[ ]{2,}\S|\t)""",
    # imports
    r"""(?:import|export|use|using|package|namespace|require|include)\b[^;"']*(?:;|["'][^"']*["'][;)]*)$
      | import\s+[\w.]+(?:\s+as\s+\w+|,\s*[\w.]+)*$ | from\s+[\w.]+\s+import\b | (?:import|export)\s*[{*]""",
    # declarations
    r"""(?:(?:export|default|async|abstract|pub|public|private|protected|static|final|unsafe|declare)\b\s*)*+
        (?:def|function|func|fn|sub|fun|class|interface|struct|enum|trait|impl|type)\b[^.]*[({:=<]
      | (?:pub|public|private|protected|static|const|let|var|val|final|extern|typedef|mut|my|our|abstract|override
          |readonly|virtual|inline|template|friend|export|local)\s.*[=({};:,)>\[]$
      | (?:const|let|var|val|my|our|local)\s+[\w$@%{\[(]+.*=""",
    # control flow and statements
    r"""(?:if|for|while|switch|match|catch|foreach|elseif|elsif|elif|unless|with)\s*+\(.*[){;:]$
      | (?:if|elif|for|while|with|except|match|case|lambda)\b.*:$ | (?:else|try|finally|default|do|begin)\s*+[:{]?$
      | if\s+\[.*then$ | (?:fi|done|esac|then|end)$
      | (?:return|raise|throw|yield|await|assert|del|delete|goto|local|new)\b
          (?:.*;$|\s*[(\[{"'`<]|\s+[\w.]+(?:\(.*\))?$|$)
      | (?:break|continue|pass)\s*;?$ | assert\s
      | (?:echo|print|puts|printf|printf?ln!?|die|warn|cout|cerr|std::\w+)\s*+(?:["'(`$]|<<)
      | (?:INSERT\s+INTO|UPDATE|SELECT|CREATE\s+TABLE|VALUES)\s.*[,;('"]""",
    # calls
    r"""[\w.$:\\]++(?:->[\w]+)*+\((?:.*\)[ \t]*[;,{]?$|[^)]*[,(]$|$) | \.\w+\(""",
    # strings and entries of lists and maps; not what somebody says: "Well," he said
    r"""[rbfuRBFU]{0,2}(?:"[^"]*+"|'[^']*+'|`[^`]*+`)[ \t]*+
          (?:[,;)+\]]+$|[,;)+\]%.:&\\][ \t]*+["'\w$%(].*(?<![.!?])$|[+.&\\%:]+$)
      | [rbfuRBFU]{0,2}(?:"[^"]*(?<![.!?,…\s])"|'[^']*(?<![.!?,…\s])')$
      | [\w$"'.-]+\s*:\s*(?:["'\[{(].*,?|[\w.]+,)$ | [a-z-]+:[ ]?[^;{}]*;$""",
    # how lines of prose do not end
    r"""[)\]}]+[)\]};,]*$ | \}.*[{;(,)]$
      | [^<].*?(?:(?<![{%])\{|[(\[]|=>|->|&&|\|\||::|[)\]}"'`];|[\w)\]"']\s*[+.]=|["']\s*\+|\s\\)$
      | <.*(?:\)|\w|>)\s*(?:=>|\{|;|\(|=>\s*\(|=>\s*\{)$ | [^<(].*[=(\[].*;$ | [\w$.]+(?:<.*>)?\s+[\w$.]+;$""",
]
_CODE_LINE = re.compile("|".join(f"(?:{pattern})" for pattern in _CODE), re.X | re.A)
_ASSIGNED = re.compile(
    r"([a-zA-Z_$@%*&.][^=]{0,80}?)[ \t]*(?:[-+*/|&^%.:?]|\|\||\?\?|<<|>>)?=(?![=>\s]*$|=)(?!.*\.$)", re.A
)
_LEFT = re.compile(r"""(?!.*\s<)[\w$@%*&.][\w\s$@%*&.:?,<>\[\]'"|-]*""", re.A)
_ENTITY_ENDS = re.compile(r"&#?\w{1,32};$", re.A)


def begins_as(text: str, html_names: Collection[str], hidden: Sequence[Span] = ()) -> str:
    """What other than markup of a page ``text`` is by its beginning, or by a diff in it; "" if nothing is known.

    ``html_names`` are the names of HTML elements, in lower case: a text that begins with a tag and
    whose start tags are mostly others is XML. ``hidden``: see ``read_source``.
    """
    start = 1 if text.startswith("\ufeff") else 0
    for what, pattern in _BEGINS:
        if pattern.match(text, start):
            return what
    if any(not _within(match.start(), hidden) for match in _DIFF.finditer(text)):
        return "a diff"
    if text[start:].lstrip()[:1] == "<":
        names = [match[1].lower() for match in _ELEMENT.finditer(text) if not _within(match.start(), hidden)]
        if 2 * sum(name in html_names for name in names) < len(names):
            return "XML"
    return ""


def read_source(text: str, hidden: Sequence[Span] = ()) -> Source:
    """The source in ``text`` outside ``hidden``: sorted spans that say nothing, such as ``pre`` of a page.

    A line of which an end lies in such a span is left out as well.
    """
    spans = list(_blocks(text, hidden))
    skip = sorted([*hidden, *spans])
    size = len(text)
    code = other = other_characters = index = until = 0
    for match in _LINE.finditer(text):
        start, end = match.span(1)
        while index < len(skip) and skip[index][0] <= start:
            until, index = max(until, skip[index][1]), index + 1
        if start < until or (index < len(skip) and skip[index][0] < end <= skip[index][1] - (skip[index][1] < size)):
            continue
        line = match[1].rstrip()
        if len(line) > _LONG:
            line = line[: _LONG // 2] + line[-_LONG // 2 :]
        if _is_code(line):
            spans.append((start, end))
            code += 1
        elif not _NEUTRAL.match(line):
            other, other_characters = other + 1, other_characters + end - start
    return Source(sorted(spans), code, other, other_characters)


def _is_code(line: str) -> bool:
    if _ENTITY_ENDS.search(line):
        return False
    if _CODE_LINE.match(line):
        return True
    assigned = _ASSIGNED.match(line)
    return bool(assigned and len(assigned[1].split()) <= 3 and _LEFT.fullmatch(assigned[1]))


def _blocks(text: str, hidden: Sequence[Span]) -> Iterator[Span]:
    """Comments, strings and here-documents of more than one line."""
    at = 0
    while opener := _OPENS.search(text, at):
        start, at = opener.span()
        if _within(start, hidden) or not _BEFORE[opener[0]].search(text, max(0, start - 60), start):
            continue
        if opener[0] == "/*":
            end = _after(text, "*/", at) or len(text)
        elif opener[0] == "`":
            closed = _TEMPLATE_ENDS.match(text, at)
            end = closed.end() if closed else 0
        else:
            end = _after(text, opener[0], at)
        at = max(at, end)
        if end and (opener[0] == "/*" or "\n" in text[start:end]):
            yield start, end
    if "<<" not in text:
        return
    ends: dict[str, list[int]] = {}
    for label in _LABEL.finditer(text):
        ends.setdefault(label[1], []).append(label.end())
    done = 0
    for opener in _HERE.finditer(text):
        closers = ends.get(opener[2], [])
        at = bisect_right(closers, opener.end())
        if opener.start() >= done and at < len(closers) and not _within(opener.start(), hidden):
            done = closers[at]
            yield opener.start(), done


def _after(text: str, closer: str, at: int) -> int:
    """The end of the first ``closer`` from ``at`` on, 0 if there is none."""
    found = text.find(closer, at)
    return found + len(closer) if found >= 0 else 0


def _within(at: int, spans: Sequence[Span]) -> bool:
    index = bisect_right(spans, (at + 1,)) - 1
    return index >= 0 and at < spans[index][1]
