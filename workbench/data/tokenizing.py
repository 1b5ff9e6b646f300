"""Any fast Hugging Face tokenizer as this workbench needs it: checked, with offsets, audited.

``load_tokenizer`` takes a local folder (or what AutoTokenizer has cached) and refuses what a
language model cannot be pretrained with; ``encode`` gives ids with character offsets and never
turns text such as ``<eos>`` into a control token; ``cut_points`` says where a window may end
without splitting a character; ``train_tokenizer`` makes a small byte-level BPE.

Text is encoded as it is: Unicode form and width belong to ``workbench.data.cleaning``, and the
tokenizer trained here has no normaliser. Does not do: padding, truncation, templates, batching.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from workbench.errors import DataError, SettingError

UNKNOWN, BEGIN, END, PADDING = "<unk>", "<bos>", "<eos>", "<pad>"
SPECIAL_TOKENS = (UNKNOWN, BEGIN, END, PADDING)  # ids 0 to 3: id 0 is never padding

TICKER = re.compile(r"\$[A-Z]{1,5}(?![A-Za-z])")
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")


@dataclass(frozen=True, eq=False)
class Encoded:
    """Tokens of one text, n of them: ``ids``, and the characters [starts, ends) each stands for, int32 (n,).

    Tokens that share a character (byte-level pieces of an emoji, say) have overlapping offsets.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class TokenizerAudit:
    """What a tokenizer does to some texts. Shares are 0 to 1, and nan where there is nothing to count."""

    vocab_size: int
    texts: int
    characters: int
    tokens: int
    unknown_tokens: int
    tokens_per_character: float
    tokens_per_cjk_character: float  # tokens that end in a CJK ideograph, per ideograph
    tokens_per_latin_character: float  # tokens that end in a Latin letter, per letter
    round_trip_failures: int  # texts that do not decode to themselves
    round_trip_examples: tuple[str, ...]  # the first failures, 80 characters around the first difference
    tickers: int  # $QNTR-like spans
    tickers_whole_share: float  # of these: one pre-token, nothing else in it but a space before
    tickers_one_token_share: float

    @property
    def unknown_rate(self) -> float:
        """Unknown tokens per token."""
        return self.unknown_tokens / self.tokens if self.tokens else float("nan")


def load_tokenizer(name_or_folder: str | Path) -> PreTrainedTokenizerFast:
    """The fast tokenizer in a local folder, or one that AutoTokenizer finds offline by name.

    Raises SettingError where it is missing, is not a fast tokenizer, or has no end-of-text token.
    A missing padding token is allowed, and so is one that equals end-of-text: labels are never
    made from the padding id.
    """
    name, path = str(name_or_folder), Path(name_or_folder).expanduser()
    looks_local = path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if path.is_dir() and not (path / "tokenizer_config.json").is_file() and not (path / "tokenizer.json").is_file():
        raise SettingError(f"tokenizer={name!r}: the folder holds no tokenizer.json and no tokenizer_config.json")
    if not path.exists() and looks_local:
        raise SettingError(f"tokenizer={name!r}: no such folder; give one that holds a tokenizer.json")
    if path.is_file():
        raise SettingError(f"tokenizer={name!r} is a file; give the folder that holds it, {str(path.parent)!r}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path) if path.is_dir() else name, local_files_only=True)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for a bad folder
        reason = " ".join(str(error).split())[:160]
        hint = "no such folder, and not in the local Hugging Face cache"
        hint = "the folder cannot be read" if path.is_dir() else hint
        raise SettingError(f"tokenizer={name!r}: {hint} ({type(error).__name__}: {reason})") from error
    return check_tokenizer(tokenizer, name)


def check_tokenizer(tokenizer: PreTrainedTokenizerFast, name: str = "tokenizer") -> PreTrainedTokenizerFast:
    """``tokenizer`` itself, made to read special-token strings as text. Raises SettingError as load_tokenizer."""
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise SettingError(f"tokenizer={name!r} is a {kind}, not a fast one; it needs a tokenizer.json")
    if tokenizer.eos_token_id is None:
        raise SettingError(
            f"tokenizer={name!r} has no end-of-text token, documents could not be told apart; "
            'add "eos_token" to its tokenizer_config.json or choose another tokenizer'
        )
    tokenizer.backend_tokenizer.encode_special_tokens = True
    return tokenizer


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, han_run: int = 1) -> PreTrainedTokenizerFast:
    """A byte-level BPE with ``vocab_size`` entries, special tokens included; the same texts give the same bytes.

    Words, single digits, runs of punctuation, line ends and tickers (``$QNTR``) are pre-tokens, as
    in GPT-4's pattern. Chinese is written without spaces, so a whole clause would be one
    pre-token and a name would be cut differently in every sentence; a pre-token therefore holds
    at most ``han_run`` ideographs. Raises SettingError for a ``vocab_size`` below 260 (256 bytes
    and 4 special tokens) and DataError where there is no text.
    """
    if vocab_size < 256 + len(SPECIAL_TOKENS):
        raise SettingError(f"vocab_size={vocab_size} is not allowed: at least {256 + len(SPECIAL_TOKENS)}")
    if han_run < 1:
        raise SettingError(f"han_run={han_run} is not allowed: at least 1 ideograph a pre-token")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_split_pattern(han_run)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    seen = 0

    def counted() -> Iterable[str]:
        nonlocal seen
        for text in texts:
            seen += len(text)
            yield text

    tokenizer.train_from_iterator(counted(), trainer)
    if not seen:
        raise DataError("no text to train a tokenizer on; the given documents are all empty")
    return check_tokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END, pad_token=PADDING
        )
    )


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> Encoded:
    """Tokens of ``text`` with character offsets, no special tokens added.

    A special token's string inside the text becomes ordinary tokens. Raises DataError for the
    rare tokenizer whose model itself holds that string (Unigram vocabularies do), and for a text
    with lone surrogates, which no UTF-8 file can hold.
    """
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    try:
        encoding = backend.encode(text, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"the text cannot be encoded: {error}; clean it first (rule surrogates)") from error
    ids = np.array(encoding.ids, dtype=np.int32)
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    found = control.intersection(encoding.ids)
    if found:
        names = ", ".join(repr(t) for t in tokenizer.convert_ids_to_tokens(sorted(found)))
        raise DataError(f"the text contains {names}, which this tokenizer cannot write as ordinary tokens")
    offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    return Encoded(ids, np.ascontiguousarray(offsets[:, 0]), np.ascontiguousarray(offsets[:, 1]))


def decode(tokenizer: PreTrainedTokenizerFast, ids: Iterable[int]) -> str:
    """The text of ``ids``, special tokens spelled out and nothing tidied up."""
    return tokenizer.decode([int(i) for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)


def cut_points(encoded: Encoded) -> np.ndarray:
    """Bool (n + 1,): True at i where tokens before i and from i on share no character; both ends are True."""
    cuts = np.ones(len(encoded) + 1, dtype=bool)
    if len(encoded) > 1:
        cuts[1:-1] = encoded.starts[1:] >= np.maximum.accumulate(encoded.ends)[:-1]
    return cuts


def end_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The end-of-text id. Raises SettingError where there is none."""
    return int(check_tokenizer(tokenizer).eos_token_id)


def begin_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id a sequence begins with: the begin-of-text id, else end-of-text, as GPT-2 does."""
    return end_id(tokenizer) if tokenizer.bos_token_id is None else int(tokenizer.bos_token_id)


def padding_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id that fills up a batch: the padding id, else end-of-text. It says nothing about labels."""
    return end_id(tokenizer) if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)


def audit_tokenizer(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], *, examples: int = 5) -> TokenizerAudit:
    """Count what ``tokenizer`` does to ``texts``; encodes and decodes each once. Raises DataError as encode."""
    totals = dict.fromkeys(("texts", "characters", "tokens", "unknown", "failures", "tickers", "whole", "single"), 0)
    letters, endings = {"cjk": 0, "latin": 0}, {"cjk": 0, "latin": 0}
    shown: list[str] = []
    for text in texts:
        encoded = encode(tokenizer, text)
        words = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).word_ids
        totals["texts"] += 1
        totals["characters"] += len(text)
        totals["tokens"] += len(encoded)
        if tokenizer.unk_token_id is not None:
            totals["unknown"] += int((encoded.ids == tokenizer.unk_token_id).sum())
        ends_in = np.bincount(encoded.ends - 1, minlength=len(text)) if len(encoded) and text else np.zeros(0, int)
        for script, pattern in (("cjk", _CJK), ("latin", _LATIN)):
            places = [m.start() for m in pattern.finditer(text)]
            letters[script] += len(places)
            endings[script] += int(ends_in[places].sum()) if len(ends_in) and places else 0
        back = decode(tokenizer, encoded.ids)
        if back != text:
            totals["failures"] += 1
            if len(shown) < examples:
                shown.append(_first_difference(text, back))
        for ticker in TICKER.finditer(text):
            whole, single = _ticker_kept(encoded, words, text, ticker.start(), ticker.end())
            totals["tickers"] += 1
            totals["whole"] += whole
            totals["single"] += single
    return TokenizerAudit(
        vocab_size=len(tokenizer),
        texts=totals["texts"],
        characters=totals["characters"],
        tokens=totals["tokens"],
        unknown_tokens=totals["unknown"],
        tokens_per_character=_share(totals["tokens"], totals["characters"]),
        tokens_per_cjk_character=_share(endings["cjk"], letters["cjk"]),
        tokens_per_latin_character=_share(endings["latin"], letters["latin"]),
        round_trip_failures=totals["failures"],
        round_trip_examples=tuple(shown),
        tickers=totals["tickers"],
        tickers_whole_share=_share(totals["whole"], totals["tickers"]),
        tickers_one_token_share=_share(totals["single"], totals["tickers"]),
    )


def _split_pattern(han_run: int) -> str:
    """The pre-tokens, tried in this order at each place; every character belongs to exactly one."""
    return "|".join(
        (
            r"\$[A-Z]{1,5}(?![A-Za-z])",  # a ticker, without a space: one form after "代码" and after "the ticker "
            rf"\p{{Han}}{{1,{han_run}}}",
            r"'(?:[sdmtSDMT]|ll|ve|re|LL|VE|RE)(?!\p{L})",  # English clitics
            r" ?(?:(?!\p{Han})[\p{L}\p{M}])+",  # a word
            r"\p{N}",  # digits one by one
            r" ?(?:(?!\$[A-Z]{1,5}(?![A-Za-z]))[^\s\p{L}\p{M}\p{N}])+",  # punctuation, which stops before a ticker
            r"\r?\n",
            r"\s+(?!\S)|\s+",
            r"[\s\S]",  # nothing is left, but no character may ever be lost
        )
    )


def _ticker_kept(encoded: Encoded, words: list[int | None], text: str, start: int, end: int) -> tuple[bool, bool]:
    """(whole, one token) for the ticker at text[start:end]."""
    inside = np.flatnonzero((encoded.ends > start) & (encoded.starts < end))
    if not len(inside):
        return False, False
    around = [i for i, w in enumerate(words) if w is not None and w in {words[j] for j in inside}]
    first, last = int(encoded.starts[around].min()), int(encoded.ends[around].max())
    whole = len({words[j] for j in inside}) == 1 and text[first:start].strip() == "" and last == end
    return whole, whole and len(around) == 1


def _first_difference(text: str, back: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(text, back)) if a != b), min(len(text), len(back)))
    return text[max(0, at - 40) : at + 40]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
