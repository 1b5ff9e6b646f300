"""One text cleaned by a policy: markup, mojibake, characters; every change with its place in the raw text.

    clean(text, CleaningPolicy())  →  Cleaned(text, changes, offsets, counts)

The rules run in this order, each as a function from a text to its edits: surrogates, markup (once:
``&amp;lt;`` becomes ``&lt;``, not ``<``), then mojibake, line_ends, control_characters, zero_width,
fold_width, fold_quotes, chinese, unicode_form, and these again until none of them finds anything,
because a character that goes can bring two others together. So ``clean(clean(x)) == clean(x)`` for text that
is not markup. Mojibake is ftfy's ``fix_encoding`` line by line, so that a broken line does not
touch its neighbours; its other repairs (quotes, width, ligatures, entities) are not used. C1
controls are read as Windows-1252 (\\x93 → “) only in a line whose every character is Latin-1.

Costs, measured 2026-11-29 in processor time on a shared machine (4 runs of best of 3, 1 MB each), MB
of UTF-8 a second: clean ASCII English 86 to 98, Chinese 31 to 56, English with typographic quotes 19
to 22, English with CR LF 11 to 15, Russian 4 to 6 (ftfy's scan). HTML: 2.8 over 100 pages of software
documentation (4.3 MB, one run), the median page 5.0; the visible characters of all 100 were those
that Beautiful Soup 4.15 gives. Offsets and changes are made when they are asked for.

Does not judge, shorten or drop a text, and does not remove repeated lines.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Callable, NamedTuple

import ftfy
import numpy as np
from ftfy.badness import is_bad

from workbench.config import fingerprint, require, settings
from workbench.data import unicode_policy
from workbench.data.chinese import opencc_version, script_edits
from workbench.data.edits import Edit, apply, compose, offsets
from workbench.data.markup import markup_edits

# Part of every fingerprint: raise it when a rule gives another text than before.
RULES_VERSION = 2
_PASSES = 20  # far more than any text needs; reaching it is a defect of a rule

# What ftfy calls bad holds one of these: a C1 control, Â Ã Œ œ, or two neighbours from the letters
# and symbols of single-byte encodings, the first none of those that are common everywhere (…… and
# —— in Chinese). It is a far quicker scan.
_ANY = "\xa0-\u04ff\u2000-\u25ff\uf8ff\ufb01\ufb02\ufffd"
_RARE = (
    "\xa1-\xac\xae-\xb3\xb5\xb6\xb8-\u04ff\u2000-\u2012\u2016-\u2018\u201a-\u2025\u2027-\u25ff\uf8ff\ufb01\ufb02\ufffd"
)
_SUSPECT = re.compile(f"[\x80-\x9fÂÃŒœ]|[{_RARE}][{_ANY}]")
_LINE = re.compile("[^\r\n]+")
# Letters of two UTF-8 bytes that few lines hold without other repairs: Latin Extended-B and phonetic
# letters but those of Vietnamese, pinyin, Romanian, Azerbaijani and West African languages, Cyrillic
# letters outside the basic alphabet, Syriac to N'Ko. Where ftfy finds one such letter and nothing
# else in a line, it was a mark beside an accented letter: ”é is ӎ in Mac Roman.
_UNLIKELY = re.compile(
    "[\u0180-\u018e\u0190-\u019f\u01a2-\u01ae\u01b1-\u01cc\u01dd-\u0217\u021c-\u0253"
    "\u0255-\u0258\u025a\u025c-\u02ba\u0460-\u052f\u0700-\u07ff]"
)


@settings
class CleaningPolicy:
    """Which rules run. The default keeps Chinese punctuation, width, quotation marks and both scripts."""

    markup: str = "auto"  # auto: where the text is HTML; always; never
    mojibake: bool = True
    line_ends: bool = True
    control_characters: bool = True
    zero_width: bool = True
    fold_width: bool = False  # ＡＢＣ１２３ → ABC123
    fold_quotes: bool = False  # “ ” ‘ ’ → " '
    chinese: str = "keep"  # keep, simplified or traditional; the last two need the package opencc
    unicode_form: str = "NFC"  # NFC, NFKC or none

    def __post_init__(self) -> None:
        require(self.markup in ("auto", "always", "never"), "markup", self.markup, "auto, always or never")
        allowed = ("keep", "simplified", "traditional")
        require(self.chinese in allowed, "chinese", self.chinese, "keep, simplified or traditional")
        require(self.unicode_form in ("NFC", "NFKC", "none"), "unicode_form", self.unicode_form, "NFC, NFKC or none")

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that name the settings, the rules and the libraries they rest on.

        Raises SettingError where ``chinese`` asks for a conversion and the package opencc is missing.
        """
        values, libraries = asdict(self), [ftfy.__version__, unicodedata.unidata_version]
        if self.chinese == "keep":
            del values["chinese"]  # so that stores prepared before there was this setting stay valid
        else:
            libraries.append(opencc_version())
        return fingerprint(values, RULES_VERSION, *libraries)


class Change(NamedTuple):
    """``raw[raw_start:raw_end]`` was ``before`` and became ``after``.

    ``rule`` names the rule, or with ``+`` all that worked on this place, in their order.
    """

    rule: str
    raw_start: int
    raw_end: int
    before: str
    after: str


@dataclass(frozen=True)
class Cleaned:
    """The clean ``text``, and how it came from ``raw``.

    ``edits`` turn ``raw`` into ``text``; ``counts`` says how many edits each rule made. Equal to
    another where text, raw text and edits are.
    """

    text: str
    raw: str
    edits: tuple[Edit, ...]
    counts: Counter

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes in the order of the raw text; none overlap, all made on ``raw`` give ``text``."""
        return tuple(
            Change("+".join(rules), start, end, self.raw[start:end], after) for start, end, after, rules in self.edits
        )

    @cached_property
    def offsets(self) -> np.ndarray:
        """(len(text) + 1,) int32: the raw position of every position of ``text``; see ``edits.offsets``."""
        return offsets(len(self.raw), self.edits)


def clean(text: str, policy: CleaningPolicy = CleaningPolicy()) -> Cleaned:
    """``text`` after the rules of ``policy``."""
    raw, edits, counts = text, [], Counter()
    once, repeated = _rules(policy)
    for name, rule in once:
        text, edits = _run(name, rule, text, edits, counts)
    for _ in range(_PASSES):
        before = text
        for name, rule in repeated:
            text, edits = _run(name, rule, text, edits, counts)
        if text == before:
            return Cleaned(text, raw, tuple(edits), counts)
    raise RuntimeError(f"cleaning does not settle on {raw[:80]!r}…")


def mojibake(text: str) -> list[Edit]:
    """Edits that repair UTF-8 which was read in another encoding (``cafÃ©`` → ``café``), by ftfy, line by line.

    A line in which ftfy finds nothing but letters that are rare by themselves keeps what it has.
    """
    if text.isascii() or not _SUSPECT.search(text):
        return []
    edits = []
    for line in _LINE.finditer(text):
        if not line[0].isascii() and _SUSPECT.search(line[0]) and is_bad(line[0]):
            fixed = ftfy.fix_encoding(line[0], fix_c1_controls=False)
            made = _differences(line[0], fixed, line.start())
            if not all(_UNLIKELY.fullmatch(edit.replacement) for edit in made):
                edits += made
    return edits


def _rules(policy: CleaningPolicy) -> tuple[list, list]:
    """(name, rule) of those that run once and of those that run until nothing changes."""
    form, script = policy.unicode_form, policy.chinese
    once: list[tuple[str, Callable[[str], list[Edit]]]] = [("surrogates", unicode_policy.surrogates)]
    if policy.markup != "never":
        once.append(("markup", lambda text: markup_edits(text, always=policy.markup == "always")))
    repeated = [
        (policy.mojibake, "mojibake", mojibake),
        (policy.line_ends, "line_ends", unicode_policy.line_ends),
        (policy.control_characters, "control_characters", unicode_policy.controls),
        (policy.zero_width, "zero_width", unicode_policy.zero_width),
        (policy.fold_width, "fold_width", unicode_policy.fold_width),
        (policy.fold_quotes, "fold_quotes", unicode_policy.fold_quotes),
        (script != "keep", "chinese", lambda text: script_edits(text, script)),
        (form != "none", "unicode_form", lambda text: unicode_policy.normal_form(text, form)),
    ]
    return once, [(name, rule) for wanted, name, rule in repeated if wanted]


def _run(name: str, rule, text: str, edits: list[Edit], counts: Counter) -> tuple[str, list[Edit]]:
    made = rule(text)
    if not made:
        return text, edits
    counts[name] += len(made)
    made = [Edit(start, end, replacement, (name,)) for start, end, replacement, _ in made]
    return apply(text, made), compose(edits, made, text)


def _differences(old: str, new: str, at: int) -> list[Edit]:
    """The words that differ, trimmed to what differs in them; all in one where the words do not match up."""
    old_words, new_words = re.split("( )", old), re.split("( )", new)
    if len(old_words) != len(new_words):
        old_words, new_words = [old], [new]
    edits = []
    for before, after in zip(old_words, new_words):
        if before != after:
            first = last = 0
            most = min(len(before), len(after))
            while first < most and before[first] == after[first]:
                first += 1
            while last < most - first and before[-1 - last] == after[-1 - last]:
                last += 1
            edits.append(Edit(at + first, at + len(before) - last, after[first : len(after) - last]))
        at += len(before)
    return edits
