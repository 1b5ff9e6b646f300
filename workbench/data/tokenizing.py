"""Any fast Hugging Face tokenizer as this workbench needs it: refused or accepted, with offsets.

``load_tokenizer`` takes a local folder (or what AutoTokenizer has cached) and refuses what a
language model cannot be pretrained with; ``encode`` gives ids with character offsets and never
turns text such as ``<eos>`` into a control token; ``cut_points`` says where a window may end
without splitting a character; ``spec_of`` is what a worker process needs to encode the same way
(``workbench.data.encoding``), and many times quicker than ``encode`` text by text.

A checked tokenizer is changed in three ways, each of which would otherwise lose text silently: it
reads the strings of control tokens as text, it does not shorten, and it does not pad.

Text is encoded as it is: Unicode form and width belong to ``workbench.data.cleaning``. Does not do:
templates, batching. Whether a tokenizer suits a corpus: ``tokenizer_checks`` and ``audit``.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable
from weakref import WeakKeyDictionary

import numpy as np
from tokenizers import AddedToken, Encoding
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from workbench.config import fingerprint
from workbench.data.encoding import EncoderSpec, control_in_text, cuts_of_offsets
from workbench.errors import DataError, SettingError

_NAMED_LIKE_CONTROL = re.compile(r"<\|.+\|>|<?｜.+｜>?", re.S)  # <|user|>, <｜User｜>
_BRACKETED = re.compile(r"<.+>|\[.+\]", re.S)
_control: WeakKeyDictionary[PreTrainedTokenizerFast, tuple[tuple, tuple[int, ...]]] = WeakKeyDictionary()


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
    """``tokenizer`` itself, made to read the strings of control tokens as text, not to shorten and not to pad.

    Raises SettingError as load_tokenizer.
    """
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise SettingError(f"tokenizer={name!r} is a {kind}, not a fast one; it needs a tokenizer.json")
    if tokenizer.eos_token_id is None:
        raise SettingError(
            f"tokenizer={name!r} has no end-of-text token, documents could not be told apart; "
            'add "eos_token" to its tokenizer_config.json or choose another tokenizer'
        )
    _settled(tokenizer)
    return tokenizer


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
    """Raise SettingError where a model of ``vocab_size`` rows lacks one for an id of ``tokenizer``."""
    needed = rows_needed(tokenizer)
    if vocab_size < needed:
        raise SettingError(
            f"vocab_size={vocab_size} is not allowed: at least {needed}, the largest id of the tokenizer is "
            f"{needed - 1} ({tokenizer.convert_ids_to_tokens(needed - 1)!r})"
        )


def rows_needed(tokenizer: PreTrainedTokenizerFast) -> int:
    """The largest id + 1, added tokens included; ids may have gaps, so this can be more than ``len(tokenizer)``."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def control_ids(tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """The ids, sorted, that text must never become; the unknown token is not one.

    These are the named special tokens, all added tokens marked as special, and added tokens that
    are not marked but serve as such: in the form ``<|user|>`` or ``<｜User｜>``, or in brackets
    and used by the chat template (``<think>``).
    """
    template = str(tokenizer.chat_template or "")
    ids = set(tokenizer.all_special_ids)
    for i, token in tokenizer.added_tokens_decoder.items():
        in_template = _BRACKETED.fullmatch(token.content) and token.content in template
        if token.special or in_template or _NAMED_LIKE_CONTROL.fullmatch(token.content):
            ids.add(i)
    return tuple(sorted(ids - {tokenizer.unk_token_id}))


def spec_of(tokenizer: PreTrainedTokenizerFast) -> EncoderSpec:
    """What ``encoding.Encoder`` needs to give the ids that ``encode`` gives. Raises SettingError as check_tokenizer,
    and where a part of the tokenizer is written in Python and cannot be sent to another process."""
    control = _settled(check_tokenizer(tokenizer))
    try:
        json = tokenizer.backend_tokenizer.to_str()
    except Exception as error:  # tokenizers raises a bare Exception
        raise SettingError(f"tokenizer: it cannot be written as a tokenizer.json ({error})") from error
    unknown = None if tokenizer.unk_token_id is None else int(tokenizer.unk_token_id)
    return EncoderSpec(json, begin_id(tokenizer), end_id(tokenizer), unknown, control)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """Sixteen hex digits that name everything which decides ids: vocabulary, rules, special and padding ids."""
    spec = spec_of(tokenizer)
    return fingerprint(spec, padding_id(tokenizer))


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> Encoded:
    """Tokens of ``text`` with character offsets, no special tokens added.

    A control token's string inside the text becomes ordinary tokens. Raises DataError for the
    rare tokenizer whose model itself holds that string (Unigram vocabularies do), and for a text
    with lone surrogates, which no UTF-8 file can hold.
    """
    return encoded_of(encoding_of(tokenizer, text))


def encoding_of(tokenizer: PreTrainedTokenizerFast, text: str) -> Encoding:
    """What ``encode`` reads, with the pre-token of each token in ``word_ids``. Raises DataError as encode."""
    control = _settled(tokenizer)
    try:
        encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"the text cannot be encoded: {error}; clean it first (rule surrogates)") from error
    found = set(control).intersection(encoding.ids)
    if found:
        raise control_in_text(np.array(sorted(found)), tokenizer.backend_tokenizer)
    return encoding


def encoded_of(encoding: Encoding) -> Encoded:
    """Ids and offsets of an encoding as arrays."""
    offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    starts, ends = np.ascontiguousarray(offsets[:, 0]), np.ascontiguousarray(offsets[:, 1])
    return Encoded(np.array(encoding.ids, dtype=np.int32), starts, ends)


def decode(tokenizer: PreTrainedTokenizerFast, ids: Iterable[int]) -> str:
    """The text of ``ids``, special tokens spelled out and nothing tidied up."""
    return tokenizer.decode([int(i) for i in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)


def cut_points(encoded: Encoded) -> np.ndarray:
    """Bool (n + 1,): True at i where tokens before i and from i on share no character; both ends are True."""
    return np.append(cuts_of_offsets(encoded.starts, encoded.ends), True)


def end_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The end-of-text id. Raises SettingError where there is none."""
    return int(check_tokenizer(tokenizer).eos_token_id)


def begin_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id a sequence begins with: the begin-of-text id, else end-of-text, as GPT-2 does."""
    return end_id(tokenizer) if tokenizer.bos_token_id is None else int(tokenizer.bos_token_id)


def padding_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id that fills up a batch: the padding id, else end-of-text. It says nothing about labels."""
    return end_id(tokenizer) if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)


def _settled(tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """The control ids, after the three changes; quick when nothing was changed since.

    A call of the tokenizer with ``truncation`` or ``padding`` leaves these switched on in its
    backend, so they are switched off each time.
    """
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    state = (id(backend), len(tokenizer), tuple(tokenizer.all_special_ids), tokenizer.unk_token_id)
    state += (str(tokenizer.chat_template or ""),)
    known = _control.get(tokenizer)
    if known and known[0] == state:
        return known[1]
    control = control_ids(tokenizer)
    # The backend passes over the strings of those tokens only that it knows as special.
    for i, token in tokenizer.added_tokens_decoder.items():
        if i in control and not token.special:
            flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
            backend.add_special_tokens([AddedToken(token.content, **flags)])
    _control[tokenizer] = (state, control)
    return control
