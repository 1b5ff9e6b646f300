"""The checks of a tokenizer, each on one that passes and on one that does not."""

import unicodedata

import pytest
from tokenizer_zoo import EOS, TEXTS, ZOO, bert_like, byte_level, gpt2_like, unigram, with_special
from tokenizers import AddedToken, models, processors

from workbench.data.cleaning import CleaningPolicy
from workbench.data.encoding import Encoder
from workbench.data.tokenizer_checks import IMPOSSIBLE_BYTES, _byte_characters, tokenizer_checks
from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import begin_id, load_tokenizer, spec_of
from workbench.errors import SettingError

NAMES = [
    "end of text",
    "padding",
    "begin of text",
    "id 0",
    "vocabulary",
    "same tokens each time",
    "cleaning",
    "control strings",
    "byte coverage",
]


def checked(tokenizer, vocab_size=None):
    checks = tokenizer_checks(tokenizer, vocab_size)
    assert all("\n" not in c.note and c.note for c in checks)
    return {c.name: c for c in checks}


def test_one_trained_here_passes_all():
    checks = checked(train_tokenizer(TEXTS, 400), 400)
    assert list(checks) == NAMES and all(c.ok for c in checks.values())
    assert "'<eos>', id 2" in checks["end of text"].note and "'<pad>', id 3" in checks["padding"].note
    assert "special token '<unk>'" in checks["id 0"].note


def test_no_end_of_text_is_told_and_not_raised():
    checks = checked(gpt2_like())
    assert not checks["end of text"].ok and "eos_token" in checks["end of text"].note
    assert list(checks) == NAMES[:7]


def test_padding_that_is_missing_or_the_end_of_text_is_fine():
    for tokenizer, told in (
        (gpt2_like(eos_token=EOS), "there is none"),
        (gpt2_like(eos_token=EOS, pad_token=EOS), "the same as end of text"),
    ):
        check = checked(tokenizer)["padding"]
        assert check.ok and told in check.note and "keeps its loss" in check.note


def test_a_begin_that_others_would_add_too_is_added_once():
    backend = byte_level()
    backend.add_special_tokens(["<s>", EOS])
    begin = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    tokenizer = with_special(backend, bos_token="<s>", eos_token=EOS)
    note = checked(tokenizer)["begin of text"].note
    assert "the post-processor would add it too" in note and "once" in note
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    assert "the post-processor and the chat template would add it too" in checked(tokenizer)["begin of text"].note
    # What is encoded holds none, whatever the post-processor wants, so that one in front is the only one.
    assert tokenizer("a")["input_ids"][0] == begin
    ((ids, _),) = Encoder(spec_of(tokenizer)).encode(["a"])
    assert begin not in ids and begin_id(tokenizer) == begin
    silent = gpt2_like(eos_token=EOS, bos_token="<s>")
    silent.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    assert "would add" not in checked(silent)["begin of text"].note
    assert "there is none" in checked(gpt2_like(eos_token=EOS))["begin of text"].note


def test_id_0_as_a_word_is_named():
    check = checked(gpt2_like(eos_token=EOS))["id 0"]
    assert check.ok and "'!'" in check.note and "never treated as padding" in check.note


def test_a_model_with_too_few_rows():
    tokenizer = gpt2_like(eos_token=EOS)  # 300 entries and one added token
    short = checked(tokenizer, 300)["vocabulary"]
    assert not short.ok and "vocab_size=300" in short.note and "301" in short.note
    assert "added tokens beyond its 300 entries: 1" in short.note
    assert checked(tokenizer, 301)["vocabulary"].ok
    assert "at least 301 rows" in checked(tokenizer)["vocabulary"].note


def test_a_model_that_draws_at_random():
    for dropout in (None, 0.1):
        backend = byte_level()
        backend.model = models.BPE(backend.get_vocab(), [], **({"dropout": dropout} if dropout else {}))
        check = checked(with_special(backend, eos_token=EOS))["same tokens each time"]
        assert check.ok == (dropout is None)


def test_control_strings_in_text():
    tokenizer = gpt2_like(eos_token=EOS, bos_token="<s>")
    tokenizer.add_tokens([AddedToken("<｜User｜>", special=False)])
    check = checked(tokenizer)["control strings"]
    assert check.ok and "each of 3" in check.note
    held = checked(unigram())["control strings"]
    assert not held.ok and "'</s>'" in held.note


@pytest.mark.parametrize("name", ["gpt2", "roberta", "nfc", "nfd", "nfkc", "llama2", "unigram bytes"])
def test_bytes_that_come_back(name):
    assert checked(ZOO[name])["byte coverage"].ok


def test_bytes_that_do_not():
    bert = checked(bert_like())["byte coverage"]
    assert not bert.ok and "unknown" in bert.note
    assert not checked(ZOO["strip accents"])["byte coverage"].ok
    lines = checked(ZOO["drops line ends"])["byte coverage"]
    assert not lines.ok and lines.note.startswith("1 of") and r"'\n'" in lines.note
    backend = byte_level()
    vocab = backend.get_vocab()
    del vocab["ł"]  # the byte 0xA0, which no common text needs
    backend.model = models.BPE(vocab, [])
    assert not checked(with_special(backend, eos_token=EOS))["byte coverage"].ok


def test_the_probes_hold_every_byte_that_utf8_has():
    probes = _byte_characters()
    assert set(probes) | IMPOSSIBLE_BYTES == set(range(256)) and not set(probes) & IMPOSSIBLE_BYTES
    assert all(byte in character.encode() and len(character) == 1 for byte, character in probes.items())
    assert sum(unicodedata.is_normalized("NFKC", c) for c in probes.values()) > 235
    for byte in IMPOSSIBLE_BYTES:
        with pytest.raises(UnicodeDecodeError):
            bytes([byte]).decode()


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(SettingError, match="not a fast one"):
        tokenizer_checks(object())


def test_a_policy_other_than_that_of_the_training_text_is_told(samples):
    tokenizer = load_tokenizer(str(samples / "tokenizer"))
    same = {c.name: c for c in tokenizer_checks(tokenizer, policy=CleaningPolicy())}["cleaning"]
    assert same.ok and "as the data is" in same.note
    other = {c.name: c for c in tokenizer_checks(tokenizer, policy=CleaningPolicy(unicode_form="NFKC"))}["cleaning"]
    assert not other.ok and "unicode_form='NFC', now 'NFKC'" in other.note
    unknown = {c.name: c for c in tokenizer_checks(ZOO["gpt2"], policy=CleaningPolicy())}["cleaning"]
    assert unknown.ok and "does not say" in unknown.note
