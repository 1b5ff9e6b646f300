"""Encoding in batches: cuts against what decoding shows, ids against the plain route, control strings, refusals."""

import json
import pickle
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_zoo import ANY_TEXT, EOS, ZOO, bert_like, byte_level, gpt2_like, unigram, with_special
from tokenizers import models, pre_tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from workbench.data.encoding import Encoder, EncoderSpec, byte_alphabet, cuts_of_offsets
from workbench.data.tokenizing import cut_points, decode, encode, load_tokenizer, spec_of
from workbench.errors import DataError

ENCODERS = {name: Encoder(spec_of(tokenizer)) for name, tokenizer in ZOO.items()}
BY_OFFSETS = {"unigram", "bert"}
HARD = "a\u0301\u200d然🙂👨‍👩‍👧 ㎡ｶﾞ한국 \u1112\u1161 مرحبا अनुच्छेद 𠮷龘 🇨🇳 ©é é 🙂🙂\r\n\t"


def replaced(tokenizer, ids):
    return decode(tokenizer, ids).count("\ufffd")


def splits_nothing(tokenizer, ids):
    """Bool (n,): the halves on both sides of i hold no replacement character that the whole has not."""
    whole = replaced(tokenizer, ids)
    return np.array(
        [replaced(tokenizer, ids[:i]) + replaced(tokenizer, ids[i:]) <= whole for i in range(len(ids))], bool
    )


@pytest.mark.parametrize("name", ZOO)
@settings(deadline=None, max_examples=60)
@given(text=ANY_TEXT)
@example(text="")
@example(text=HARD)
def test_a_cut_is_where_both_sides_decode(name, text):
    tokenizer = ZOO[name]
    ((ids, cuts),) = ENCODERS[name].encode([text])
    assert ids.dtype == np.int32 and cuts.dtype == bool and len(ids) == len(cuts)
    assert ids.tolist() == encode(tokenizer, text).ids.tolist()
    good = splits_nothing(tokenizer, ids)
    if name in BY_OFFSETS or name == "added":  # these may forbid more than they must
        assert not (cuts & ~good).any()
    else:
        assert cuts.tolist() == good.tolist()
    if len(ids) and name != "added":
        assert cuts[0]


@pytest.mark.parametrize("name", [name for name in ZOO if name not in BY_OFFSETS | {"added"}])
@settings(deadline=None, max_examples=60)
@given(text=ANY_TEXT)
@example(text=HARD)
def test_the_table_allows_every_cut_that_offsets_allow(name, text):
    ((_, cuts),) = ENCODERS[name].encode([text])
    offsets = cut_points(encode(ZOO[name], text))[:-1]
    assert not (offsets & ~cuts).any()
    # Without a normaliser that makes several characters of one, they are the same.
    if name in ("gpt2", "roberta", "nfc", "drops line ends"):
        assert offsets.tolist() == cuts.tolist()


def test_which_way_is_taken():
    assert {name for name, encoder in ENCODERS.items() if not encoder.by_table} == BY_OFFSETS
    # Bytes on one side only, or a prefix before the first byte: the entry does not tell.
    no_decoder, no_pre = byte_level(), byte_level()
    no_decoder.decoder = None
    no_pre.pre_tokenizer = pre_tokenizers.Whitespace()
    for tokenizer in (no_decoder, no_pre):
        assert not Encoder(spec_of(with_special(tokenizer, eos_token=EOS))).by_table
    prefixed = byte_level()
    prefixed.model = models.BPE({"a": 0, "##a": 1}, [], continuing_subword_prefix="##")
    assert not Encoder(spec_of(with_special(prefixed, eos_token=EOS))).by_table


def test_offsets_are_wrong_where_a_decoder_takes_letters_for_bytes():
    # An added token "é" is written as such, but ByteLevel decodes it as the byte 0xE9, and "©" as 0xA9.
    tokenizer, text = ZOO["added"], "ัé©"
    encoded = encode(tokenizer, text)
    good = splits_nothing(tokenizer, encoded.ids)
    assert not good[-1] and cut_points(encoded)[-2]
    assert not ENCODERS["added"].encode([text])[0][1][-1]


def test_the_byte_alphabet_is_gpt2s():
    assert byte_alphabet() == {character: byte for byte, character in bytes_to_unicode().items()}
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(ANY_TEXT, max_size=8), control=st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_list_is_its_texts_one_by_one(texts, control):
    encoder = ENCODERS["gpt2"]
    together = encoder.encode(texts, control[: len(texts)])
    alone = [encoder.encode([text], [c])[0] for text, c in zip(texts, control)]
    assert len(together) == len(texts)
    for (ids, cuts), (more_ids, more_cuts) in zip(together, alone, strict=True):
        assert ids.tolist() == more_ids.tolist() and cuts.tolist() == more_cuts.tolist()


def test_an_edge_on_a_character_of_several_tokens():
    # A window of any length that ends where cuts allow never holds half of 然 or of an emoji.
    tokenizer = ZOO["gpt2"]
    text = "他说：然🙂然👨‍👩‍👧，end"
    ((ids, cuts),) = ENCODERS["gpt2"].encode([text])
    assert len(ids) > 3 * len("然🙂然") and not cuts.all()
    for window in range(1, len(ids)):
        end = max(i for i in range(window + 1) if i == 0 or cuts[i])
        assert "\ufffd" not in decode(tokenizer, ids[:end]) + decode(tokenizer, ids[end:])
        assert decode(tokenizer, ids[:end]) + decode(tokenizer, ids[end:]) == text


def test_control_strings_are_text_unless_they_are_scaffolding():
    tokenizer = gpt2_like(eos_token=EOS, bos_token="<|im_start|>")
    encoder = Encoder(spec_of(tokenizer))
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    text = f"<|im_start|>user\n{EOS}"
    (plain, _), (scaffold, cuts), (again, _) = encoder.encode([text] * 3, [False, True, False])
    assert not {start, end} & set(plain.tolist()) and decode(tokenizer, plain) == text
    assert plain.tolist() == again.tolist()
    assert (scaffold[0], scaffold[-1]) == (start, end) and cuts.all() and decode(tokenizer, scaffold) == text
    assert encoder.encode([text])[0][0].tolist() == plain.tolist()
    with pytest.raises(ValueError, match="2 texts, but 1"):
        encoder.encode([text, text], [True])


def test_a_spec_travels_to_a_process_that_knows_no_transformers():
    spec = spec_of(ZOO["gpt2"])
    assert pickle.loads(pickle.dumps(spec)) == spec and isinstance(spec, EncoderSpec)
    code = (
        "import pickle, sys\n"
        "from workbench.data.encoding import Encoder\n"
        "spec = pickle.load(sys.stdin.buffer)\n"
        "ids, cuts = Encoder(spec).encode(['然🙂<|endoftext|>'])[0]\n"
        "assert not {'transformers', 'mindspore', 'torch'} & set(sys.modules), 'too heavy'\n"
        "print(ids.tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, input=pickle.dumps(spec), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == encode(ZOO["gpt2"], "然🙂<|endoftext|>").ids.tolist()


def test_id_0_is_kept_wherever_it_stands():
    # "!" has id 0, as in GPT-2; nothing may take it for padding and delete it.
    tokenizer = gpt2_like(eos_token=EOS)
    text = "!a!!b!"
    ((ids, _),) = Encoder(spec_of(tokenizer)).encode([text])
    assert (ids == 0).sum() == 4 and decode(tokenizer, ids) == text


def test_a_length_or_padding_in_the_file_shortens_nothing():
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    spec = EncoderSpec(with_special(backend, eos_token=EOS).backend_tokenizer.to_str(), 300, 300, None, (300,))
    assert json.loads(spec.json)["truncation"] and json.loads(spec.json)["padding"]
    assert len(Encoder(spec).encode(["a b c d e f g h"])[0][0]) == 15


def test_a_model_that_holds_the_control_string_is_refused():
    encoder = Encoder(spec_of(unigram()))
    with pytest.raises(DataError, match="'</s>', which this tokenizer cannot write"):
        encoder.encode(["ones", "one</s>"])
    assert encoder.encode(["one</s>"], [True])[0][0][-1] == encoder.spec.end


@pytest.mark.parametrize(("bad", "place"), list(product(["broken \ud800 text", None, 7], [0, 2])))
def test_what_is_no_text_is_refused_in_one_line(bad, place):
    texts = ["fine", "too"]
    texts.insert(place, bad)
    with pytest.raises(DataError, match="surrogates|not a text") as error:
        ENCODERS["gpt2"].encode(texts)
    assert "\n" not in str(error.value)
    if isinstance(bad, str):
        assert "broken" in str(error.value)


def test_nothing_is_nothing():
    encoder = ENCODERS["gpt2"]
    assert encoder.encode([]) == []
    ((ids, cuts),) = encoder.encode([""])
    assert len(ids) == len(cuts) == 0 and ids.dtype == np.int32
    assert cuts_of_offsets(np.empty(0, int), np.empty(0, int)).tolist() == []


def test_the_bundled_tokenizer_and_samples(samples):
    tokenizer = load_tokenizer(samples / "tokenizer")
    texts = [p.read_text(encoding="utf-8") for p in sorted((samples / "corpus" / "pages").glob("*_zh.html"))]
    assert texts
    for (ids, cuts), text in zip(Encoder(spec_of(tokenizer)).encode(texts), texts, strict=True):
        assert decode(tokenizer, ids) == text
        assert cuts.tolist() == cut_points(encode(tokenizer, text))[:-1].tolist()


def test_bert_has_cuts_from_offsets():
    ((ids, cuts),) = Encoder(spec_of(bert_like())).encode(["Gu gu"])
    assert ids.tolist() == [2, 2] and cuts.tolist() == [True, True]
