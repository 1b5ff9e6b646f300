"""The quick engine against ``tokenizers``: the same ids, or none at all."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_zoo import ZOO
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from workbench.data.encoding import Encoder, byte_alphabet
from workbench.data.ranks import RankEncoder
from workbench.data.tokenizing import load_tokenizer, spec_of

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PIECES = st.sampled_from(
    [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "\u200b", "a", "Ab", "café", "12", "٣", "½", "然", "字", "，",
     "$AAPL", "'s", "'S", "ſ", "K", "İ", "😀", "👩\u200d🔬", "e\u0301", "שלום", "مرحبا", "हिन्दी", "한국", "\u115f", "\x00", "<eos>", "<|im_end|>", "\x00\x01 no text holds this \x01\x00"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=30).map("".join))


def with_pattern(tokenizer, pattern):
    """The tokenizer with another pattern in front; its merges stay."""
    made = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.encode_special_tokens = True
    return made


@pytest.fixture(scope="module")
def bundled(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture(scope="module")
def engines(bundled):
    """(tokenizers, quick) of every tokenizer here that can be run by ranks."""
    made = {"bundled": bundled.backend_tokenizer, "qwen pattern": with_pattern(bundled, QWEN)}
    made |= {name: ZOO[name].backend_tokenizer for name in ("gpt2", "nfc", "nfkc")}
    found = {}
    for name, tokenizer in made.items():
        tokenizer.encode_special_tokens = True
        found[name] = (tokenizer, RankEncoder.of(tokenizer, byte_alphabet()))
        assert found[name][1] is not None, name
    return found


@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
def test_the_ids_are_the_same(engines, text):
    for name, (tokenizer, quick) in engines.items():
        ids = quick.encode(text)
        if ids is not None:
            assert ids.tolist() == tokenizer.encode(text, add_special_tokens=False).ids, name


def test_the_samples_are_encoded_quickly_and_alike(bundled, samples):
    quick, slow = Encoder(spec_of(bundled)), Encoder(spec_of(bundled), quick=False)
    engine = RankEncoder.of(bundled.backend_tokenizer, byte_alphabet())
    texts = [json.loads(line)["text"] for line in (samples / "corpus" / "people.jsonl").open(encoding="utf-8")]
    texts += [p.read_text(encoding="utf-8") for p in sorted((samples / "corpus").glob("*.txt"))]
    assert all(engine.encode(text) is not None for text in texts), "a plain text went the slow way"
    for (ids, cuts), (others, other_cuts) in zip(quick.encode(texts), slow.encode(texts), strict=True):
        assert np.array_equal(ids, others) and np.array_equal(cuts, other_cuts)


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "然" * 50_000, " " * 50_000 + "x", "!" * 50_000, "\n" * 50_000, "ab " * 50_000]
)
def test_texts_without_a_break_do_not_end_the_process(bundled, text):
    [(ids, _)] = Encoder(spec_of(bundled)).encode([text])
    assert ids.tolist() == bundled.backend_tokenizer.encode(text, add_special_tokens=False).ids


def changed(tokenizer, **model):
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts["model"].update(model)
    return Tokenizer.from_str(json.dumps(parts))


def test_what_is_not_provably_the_same_is_refused(bundled):
    parts = json.loads(bundled.backend_tokenizer.to_str())
    merges = parts["model"]["merges"]
    alphabet = byte_alphabet()
    swapped = [merges[1], merges[0], *merges[2:]]
    assert RankEncoder.of(changed(bundled, merges=swapped), alphabet) is None, "ranks that are not the merges' order"
    # A token that its own merges never reach: its last merge is gone.
    assert RankEncoder.of(changed(bundled, merges=merges[:-1]), alphabet) is None
    assert RankEncoder.of(changed(bundled, dropout=0.1), alphabet) is None
    for name in ("roberta", "bert", "unigram"):
        if name in ZOO:
            assert RankEncoder.of(ZOO[name].backend_tokenizer, alphabet) is None, name
    assert RankEncoder.of(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), alphabet) is None


def test_a_character_that_the_engines_cut_differently_is_left_to_tokenizers(bundled):
    class Other:
        """An engine with another idea of what a letter is."""

        def __init__(self, engine):
            self.engine = engine

        def encode_to_numpy(self, text, disallowed_special):
            return self.engine.encode_to_numpy(text.replace("Ω", "."), disallowed_special=disallowed_special)

    quick = RankEncoder.of(bundled.backend_tokenizer, byte_alphabet())
    quick._engine = Other(quick._engine)
    assert quick.encode("alpha Ω") is None and quick.encode("Ω again") is None
    assert (
        quick.encode("alpha and omega").tolist()
        == bundled.backend_tokenizer.encode("alpha and omega", add_special_tokens=False).ids
    )


def test_texts_that_a_normaliser_would_change_are_left_to_it(engines):
    for name in ("nfc", "nfkc"):
        assert engines[name][1].encode("cafe\u0301") is None
        assert engines[name][1].encode("cafe") is not None
