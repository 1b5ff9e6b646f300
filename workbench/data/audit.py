"""What a tokenizer does to a corpus, and what a cleaning policy does to its tokens.

    audit_tokenizer(tokenizer, texts)            unknown tokens, round trips, tokens a character by
                                                 script, entities that stay in one piece
    policy_effect(tokenizer, texts, policy)      the share of tokens that are others after cleaning

Every text is encoded and decoded once, with offsets: about a megabyte a second, in one process.
Says what is so, not whether that is good: compare two tokenizers, or two policies, on the same texts.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Mapping

import numpy as np
from transformers import PreTrainedTokenizerFast

from workbench.data import unicode_policy
from workbench.data.cleaning import Cleaned, CleaningPolicy, clean
from workbench.data.edits import apply
from workbench.data.tokenizing import Encoded, decode, encode, encoded_of, encoding_of

TICKER = re.compile(r"\$[A-Z]{1,5}(?![A-Za-z])")
ENTITIES: dict[str, re.Pattern[str]] = {
    "tickers": TICKER,  # $AAPL
    "numbers": re.compile(r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+)(?![\d.,]*\d)"),  # 1,234.5 and 3.14
    "dates": re.compile(r"(?<!\d)(?:\d{4}-\d{2}-\d{2}(?!\d)|\d{4}年\d{1,2}月\d{1,2}日)"),
    "addresses": re.compile(r"https?://[^\s\u3000-\u9fff\uff00-\uffef<>\"]+|[\w.+-]+@[A-Za-z\d-]+(?:\.[A-Za-z\d-]+)+"),
}

# First and last code point; what is in none of them (blanks, punctuation, symbols, other scripts) is "other".
SCRIPTS = {
    "Han": [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)],
    "Latin": [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F)],
    "Kana": [
        (0x3041, 0x3096),
        (0x309D, 0x309F),
        (0x30A1, 0x30FA),
        (0x30FC, 0x30FF),
        (0x31F0, 0x31FF),
        (0xFF66, 0xFF9D),
    ],
    "Hangul": [(0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97C), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FB)],
    "Cyrillic": [(0x400, 0x52F), (0x1C80, 0x1C8A), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)],
    "Arabic": [(0x620, 0x65F), (0x66E, 0x6D3), (0x6D5, 0x6DC), (0x6EE, 0x6EF), (0x6FA, 0x6FF), (0x750, 0x77F)],
    "digits": [(0x30, 0x39), (0x660, 0x669), (0x6F0, 0x6F9), (0xFF10, 0xFF19)],
    "emoji": [(0x2600, 0x27BF), (0xFE0F, 0xFE0F), (0x1F000, 0x1FAFF)],
}
_NAMES = (*SCRIPTS, "other")
_RANGES = sorted((first, last, i) for i, name in enumerate(SCRIPTS) for first, last in SCRIPTS[name])
_FIRST, _LAST, _SCRIPT = (np.array(column) for column in zip(*_RANGES))

# The article's share of tokens that full-width punctuation, not normalised, "wrongly truncates"
# (its introduction). It names no corpus, no tokenizer and no way of counting.
ARTICLE_TRUNCATED_TOKENS = 0.0037


@dataclass(frozen=True)
class ScriptCount:
    """Characters of a script, and the tokens whose last character is one of them."""

    characters: int
    tokens: int

    @property
    def tokens_per_character(self) -> float:
        return _share(self.tokens, self.characters)


@dataclass(frozen=True)
class EntityCount:
    """``whole``: one pre-token with nothing else in it but a blank before; ``single``: also one token."""

    count: int
    whole: int
    single: int

    @property
    def whole_share(self) -> float:
        return _share(self.whole, self.count)

    @property
    def one_token_share(self) -> float:
        return _share(self.single, self.count)


@dataclass(frozen=True)
class TokenizerAudit:
    """What a tokenizer does to some texts. Shares are 0 to 1, and nan where there is nothing to count."""

    vocab_size: int
    texts: int
    characters: int
    tokens: int
    unknown_tokens: int
    round_trip_failures: int  # texts that do not decode to themselves
    round_trip_examples: tuple[str, ...]  # the first failures, 80 characters around the first difference
    scripts: dict[str, ScriptCount]  # add up to all characters and all tokens
    entities: dict[str, EntityCount]

    @property
    def unknown_rate(self) -> float:
        """Unknown tokens per token."""
        return _share(self.unknown_tokens, self.tokens)

    @property
    def tokens_per_character(self) -> float:
        return _share(self.tokens, self.characters)

    @property
    def tokens_per_cjk_character(self) -> float:
        """Tokens that end in an ideograph, per ideograph."""
        return self.scripts["Han"].tokens_per_character

    @property
    def tokens_per_latin_character(self) -> float:
        return self.scripts["Latin"].tokens_per_character

    @property
    def tickers(self) -> int:
        return self._tickers.count

    @property
    def tickers_whole_share(self) -> float:
        return self._tickers.whole_share

    @property
    def tickers_one_token_share(self) -> float:
        return self._tickers.one_token_share

    @property
    def _tickers(self) -> EntityCount:
        return self.entities.get("tickers", EntityCount(0, 0, 0))


@dataclass(frozen=True)
class PolicyEffect:
    """Tokens of raw texts beside those of the same texts cleaned."""

    texts: int
    texts_changed: int
    tokens_before: int
    tokens_after: int
    tokens_changed: int  # tokens of the raw text that are not among those of the clean text at their place
    unknown_before: int
    unknown_after: int

    @property
    def changed_share(self) -> float:
        """``tokens_changed`` per token of the raw text; beside ARTICLE_TRUNCATED_TOKENS."""
        return _share(self.tokens_changed, self.tokens_before)


def audit_tokenizer(
    tokenizer: PreTrainedTokenizerFast,
    texts: Iterable[str],
    *,
    entities: Mapping[str, str | re.Pattern[str]] = ENTITIES,
    examples: int = 5,
) -> TokenizerAudit:
    """Count what ``tokenizer`` does to ``texts``. Raises DataError as encode.

    ``entities``: name → regular expression of what should stay in one piece.
    """
    patterns = {name: re.compile(pattern) for name, pattern in entities.items()}
    totals: Counter[str] = Counter()
    characters, endings = np.zeros(len(_NAMES), np.int64), np.zeros(len(_NAMES), np.int64)
    kept = {name: np.zeros(3, np.int64) for name in patterns}
    shown: list[str] = []
    for text in texts:
        encoding = encoding_of(tokenizer, text)
        encoded = encoded_of(encoding)
        totals.update(texts=1, characters=len(text), tokens=len(encoded), unknown=_unknown(tokenizer, encoded))
        in_script = _scripts(text)
        characters += np.bincount(in_script, minlength=len(_NAMES))
        ends_in = in_script[encoded.ends[encoded.ends > encoded.starts] - 1]
        endings += np.bincount(ends_in, minlength=len(_NAMES))
        endings[-1] += len(encoded) - len(ends_in)  # tokens that stand for no character
        back = decode(tokenizer, encoded.ids)
        if back != text:
            totals["failures"] += 1
            if len(shown) < examples:
                shown.append(_first_difference(text, back))
        words = _words(encoding)
        for name, pattern in patterns.items():
            for match in pattern.finditer(text):
                kept[name] += (1, *_kept_whole(encoded, words, text, *match.span()))
    return TokenizerAudit(
        vocab_size=len(tokenizer),
        texts=totals["texts"],
        characters=totals["characters"],
        tokens=totals["tokens"],
        unknown_tokens=totals["unknown"],
        round_trip_failures=totals["failures"],
        round_trip_examples=tuple(shown),
        scripts={n: ScriptCount(int(c), int(t)) for n, c, t in zip(_NAMES, characters, endings)},
        entities={name: EntityCount(*map(int, counts)) for name, counts in kept.items()},
    )


def policy_effect(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], policy: CleaningPolicy) -> PolicyEffect:
    """Encode each text raw and cleaned, and count the raw tokens that are not there any more.

    A token is (start, end, id) in the raw text; those of the clean text are taken back there by
    ``Cleaned.offsets``. Halves of surrogate pairs count as U+FFFD, since they have no tokens.
    """
    totals: Counter[str] = Counter()
    for text in texts:
        raw = apply(text, unicode_policy.surrogates(text))
        cleaned = clean(raw, policy)
        before = encode(tokenizer, raw)
        after = encode(tokenizer, cleaned.text) if cleaned.edits else before
        totals.update(texts=1, changed_texts=cleaned.text != raw, before=len(before), after=len(after))
        totals.update(
            unknown_before=_unknown(tokenizer, before),
            unknown_after=_unknown(tokenizer, after),
            changed=_missing(before, after, cleaned) if cleaned.edits else 0,
        )
    return PolicyEffect(
        texts=totals["texts"],
        texts_changed=totals["changed_texts"],
        tokens_before=totals["before"],
        tokens_after=totals["after"],
        tokens_changed=totals["changed"],
        unknown_before=totals["unknown_before"],
        unknown_after=totals["unknown_after"],
    )


def _missing(before: Encoded, after: Encoded, cleaned: Cleaned) -> int:
    starts, ends = cleaned.offsets, cleaned.offsets[1:].copy()
    shift = 0  # position in the clean text - position in the raw text
    for start, end, replacement, _ in cleaned.edits:
        at = start + shift
        if not replacement and at:
            ends[at - 1] = min(ends[at - 1], start)  # a token does not reach over what was removed behind it
        shift += len(replacement) - (end - start)
    empty = after.starts == after.ends
    raw_starts = starts[after.starts]
    raw_ends = np.where(empty, raw_starts, ends[after.ends - 1] if len(ends) else 0)
    was = Counter(zip(before.starts.tolist(), before.ends.tolist(), before.ids.tolist()))
    now = Counter(zip(raw_starts.tolist(), raw_ends.tolist(), after.ids.tolist()))
    return (was - now).total()


def _unknown(tokenizer: PreTrainedTokenizerFast, encoded: Encoded) -> int:
    return 0 if tokenizer.unk_token_id is None else int((encoded.ids == tokenizer.unk_token_id).sum())


def _scripts(text: str) -> np.ndarray:
    """(characters,) int64: the place of each character's script in ``_NAMES``."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    at = np.maximum(np.searchsorted(_FIRST, codes, side="right") - 1, 0)
    return np.where((codes >= _FIRST[at]) & (codes <= _LAST[at]), _SCRIPT[at], len(SCRIPTS))


def _words(encoding) -> np.ndarray:
    """(n,) int64: the pre-token of each token, -1 for those that belong to none."""
    return np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)


def _kept_whole(encoded: Encoded, words: np.ndarray, text: str, start: int, end: int) -> tuple[bool, bool]:
    """(whole, one token) for the entity ``text[start:end]``."""
    inside = np.flatnonzero((encoded.ends > start) & (encoded.starts < end))
    if not len(inside) or words[inside[0]] != words[inside[-1]]:
        return False, False
    around = np.flatnonzero(words == words[inside[0]]) if words[inside[0]] >= 0 else inside
    first, last = int(encoded.starts[around].min()), int(encoded.ends[around].max())
    whole = text[first:start].strip() == "" and last == end
    return whole, whole and len(around) == 1


def _first_difference(text: str, back: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(text, back)) if a != b), min(len(text), len(back)))
    return text[max(0, at - 40) : at + 40]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
