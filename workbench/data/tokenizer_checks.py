"""What to know about a tokenizer before weeks of training rest on it: eight checks, each in a sentence.

    for check in tokenizer_checks(tokenizer, vocab_size=model.vocab_size):
        print("ok " if check.ok else "NO ", check.name, check.note)

A check that is not ok is a loss of text or a crash to come. Oddities that this workbench deals with
(no padding token, id 0 as a word) are ok, and their note says how.

Takes about four seconds for 150,000 entries. Does not look at a corpus; ``audit`` does.
"""

import sys
import unicodedata
from dataclasses import asdict, dataclass
from functools import lru_cache

from transformers import PreTrainedTokenizerFast

from workbench.data.cleaning import CleaningPolicy
from workbench.data.encoding import Encoder
from workbench.data.tokenizing import check_tokenizer, control_ids, decode, rows_needed, spec_of
from workbench.errors import DataError

RARE = ("🙂", "👨‍👩‍👧", "🇨🇳", "龘", "㐂", "𠮷", "𰻝")  # emoji, a family, a flag; Han of the blocks B and G too
IMPOSSIBLE_BYTES = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])  # RFC 3629: in no UTF-8 text


@dataclass(frozen=True)
class Check:
    """``ok`` is False where something has to be changed; ``note`` is one line."""

    name: str
    ok: bool
    note: str


def tokenizer_checks(
    tokenizer: PreTrainedTokenizerFast, vocab_size: int | None = None, policy: CleaningPolicy | None = None
) -> list[Check]:
    """The checks, in a fixed order. ``vocab_size``: rows of the model's embedding, where there is a model;
    ``policy``: what the data will be cleaned with.

    Raises SettingError for a tokenizer that is not a fast one. Without an end of text, the checks
    that need to encode are left out.
    """
    if not getattr(tokenizer, "is_fast", False):
        check_tokenizer(tokenizer)
    checks = [_end(tokenizer), _padding(tokenizer), _begin(tokenizer), _id_0(tokenizer)]
    checks += [_vocabulary(tokenizer, vocab_size), _same_each_time(tokenizer), _cleaning(tokenizer, policy)]
    if tokenizer.eos_token_id is not None:
        encoder = Encoder(spec_of(tokenizer))
        checks += [_control_strings(tokenizer, encoder), _bytes(tokenizer, encoder)]
    return checks


def _end(tokenizer: PreTrainedTokenizerFast) -> Check:
    if tokenizer.eos_token_id is None:
        return Check("end of text", False, 'there is none; add "eos_token" to tokenizer_config.json')
    return Check("end of text", True, f"{tokenizer.eos_token!r}, id {tokenizer.eos_token_id}")


def _padding(tokenizer: PreTrainedTokenizerFast) -> Check:
    never = "labels never come from the padding id, so the end of each text keeps its loss"
    if tokenizer.pad_token_id is None:
        return Check("padding", True, f"there is none, end of text fills up; {never}")
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        return Check("padding", True, f"the same as end of text, {tokenizer.pad_token!r}; {never}")
    return Check("padding", True, f"{tokenizer.pad_token!r}, id {tokenizer.pad_token_id}")


def _begin(tokenizer: PreTrainedTokenizerFast) -> Check:
    begin, name = tokenizer.bos_token_id, tokenizer.bos_token
    if begin is None:
        return Check("begin of text", True, "there is none; texts begin after an end of text, as GPT-2's do")
    backend = tokenizer.backend_tokenizer
    by_itself = begin in backend.encode("a").ids and begin not in backend.encode("a", add_special_tokens=False).ids
    template = tokenizer.chat_template
    by_template = False
    if isinstance(template, str):
        turns = [{"role": "user", "content": "a"}]
        by_template = tokenizer.apply_chat_template(turns, tokenize=False).startswith(name)
    who = [w for w, does in (("the post-processor", by_itself), ("the chat template", by_template)) if does]
    twice = f"{' and '.join(who)} would add it too: " if who else ""
    return Check(
        "begin of text", True, f"{name!r}, id {begin}; {twice}it is added once, by us, never by the post-processor"
    )


def _id_0(tokenizer: PreTrainedTokenizerFast) -> Check:
    token = tokenizer.convert_ids_to_tokens(0)
    if token is None:
        return Check("id 0", True, "no token has it")
    if 0 in {*control_ids(tokenizer), tokenizer.unk_token_id}:
        return Check("id 0", True, f"the special token {token!r}")
    return Check("id 0", True, f"an ordinary token, {token!r}; it is never treated as padding")


def _vocabulary(tokenizer: PreTrainedTokenizerFast, vocab_size: int | None) -> Check:
    needed, own = rows_needed(tokenizer), tokenizer.vocab_size
    beyond = sum(i >= own for i in tokenizer.get_vocab().values())
    ids = f"the largest id is {needed - 1}" + (f" (added tokens beyond its {own} entries: {beyond})" if beyond else "")
    if vocab_size is None:
        return Check("vocabulary", True, f"{ids}: a model needs at least {needed} rows")
    if vocab_size < needed:
        return Check("vocabulary", False, f"vocab_size={vocab_size} is too small, {ids}: at least {needed} rows")
    return Check("vocabulary", True, f"{ids}, the model has {vocab_size} rows, {vocab_size - needed} more than needed")


def _same_each_time(tokenizer: PreTrainedTokenizerFast) -> Check:
    model = tokenizer.backend_tokenizer.model
    dropout, samples = getattr(model, "dropout", None), getattr(model, "nbest_size", None)
    if dropout or samples:
        what = f"dropout={dropout}" if dropout else f"nbest_size={samples}"
        return Check("same tokens each time", False, f"its model draws at random ({what}); set this to null")
    return Check("same tokens each time", True, "its model draws nothing at random")


def _cleaning(tokenizer: PreTrainedTokenizerFast, policy: CleaningPolicy | None) -> Check:
    """Whether the text it was trained on was cleaned as the data will be: else it never saw some of the text."""
    recorded = tokenizer.init_kwargs.get("cleaning")
    if recorded is None:
        return Check("cleaning", True, "its folder does not say how its training text was cleaned")
    if policy is None:
        return Check("cleaning", True, f"its training text was cleaned with unicode_form={recorded['unicode_form']!r}")
    other = [f"{k}={recorded.get(k)!r}, now {v!r}" for k, v in asdict(policy).items() if recorded.get(k) != v]
    if other:
        return Check("cleaning", False, f"its training text was cleaned otherwise: {'; '.join(other)}")
    return Check("cleaning", True, "its training text was cleaned as the data is")


def _control_strings(tokenizer: PreTrainedTokenizerFast, encoder: Encoder) -> Check:
    bad = []
    for i in encoder.spec.control:
        token = tokenizer.convert_ids_to_tokens(i)
        try:
            encoder.encode([token, f"a{token}b", f" {token}\n"])
        except DataError:
            bad.append(token)
    if bad:
        names = ", ".join(map(repr, bad[:3])) + (" …" if len(bad) > 3 else "")
        return Check(
            "control strings",
            False,
            f"in text {names} would become control tokens ({len(bad)} in all): such text is refused",
        )
    return Check("control strings", True, f"in text they stay text, each of {len(encoder.spec.control)}")


def _bytes(tokenizer: PreTrainedTokenizerFast, encoder: Encoder) -> Check:
    """Each character between two letters, where no tokenizer strips it.

    A blank put before the text, or another canonical form of the same text, is no loss.
    """
    texts = [f"a{c}a" for c in (*_byte_characters().values(), *RARE)]
    lost, unknown = [], 0
    for text, (ids, _) in zip(texts, encoder.encode(texts)):
        unknown += encoder.spec.unknown is not None and encoder.spec.unknown in ids
        back = decode(tokenizer, ids).removeprefix(" ")
        if unicodedata.normalize("NFC", back) != unicodedata.normalize("NFC", text):
            lost.append(text[1:-1])
    if lost:
        some = ", ".join(map(repr, lost[:5])) + (" …" if len(lost) > 5 else "")
        return Check(
            "byte coverage",
            False,
            f"{len(lost)} of {len(texts)} probes do not come back ({some}), {unknown} of them hold an unknown token",
        )
    count = 256 - len(IMPOSSIBLE_BYTES)
    return Check(
        "byte coverage", True, f"all {count} bytes of UTF-8 come back, emoji and rare Han too, none as an unknown token"
    )


@lru_cache(maxsize=1)
def _byte_characters() -> dict[int, str]:
    """For each byte that UTF-8 has, a character that holds it; one that no normal form changes where there is one."""

    def plain(c: str) -> bool:
        stable = unicodedata.is_normalized("NFKC", c) and unicodedata.is_normalized("NFKD", c)
        return stable and unicodedata.category(c) not in ("Mn", "Mc", "Me", "Cn")

    codes = [*range(0x3000), *range(0x3000, sys.maxunicode + 1, 0x40)]
    characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    found: dict[int, str] = {}
    for character in (*filter(plain, characters), *characters):
        for byte in character.encode():
            found.setdefault(byte, character)
    return found
