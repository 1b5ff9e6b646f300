"""Where the tags of a text are, and whether the text is HTML at all.

What is a tag. ``<`` opens a tag only when a name of an HTML element follows at once, and the
attributes are ``name=value`` or attributes that stand alone in HTML. So ``a<3 and b>2``,
``价格<100元，且>50元``, ``vector<int>``, ``x <y> z`` and ``a<b and c>d`` are text, in a page as
well. Of a bare start tag glued to the word before it (``a<b>c``, ``List<Object>``), the matching
end tag decides. Names with ``-`` or ``:`` (``my-widget``, ``o:p``) are tags where they are closed.

What is markup (``evidence``). A page: it begins with a doctype or ``<html>``, or has ``<head>`` or
``<body>`` closed. A fragment: an HTML element that is closed (``<p>…</p>``; of ``a`` only with an
attribute, of ``s`` and ``q`` never: language models use ``<s>``), a tag with a quoted attribute,
``<br>``, ``<hr>``, a second ``<p>`` or ``<li>``, or an end tag that lost its start. Tags in
quotation marks (a string in code), in Markdown code or on a line of program source say nothing,
comments neither. A text that is program source or data as a whole (``source_code``), or of which
nothing would be left but the inside of scripts and pictures, is not markup, unless it begins as a page.

Costs one scan, linear in the text. The standard library's HTMLParser is not used: on 3.11.7 it
takes 9 s for ``"<a " * 8000`` (24 kB; measured once, 2026-11-29) and grows with the square, reads
``</100元>`` as a comment, and its handling of broken markup differs between patch releases, which
would change a text under the same settings. Takes a template of a page (Jinja, ERB) for HTML.
"""

import re
from bisect import bisect_right
from typing import Iterator, NamedTuple

from workbench.data.source_code import Span, begins_as, read_source

VOID = frozenset(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr".split()
)
BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav "
    "noframes ol optgroup option p plaintext pre search section select summary table tbody tfoot thead title tr "
    "textarea ul xmp".split()
)
INLINE = frozenset(
    "a abbr acronym applet audio b bdi bdo big blink button canvas cite code colgroup data datalist del dfn em font "
    "i iframe ins kbd label map mark marquee math menu meter nobr noembed noscript object output picture progress q "
    "rb rp rt rtc ruby s samp script slot small span strike strong style sub sup svg td template th time tt u var "
    "video".split()
)
MATHML = frozenset(
    "annotation maction menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot "
    "mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none semantics".split()
)
NAMES = VOID | BLOCKS | INLINE | MATHML
DROPPED = frozenset(("script", "style", "template", "svg"))  # with all that is in them
_OPTIONAL_END = frozenset(
    "body colgroup dd dt head html li optgroup option p rb rp rt rtc tbody td tfoot th thead tr".split()
)
_ALONE = frozenset(
    "allowfullscreen async autofocus autoplay checked compact controls crossorigin default defer disabled download "
    "formnovalidate hidden inert ismap itemscope loop multiple muted nohref nomodule noresize noshade novalidate "
    "nowrap open playsinline readonly required reversed selected".split()
)
_NO_NAME = ("comment", "declaration")
_CODE_ELEMENTS = ("pre", "code", "textarea", "listing", "xmp", "samp")

# Possessive quantifiers (*+) throughout: no input makes these backtrack.
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s"'<>=`][^\s"'<>`]*+)"""
_SANE = re.compile(rf"(?:\s++[a-zA-Z_:@][-\w:.@]*+(?:\s*+=\s*+{_VALUE})?+)*+\s*+/?")
_STANDS_ALONE = re.compile(rf"=\s*+{_VALUE}|\s([a-zA-Z_:@][-\w:.@]*+)(?!\s*+=)")
_QUOTED = re.compile(r"""[-\w]\s*+=\s*+["']""")
# A quotation inside a tag must end before white space, / or >; where it does not, the quotes are
# unbalanced and the tag ends at the first > instead of swallowing text up to the next quote.
_TOKEN = re.compile(
    r"""(?P<comment><!--(?:-?>|.*?--!?>|.*\Z))
      | (?P<cdata><!\[CDATA\[ | \]\]>)
      | (?P<declaration><![a-z\[][^<>]*+> | <\?(?:xml|php)\b.*?(?:\?>|\Z))
      | <(?P<slash>/?)(?P<name>[a-z][-:a-z0-9]*+)(?=[\s/>])
        (?P<rest>(?:[^<>"']++|"[^"]*+"(?=[\s/>])|'[^']*+'(?=[\s/>]))*+(?=>)|[^<>]*+)>""",
    re.X | re.S | re.I | re.A,
)
_PAGE = re.compile(r"\ufeff?\s*+(?:<\?xml[^>]*+>\s*+|<!--.*?-->\s*+)*+(?:<!doctype\s+html\b|<html[\s>])", re.I | re.S)
_FENCE = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^[ ]{0,3}\1|\Z)", re.S | re.M)
_TICKS_OR_LINE_END = re.compile(r"`+|\n")


class Tag(NamedTuple):
    """``text[start:end]``: a start or end tag ``name``, or a ``comment`` or ``declaration``.

    ``end`` of a dropped element's start tag is the end of the whole element. ``partner`` is the
    index of the matching tag in the list, -1 if there is none.
    """

    start: int
    end: int
    name: str
    closing: bool
    attributes: str
    partner: int


def tags(text: str) -> list[Tag]:
    """Every tag, comment and declaration of ``text``, in order, by the rule in the module's docstring."""
    found: list[Tag] = []
    open_at: dict[str, list[int]] = {}
    for match, end in _candidates(text):
        if match["name"] is None:
            kind = "comment" if match["comment"] else "declaration"
            found.append(Tag(match.start(), end, kind, False, "", -1))
            continue
        name, partner = match["name"].lower(), -1
        if match["slash"]:
            if open_at.get(name):
                partner = open_at[name].pop()
                found[partner] = found[partner]._replace(partner=len(found))
        elif end != match.end():
            partner = len(found)  # a dropped element is its own partner
        elif name not in VOID and not match["rest"].endswith("/"):
            open_at.setdefault(name, []).append(len(found))
        found.append(Tag(match.start(), end, name, bool(match["slash"]), match["rest"], partner))
    real = [tag.partner >= 0 or _is_tag(text, tag) for tag in found]
    if all(real):
        return found
    moved = {old: new for new, old in enumerate(i for i, ok in enumerate(real) if ok)}
    return [tag._replace(partner=moved.get(tag.partner, -1)) for tag, ok in zip(found, real) if ok]


def evidence(text: str, found: list[Tag] | None = None) -> str:
    """Why ``text`` is markup, in words that begin with ``page`` or ``fragment``; "" if it is not.

    ``found`` is ``tags(text)`` where it is known already.
    """
    if _PAGE.match(text):
        return "page: begins with a doctype or <html>"
    found = tags(text) if found is None else found
    code = code_spans(text)
    if not _sign(text, found, code):
        return ""
    hidden = _hidden(text, found, code)
    if begins_as(text, NAMES, hidden) or _all_dropped(text, found):
        return ""
    source = read_source(text, hidden)
    return "" if source.whole else _sign(text, found, _merged(code + source.spans))


def _sign(text: str, found: list[Tag], code: list[Span]) -> str:
    """The first sign of markup outside ``code``, in the words of ``evidence``."""
    for tag in found:
        if tag.name in ("body", "head") and tag.partner >= 0 and not inside(tag.start, code):
            return f"page: <{tag.name}> is closed"
    repeated = set()
    for tag in found:
        in_quotes = (text[tag.end : tag.end + 1] if tag.closing else text[tag.start - 1 : tag.start]) in ("'", '"', "`")
        if (in_quotes and tag.start) or tag.name in ("s", "q") or tag.name not in NAMES or inside(tag.start, code):
            continue
        if tag.name in ("br", "hr") or _QUOTED.search(tag.attributes):
            return f"fragment: <{tag.name}{' …' if tag.attributes.strip(' /') else ''}>"
        if tag.partner >= 0 and not tag.closing and (tag.name != "a" or tag.attributes):
            return f"fragment: <{tag.name}> is closed"
        if tag.closing and tag.partner < 0 and (len(tag.name) > 1 or tag.name == "p") and tag.name not in VOID:
            return f"fragment: </{tag.name}> without its start"
        if tag.name in ("p", "li") and not tag.closing:
            if tag.name in repeated:
                return f"fragment: <{tag.name}> twice"
            if not _glued(text, tag.start):
                repeated.add(tag.name)
    return ""


def _hidden(text: str, found: list[Tag], code: list[Span]) -> list[Span]:
    """Where lines say nothing about the text around them: code of a page or of Markdown, scripts, long tags."""
    spans = list(code)
    for tag in found:
        if text[tag.start - 1 : tag.start] in ("'", '"', "`"):
            continue  # a string of a program, where such a tag hides nothing
        start, end = tag.start, tag.end
        if tag.name in _CODE_ELEMENTS and tag.partner >= 0 and not tag.closing:
            end = found[tag.partner].end
        elif tag.name == "pre" and tag.partner < 0:
            start, end = (0, end) if tag.closing else (start, len(text))  # the rest was cut off
        elif tag.name in DROPPED:
            if start and text[start - 1] not in "> \t\n":
                continue  # an address of a style sheet: url(data:image/svg+xml,<svg …>)
        elif "\n" not in text[start:end]:
            continue
        spans.append((start, end))
    return _merged(spans)


def _all_dropped(text: str, found: list[Tag]) -> bool:
    """Whether nothing but dropped elements is there: a script, a component, a picture, no page."""
    if any(tag.name not in DROPPED and tag.name not in _NO_NAME for tag in found):
        return False
    end = 0
    for tag in found:
        if text[end : tag.start].strip():
            return False
        end = tag.end
    return not text[end:].strip()


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def code_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the Markdown code of ``text``, fenced and inline, in order."""
    if "`" not in text and "~~~" not in text:
        return []
    fences = [m.span() for m in _FENCE.finditer(text)]
    spans, waiting, at = list(fences), {}, -1
    # Inline code is closed, on its line, by as many ticks as it was opened with.
    runs = [m.span() for m in _TICKS_OR_LINE_END.finditer(text)]
    partner: list[int | None] = [None] * len(runs)
    for index in range(len(runs) - 1, -1, -1):
        start, end = runs[index]
        if text[start] == "\n":
            waiting = {}
        else:
            partner[index] = waiting.get(end - start)
            waiting[end - start] = runs[index][1]
    for (start, _), close in zip(runs, partner):
        if close is not None and start >= at and not inside(start, fences):
            spans.append((start, close))
            at = close
    return sorted(spans)


def inside(at: int, spans: list[tuple[int, int]]) -> bool:
    """Whether position ``at`` lies in one of the sorted ``spans``."""
    index = bisect_right(spans, (at + 1,)) - 1
    return index >= 0 and at < spans[index][1]


def _candidates(text: str) -> Iterator[tuple[re.Match, int]]:
    """Matches that may be tags, each with the end of what it stands for."""
    at, cdata = 0, False
    while match := _TOKEN.search(text, at):
        name, at = (match["name"] or "").lower(), match.end()
        if match["cdata"]:
            closes, was_open = match["cdata"] == "]]>", cdata
            cdata = not closes
            if closes and not was_open:
                continue  # a[b[0]]>1
        elif name:
            known = name in NAMES or ":" in name or "-" in name
            if not known or (match["rest"] and not _sane(match["rest"], bool(match["slash"]))):
                at = match.start() + 1
                continue
        if name in DROPPED and not match["slash"] and not match["rest"].endswith("/"):
            close = re.compile(rf"</{name}\s*+>", re.I).search(text, at)
            if not close and not match["rest"] and _in_a_sentence(text, match.start()):
                at = match.start() + 1
                continue
            at = close.end() if close else len(text)
        yield match, at


def _sane(attributes: str, closing: bool) -> bool:
    if not attributes.strip(" \t\r\n/"):
        return True
    if closing:
        return False
    if not _SANE.fullmatch(attributes):
        # Slips of real pages: no space between attributes, a stray quote. One quoted value is enough.
        return bool(_QUOTED.search(attributes))
    alone = (match[1].lower() for match in _STANDS_ALONE.finditer(attributes) if match[1])
    return all(name in _ALONE or name.startswith("data-") for name in alone)


def _is_tag(text: str, tag: Tag) -> bool:
    """Whether a tag without its partner is one."""
    if tag.name in _NO_NAME:
        return True
    if tag.name not in NAMES:
        return tag.attributes.endswith("/")
    if tag.closing or tag.attributes.strip() or tag.name in _OPTIONAL_END or tag.name in ("br", "hr", "wbr"):
        return True
    # Bare and without its end tag: glued to a word it is a comparison or a type parameter.
    return not _glued(text, tag.start)


def _in_a_sentence(text: str, at: int) -> bool:
    """Whether words, not tags, come before position ``at`` on its line ("use the <script> tag")."""
    before = text[text.rfind("\n", 0, at) + 1 : at].rstrip()
    return bool(before) and before[-1] != ">"


def _glued(text: str, at: int) -> bool:
    return at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_")
