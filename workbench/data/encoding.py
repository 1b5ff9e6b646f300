"""Texts to token ids and the places where a window may be cut; light enough for worker processes.

    Encoder(spec).encode(texts)  →  for each text (ids, cuts)

A cut before a token is allowed where the token begins a character. For byte-level tokenizers and
those that fall back to bytes that is a property of the token alone: its first byte is not a UTF-8
continuation byte (0x80 to 0xBF). It is looked up in a table made once, and the tokenizer need not
compute offsets. For any other tokenizer the offsets decide. Where it is provably the same, the ids
come from a quicker engine (``ranks``); ``quick=False`` leaves all to ``tokenizers``.

Where the two ways differ, the table is right and the finer one: after NFKC ``㎡`` is the two
characters ``m2``, which share one character of the text but may be cut apart; and an added token
``©`` shares no character with its neighbours, but a byte-level decoder takes it for the byte 0xA9.
Either way the decoded left and right sides hold no replacement character that the whole does not hold.

Costs, measured 2026-11-30 on a shared machine with 2 cores, 10 and 20 MB of Chinese, code and
English in texts of about 3 KB, the bundled tokenizer (0.6 million tokens a MB): one thread 1.4 to
1.6 MB a second, with offsets 1.2; two threads, or two processes of one, together 2.4 to 2.6. Of the
time 94 % is spent in ``tokenizers``, mostly for each pre-token, and 6 % in making arrays. Threads
want lists of 64 texts or more. A text needs about 600 bytes of memory a character while it is
encoded, and speed halves above a million characters: cut long documents before. They are not cut
here, since no general tokenizer promises that the pieces give the same ids. A larger merge cache
gave 3 to 9 % and is not used.

Does not add begin or end of text, pad, shorten, or import transformers.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Sequence

import numpy as np
from tokenizers import Tokenizer

from workbench.data.ranks import RankEncoder
from workbench.errors import DataError

_BYTE_ENTRY = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class EncoderSpec:
    """What a process needs to encode as another does; can be pickled. ``tokenizing.spec_of`` makes it."""

    json: str  # tokenizer.json
    begin: int
    end: int
    unknown: int | None
    control: tuple[int, ...]  # ids that text must never become; the unknown token is not one


class Encoder:
    """Encodes lists of texts; making one costs about two seconds for 150,000 vocabulary entries."""

    def __init__(self, spec: EncoderSpec, quick: bool = True) -> None:
        self.spec = spec
        self._text = _tokenizer(spec.json, special_strings_are_text=True)
        vocabulary = self._text.get_vocab(with_added_tokens=True)
        size = max([*vocabulary.values(), *spec.control], default=-1) + 1
        self._control = np.zeros(size, bool)
        self._control[list(spec.control)] = True
        self._begins = _begins_character(self._text, vocabulary, size)
        self._quick = RankEncoder.of(self._text, byte_alphabet()) if quick and self.by_table else None

    @cached_property
    def _scaffolding(self) -> Tokenizer:
        return _tokenizer(self.spec.json, special_strings_are_text=False)

    @property
    def by_table(self) -> bool:
        """Whether cuts come from the ids alone, and not from offsets."""
        return self._begins is not None

    def encode(
        self, texts: Sequence[str], control: Sequence[bool] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each text its ids, int32 (n,), and cuts, bool (n,): True where a window may end before token i.

        ``control[i]`` marks text i as scaffolding of a template, in which the strings of special tokens
        become these tokens; in all other texts they are ordinary text. Raises DataError where that
        cannot be kept (the model itself holds the string), and for lone surrogates.
        """
        if control is None or not any(control):
            return self._batch(texts, self._text, checked=True)
        if len(control) != len(texts):
            raise ValueError(f"{len(texts)} texts, but {len(control)} values in control")
        plain = iter(self._batch([t for t, c in zip(texts, control) if not c], self._text, checked=True))
        scaffold = iter(self._batch([t for t, c in zip(texts, control) if c], self._scaffolding, checked=False))
        return [next(scaffold if c else plain) for c in control]

    def _batch(self, texts: Sequence[str], tokenizer: Tokenizer, checked: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        if checked and self._quick is not None:
            return self._by_ranks(texts, tokenizer)
        run = tokenizer.encode_batch_fast if self.by_table else tokenizer.encode_batch
        try:
            encodings = run(list(texts), add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise _unreadable(texts, error) from error
        out = []
        for encoding in encodings:
            ids = np.array(encoding.ids, dtype=np.int32)
            if checked and self._control[ids].any():
                raise control_in_text(ids[self._control[ids]], tokenizer)
            if self.by_table:
                out.append((ids, self._begins[ids]))
            else:
                spans = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
                out.append((ids, cuts_of_offsets(spans[:, 0], spans[:, 1])))
        return out

    def _by_ranks(self, texts: Sequence[str], tokenizer: Tokenizer) -> list[tuple[np.ndarray, np.ndarray]]:
        if not all(isinstance(text, str) for text in texts):
            raise _unreadable(texts, TypeError("not a text"))
        try:
            found = [self._quick.encode(text) for text in texts]
            left = [i for i, ids in enumerate(found) if ids is None]
            for i, encoding in zip(
                left, tokenizer.encode_batch_fast([texts[i] for i in left], add_special_tokens=False)
            ):
                found[i] = np.array(encoding.ids, dtype=np.int32)
        except (TypeError, UnicodeEncodeError) as error:
            raise _unreadable(texts, error) from error
        for ids in found:
            if self._control[ids].any():
                raise control_in_text(ids[self._control[ids]], tokenizer)
        return [(ids, self._begins[ids]) for ids in found]


def cuts_of_offsets(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Bool (n,): True at i where tokens before i and from i on share no character; ``starts``, ``ends`` int (n,)."""
    cuts = np.ones(len(starts), dtype=bool)
    cuts[1:] = starts[1:] >= np.maximum.accumulate(ends)[:-1]
    return cuts


def control_in_text(ids: np.ndarray, tokenizer: Tokenizer) -> DataError:
    """The error for a text whose tokens hold the control tokens ``ids``."""
    names = ", ".join(repr(tokenizer.id_to_token(int(i))) for i in np.unique(ids))
    return DataError(f"the text contains {names}, which this tokenizer cannot write as ordinary tokens")


def byte_alphabet() -> dict[str, int]:
    """The character with which a byte-level vocabulary writes each byte → that byte (GPT-2's ``bytes_to_unicode``).

    Printable Latin-1 stands for itself, the other 68 bytes are written as U+0100 and on, in order.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _tokenizer(text: str, special_strings_are_text: bool) -> Tokenizer:
    tokenizer = Tokenizer.from_str(text)
    tokenizer.encode_special_tokens = special_strings_are_text
    tokenizer.no_truncation()  # a tokenizer.json may hold a length that would silently shorten texts
    tokenizer.no_padding()
    return tokenizer


def _begins_character(tokenizer: Tokenizer, vocabulary: dict[str, int], size: int) -> np.ndarray | None:
    """Bool (size,): whether the token's first byte begins a character; None where a token alone cannot tell."""
    decoder = _types(tokenizer.decoder)
    begins = np.ones(size, bool)
    if "ByteLevel" in decoder:
        makes_bytes = "ByteLevel" in _types(tokenizer.pre_tokenizer) | _types(tokenizer.normalizer)
        # A prefix such as "##" hides the first byte.
        if not makes_bytes or getattr(tokenizer.model, "continuing_subword_prefix", None):
            return None
        alphabet = byte_alphabet()
        inner = frozenset(c for c, byte in alphabet.items() if 0x80 <= byte <= 0xBF)
        # The decoder takes an entry with any other character literally, as added tokens may be.
        inside = [i for token, i in vocabulary.items() if token[:1] in inner and all(c in alphabet for c in token)]
        begins[inside] = False
        return begins
    if "ByteFallback" in decoder:
        entries = ((_BYTE_ENTRY.fullmatch(token), i) for token, i in vocabulary.items() if token.startswith("<0x"))
        begins[[i for match, i in entries if match and 0x80 <= int(match[1], 16) <= 0xBF]] = False
        return begins
    return None


def _types(component) -> set[str]:
    """The names of all parts of a normaliser, pre-tokenizer or decoder."""
    found: set[str] = set()

    def walk(part) -> None:
        if isinstance(part, dict):
            found.add(part.get("type", ""))
            part = part.values()
        elif not isinstance(part, list):
            return
        for inner in part:
            walk(inner)

    if component is not None:
        walk(json.loads(component.__getstate__()))
    return found


def _unreadable(texts: Sequence[str], error: Exception) -> DataError:
    for text in texts:
        if not isinstance(text, str):
            return DataError(f"{text!r:.40} is a {type(text).__name__}, not a text")
    bad = next((t for t in texts if any("\ud800" <= c <= "\udfff" for c in t)), texts[0])
    return DataError(f"the text {bad[:20]!r} cannot be encoded: {error}; clean it first (rule surrogates)")
