"""Where a text may be cut: between grapheme clusters, after sentences, between words.

A grapheme cluster is what a reader takes for one character: a letter with its combining marks, an
emoji with its joiners and skin tone, a flag of two letters, a line end of two (Unicode Standard
Annex 29). A cut inside one shows the reader something that was never written.

Costs nothing at a place between two ordinary characters, else a walk back to the last such place.
Knows no dictionary: a sentence ends at its punctuation, a word at a space, and abbreviations are a
short list.
"""

from typing import Iterator

import regex

# Between two characters of this class there is always a boundary, whatever stands around them.
ORDINARY = r"[\p{Grapheme_Cluster_Break=Other}--\p{Cs}]"
_ORDINARY = regex.compile(ORDINARY, regex.V1)
_CLUSTER = regex.compile(r"\X")
_SENTENCE_END = regex.compile(
    r"""(?:[。！？…]+
          |(?<!\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|No|Inc|Ltd|Co|Jr|Sr|etc|e\.g|i\.e|\p{Lu}))[.!?]+(?=[\s"'”’）)」』\]]|$)
        )["'”’）)」』\]]*\s*
      |\n\s*""",
    regex.VERBOSE,
)
_WORD_START = regex.compile(r"(?<=\s)\S|(?<=[，、；：])[^，、；：\s]")


def is_boundary(text: str, at: int) -> bool:
    """Whether ``text`` may be cut before position ``at`` (0 to len) without splitting a grapheme cluster."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if _ordinary(before) and _ordinary(after):
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False  # the halves of a character outside the basic plane, as broken JSON gives them
    start = at - 1
    while start and not (_ordinary(text[start - 1]) and _ordinary(text[start])):
        start -= 1
    return next(m.start() for m in _CLUSTER.finditer(text, start) if m.end() > at) == at


def _ordinary(character: str) -> bool:
    # Most of what there is, without the pattern.
    return " " <= character <= "~" or "\u4e00" <= character <= "\u9fff" or bool(_ORDINARY.match(character))


def nearest_boundary(text: str, at: int) -> int:
    """The boundary nearest to ``at``, the ends of the text included; of two as near, the later one."""
    at = min(max(at, 0), len(text))
    for distance in range(len(text) + 1):
        for place in (at + distance, at - distance):
            if 0 <= place <= len(text) and is_boundary(text, place):
                return place
    raise AssertionError("the ends of a text are boundaries")


def sentence_ends(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Positions after a sentence in ``text[start:end]``, with the white space behind it; rising.

    Line ends end a sentence too. The end of the text is given only where punctuation ends it.
    """
    end = len(text) if end is None else end
    # Not finditer(text, start, end): the dot of 3.5 would end a sentence at such an end.
    for match in _SENTENCE_END.finditer(text, start):
        if match.end() > end:
            return
        if is_boundary(text, match.end()):
            yield match.end()


def word_starts(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Positions in ``text[start:end]`` after white space or a Chinese comma; rising."""
    for match in _WORD_START.finditer(text, start, len(text) if end is None else end):
        if is_boundary(text, match.start()):
            yield match.start()


def sentences(text: str) -> list[tuple[str, str]]:
    """``text`` as (sentence, white space behind it), in order; joined they are the text."""
    places = [0, *sentence_ends(text)]
    if places[-1] != len(text):
        places.append(len(text))
    pieces = [text[a:b] for a, b in zip(places, places[1:])]
    return [(piece.rstrip(), piece[len(piece.rstrip()) :]) for piece in pieces]
