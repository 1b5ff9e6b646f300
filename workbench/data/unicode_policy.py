"""What is done to characters: line ends, control and zero-width characters, width, quotes, normal form.

The default keeps Chinese as it was written. NFC never touches ，？；： ；NFKC turns them, and
every full-width letter, into ASCII, so it has to be asked for. Each rule is a function from a text
to its edits (``[]`` after one quick scan where nothing has to change).

    surrogates   half of a UTF-16 pair (JSON's "\\ud800" gives one) → U+FFFD; it has no UTF-8
    line_ends    CR LF, CR, NEL (U+0085), U+2028, U+2029 → LF
    controls     Cc goes, except tab and LF (and CR, where line_ends is off); of a colour code of the
                 terminal (ESC [31m) all of it
    zero_width   invisible characters and direction marks go; see ``zero_width``
    fold_width   ＡＢＣ１２３ → ABC123: letters and digits, no punctuation
    fold_quotes  “ ” ‘ ’ → " ' (in Chinese these are the quotation marks)
    normal_form  NFC or NFKC, cluster by cluster

Does not remove repeated blanks; ``chinese`` converts between simplified and traditional characters.
"""

import re
import unicodedata
from functools import lru_cache

from workbench.data.edits import Edit

_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile("\r\n?|[\x85\u2028\u2029]")
_CONTROL = re.compile("(?:\x1b\\[[0-9;]*+m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])+")
# Soft hyphen, Arabic letter mark, Mongolian vowel separator, zero-width space, marks, embeddings,
# word joiner, invisible operators, isolates, deprecated format characters, byte order mark,
# interlinear annotation, tags; and the two joiners, which are kept where they join.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_JOINS = re.compile(
    "[\u0620-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1a20-\u1bff\ua840-\ua8ff\ua980-\uaadf\uabc0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
_EMOJI = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]")
_AFTER_EMOJI = "\ufe0e\ufe0f\u20e3"  # variation selectors and the keycap belong to the emoji before them
_WIDE_WORD = re.compile("[０-９Ａ-Ｚａ-ｚ]+")
_NARROW = {code: code - 0xFEE0 for code in range(0xFF10, 0xFF5B)}
_QUOTES = re.compile("[‘’‚‛“”„‟]")
_STRAIGHT = {**dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„‟", '"')}
_CLUSTERS = re.compile(r".[^\x00-\x7f]*", re.S)


def surrogates(text: str) -> list[Edit]:
    return [] if text.isascii() else [Edit(m.start(), m.end(), "\ufffd") for m in _SURROGATE.finditer(text)]


def line_ends(text: str) -> list[Edit]:
    if not any(end in text for end in "\r\x85\u2028\u2029"):  # far quicker than a regular expression
        return []
    return [Edit(m.start(), m.end(), "\n") for m in _LINE_END.finditer(text)]


def controls(text: str) -> list[Edit]:
    return [Edit(m.start(), m.end(), "") for m in _CONTROL.finditer(text)]


def zero_width(text: str) -> list[Edit]:
    """Edits that remove invisible characters, except where they carry meaning.

    ZERO WIDTH JOINER stays between two emoji (👩‍🔬). It and ZERO WIDTH NON-JOINER stay after a
    letter or mark of a script whose letters join or stack: Arabic and its relatives (می‌خواهم), the
    Indic scripts (क्‍ष), Tibetan, Myanmar, Khmer, Mongolian. Tag characters stay in the flag of a
    region (🏴 and its tags). U+200B goes also where Thai or Khmer mark words with it.
    """
    if text.isascii():
        return []
    edits = []
    for match in _INVISIBLE.finditer(text):
        start, end = match.span()
        if text[start] in "\u200c\u200d" and _joins(text, start):
            start += 1
        elif (flag := _FLAG.match(text, start - 1)) if start else None:
            start = flag.end()
        if start < end:
            edits.append(Edit(start, end, ""))
    return edits


def fold_width(text: str) -> list[Edit]:
    return [Edit(m.start(), m.end(), m[0].translate(_NARROW)) for m in _WIDE_WORD.finditer(text)]


def fold_quotes(text: str) -> list[Edit]:
    return [Edit(m.start(), m.end(), _STRAIGHT[m[0]]) for m in _QUOTES.finditer(text)]


def normal_form(text: str, form: str) -> list[Edit]:
    """Edits that make ``unicodedata.normalize(form, text)`` (NFC or NFKC), one a cluster that changes.

    A cluster is a character with those after it that could combine with it.
    """
    if unicodedata.is_normalized(form, text):
        return []
    edits = []
    for match in _CLUSTERS.finditer(text):
        if unicodedata.is_normalized(form, match[0]):
            continue
        start = match.start()
        for at in range(start + 1, match.end() + 1):
            if at < match.end() and _combines(text[at], form):
                continue
            normal = unicodedata.normalize(form, text[start:at])
            if normal != text[start:at]:
                edits.append(Edit(start, at, normal))
            start = at
    return edits


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if _JOINS.match(before):
        return True
    if text[at] != "\u200d" or not _EMOJI.match(after):
        return False
    return bool(_EMOJI.match(before)) or (before != "" and before in _AFTER_EMOJI and at > 1)


@lru_cache(maxsize=65536)
def _combines(character: str, form: str) -> bool:
    """Whether ``character`` could combine with one before it: a mark, or a Hangul vowel or final."""
    first = unicodedata.normalize("NFKD" if form == "NFKC" else "NFD", character)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"
