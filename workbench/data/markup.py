"""HTML to the text a reader sees, as edits of the raw text.

Where the text is markup (``html_tags`` says what that is), ``script``, ``style``, ``template``,
``svg``, comments and declarations go, to the end of the text if they are not closed, as in a
browser. Character references are decoded once. Blocks become lines after the WHATWG rules for
innerText (HTML Standard, 3.2.7), simplified: a blank line around ``p``, a new line around other
blocks and for ``br``, a tab between table cells. White space collapses outside ``pre`` and
``textarea``, and vanishes where a line of Chinese or Japanese was broken (CSS Text 3, 4.1.3).

In a fragment, text outside all blocks keeps its white space and Markdown code keeps all that is
in it: such a text is Markdown, or plain text with a few tags.

Costs about as much as the search for tags; ``cleaning`` has numbers. Does not execute, lay out
or hide anything: what ``display: none`` hides is read.
"""

import re
from html import unescape
from html.entities import html5
from typing import Iterator

from workbench.data.edits import Edit
from workbench.data.html_tags import BLOCKS, DROPPED, Tag, code_spans, evidence, inside, tags

_PREFORMATTED = frozenset(("pre", "textarea", "listing", "xmp"))
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31})(?:;|(?![a-zA-Z0-9=;]))")
_WHITE = " \t\n\r\f"
_RUN = re.compile(r"[^ \t\n\r\f]++(?: [^ \t\n\r\f]++)*+")  # words with one space between them: nothing to do
_WIDE = re.compile(
    "[\u2e80-\u30ff\u31c0-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uffe0-\uffe6\U00020000-\U0003ffff]"
)


def markup_edits(text: str, always: bool = False) -> list[Edit]:
    """The edits that turn markup into text; none where ``text`` is not markup.

    ``always`` takes the text for a page, whatever ``evidence`` says.
    """
    if not always and "<" not in text:
        return []
    found = tags(text)
    why = "page" if always else evidence(text, found)
    if not why:
        return []
    edits, done, before, gap = [], 0, "", _Gap()
    for start, end, part in _parts(text, found, why.startswith("page")):
        if isinstance(part, Tag):
            gap.add_tag(part)
        elif part != "text":
            gap.add_white(text[start:end], verbatim=part == "white")
        else:
            for piece in _decoded(text, start, end):
                wanted = gap.between(before, piece.replacement[0]) if before else gap.leading()
                if wanted != text[done : piece.start]:
                    edits.append(Edit(done, piece.start, wanted))
                if piece.replacement != text[piece.start : piece.end]:
                    edits.append(piece)
                done, before, gap = piece.end, piece.replacement[-1], _Gap()
    if done < len(text) and gap.trailing() != text[done:]:
        edits.append(Edit(done, len(text), gap.trailing()))
    return edits


class _Gap:
    """What lies between two pieces of text: white space and tags, which together ask for one separator."""

    __slots__ = ("required", "breaks", "cells", "soft", "white", "tail")

    def __init__(self) -> None:
        self.required = self.breaks = 0  # line ends asked for by blocks (the most counts), by br (each counts)
        self.cells = 0  # that began since the last break
        self.soft = self.white = self.tail = ""  # white space that collapses, that is kept, kept after the last break

    def add_tag(self, tag: Tag) -> None:
        if tag.name == "br":
            self.breaks, self.tail, self.cells = self.breaks + 1, "", 0
        elif tag.name in BLOCKS:
            self.required, self.tail, self.cells = max(self.required, 2 if tag.name == "p" else 1), "", 0
        elif tag.name in ("td", "th") and not tag.closing:
            self.cells += 1

    def add_white(self, white: str, verbatim: bool) -> None:
        if verbatim:
            self.white += white
            self.tail += white
        else:
            self.soft += white

    def between(self, before: str, after: str) -> str:
        """The separator between the characters ``before`` and ``after``."""
        lines = max(self.required, self.breaks)
        if lines:
            kept = self.white if self.white.count("\n") >= lines else "\n" * lines + self.tail.rpartition("\n")[2]
            return kept + "\t" * (self.cells - 1)
        if self.cells:
            return "\t" * self.cells
        if self.white or not self.soft:
            return self.white
        return "" if "\n" in self.soft and _WIDE.match(before) and _WIDE.match(after) else " "

    def leading(self) -> str:
        return self.tail.rpartition("\n")[2] if self.required or self.breaks else self.white

    def trailing(self) -> str:
        return "" if self.required or self.breaks else self.white


def _parts(text: str, found: list[Tag], page: bool) -> Iterator[tuple[int, int, Tag | str]]:
    """(start, end, what) of all parts of ``text`` in order: a Tag, "text", or white space.

    White space is "white" where it is kept (in ``pre``, and outside all blocks of a fragment),
    else "soft"; inside "text" there is none that would have to change.
    """
    code = [] if page else code_spans(text)
    at, depth, preformatted = 0, 0, 0
    for tag in found:
        if code and inside(tag.start, code):
            continue
        yield from _text_parts(text, at, tag.start, bool(preformatted or not (page or depth)))
        yield tag.start, tag.end, tag
        at = tag.end
        if tag.partner >= 0 and tag.name not in DROPPED:
            step = -1 if tag.closing else 1
            depth += step * (tag.name in BLOCKS)
            preformatted += step * (tag.name in _PREFORMATTED)
    yield from _text_parts(text, at, len(text), bool(preformatted or not (page or depth)))


def _text_parts(text: str, start: int, end: int, verbatim: bool) -> Iterator[tuple[int, int, str]]:
    if start >= end:
        return
    if verbatim:
        part = text[start:end]
        first, last = start + len(part) - len(part.lstrip(_WHITE)), start + len(part.rstrip(_WHITE))
        runs, white = [(first, last)] if first < last else [], "white"
    else:
        runs, white = (run.span() for run in _RUN.finditer(text, start, end)), "soft"
    for first, last in runs:
        if start < first:
            yield start, first, white
        yield first, last, "text"
        start = last
    if start < end:
        yield start, end, white


def _decoded(text: str, start: int, end: int) -> Iterator[Edit]:
    """``text[start:end]`` as pieces that are not empty, with its character references decoded."""
    for match in _REFERENCE.finditer(text, start, end) if text.find("&", start, end) >= 0 else ():
        if match[0][1] != "#" and match[0][1:] not in html5:
            continue
        if start < match.start():
            yield Edit(start, match.start(), text[start : match.start()])
        if decoded := unescape(match[0]):
            yield Edit(match.start(), match.end(), decoded)
        start = match.end()
    if start < end:
        yield Edit(start, end, text[start:end])
