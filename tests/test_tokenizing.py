"""Tokenizers: round trips, cut points, control tokens and fingerprints on arbitrary text; refusals."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from tokenizer_zoo import ANY_TEXT, EOS, TEXTS, gpt2_like, with_special
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workbench.data.encoding import Encoder
from workbench.data.tokenizer_training import SPECIAL_TOKENS, train_tokenizer
from workbench.data.tokenizing import (
    Encoded,
    begin_id,
    check_tokenizer,
    check_vocabulary,
    control_ids,
    cut_points,
    decode,
    encode,
    end_id,
    load_tokenizer,
    padding_id,
    rows_needed,
    spec_of,
    tokenizer_fingerprint,
)
from workbench.errors import DataError, SettingError, UserError

SMALL = train_tokenizer(TEXTS, 400)


@settings(deadline=None, max_examples=300)
@given(text=ANY_TEXT)
@example(text="")
@example(text="<eos><pad>")
@example(text="$ $$ $a $ABCDEF $A1 US$QNTR")
def test_round_trip_and_no_control_token_for_any_text(text):
    encoded = encode(SMALL, text)
    assert decode(SMALL, encoded.ids) == text
    assert not set(encoded.ids.tolist()) & {0, 1, 2, 3}


@settings(deadline=None, max_examples=300)
@given(text=ANY_TEXT)
@example(text="然🙂然")
@example(text="a\u0301\u200d")
def test_offsets_cover_the_text_and_cuts_split_no_character(text):
    encoded = encode(SMALL, text)
    covered = np.zeros(len(text), int)
    for start, end in zip(encoded.starts, encoded.ends, strict=True):
        assert 0 <= start < end <= len(text)
        covered[start:end] += 1
    assert covered.min(initial=1) >= 1
    cuts = cut_points(encoded)
    assert cuts.dtype == bool and len(cuts) == len(encoded) + 1 and cuts[0] and cuts[-1]
    for i in range(len(encoded) + 1):
        # Independent of offsets: half a character decodes to U+FFFD, so the halves do not add up.
        whole = decode(SMALL, encoded.ids[:i]) + decode(SMALL, encoded.ids[i:]) == text
        assert cuts[i] == whole, (i, text)


def test_arrays_are_int32_and_empty_text_is_empty():
    encoded = encode(SMALL, "Anya 🙂")
    assert {a.dtype for a in (encoded.ids, encoded.starts, encoded.ends)} == {np.dtype("int32")}
    assert all(a.flags.c_contiguous for a in (encoded.ids, encoded.starts, encoded.ends))
    empty = encode(SMALL, "")
    assert len(empty) == 0 and empty.ids.shape == (0,) and cut_points(empty).tolist() == [True]


def test_cut_points_of_overlapping_offsets():
    # A token that ends inside a character, and one inside a longer one: [0,2) [1,2) [2,5) [3,4) [5,6)
    ids = np.arange(5, dtype=np.int32)
    starts, ends = np.array([0, 1, 2, 3, 5], np.int32), np.array([2, 2, 5, 4, 6], np.int32)
    assert cut_points(Encoded(ids, starts, ends)).tolist() == [True, False, True, False, True, True]


def test_special_strings_in_text_are_ordinary_tokens_even_with_a_foreign_tokenizer():
    foreign = gpt2_like(eos_token=EOS)
    text = "one<|endoftext|>two"
    assert foreign.eos_token_id in foreign(text)["input_ids"]  # what would happen without care
    encoded = encode(foreign, text)
    assert foreign.eos_token_id not in encoded.ids and decode(foreign, encoded.ids) == text
    for special in SPECIAL_TOKENS:
        assert len(encode(SMALL, f"a {special} b")) > 3


def test_a_model_that_holds_the_control_string_is_refused():
    # T5's vocabulary has "</s>" as an ordinary piece, which no flag can forbid.
    pieces = [("<unk>", 0.0), ("</s>", 0.0)] + [(c, -2.0) for c in "ones<>/ "]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.Unigram(pieces, unk_id=0)), eos_token="</s>", unk_token="<unk>"
    )
    assert decode(tokenizer, encode(tokenizer, "ones").ids).replace(" ", "") == "ones"
    with pytest.raises(DataError, match="'</s>', which this tokenizer cannot write"):
        encode(tokenizer, "one</s>")


def test_lone_surrogates_are_refused_in_one_line():
    with pytest.raises(DataError, match="surrogates"):
        encode(SMALL, "broken \ud800 text")


def test_ids_begin_end_padding():
    assert [SMALL.convert_tokens_to_ids(t) for t in SPECIAL_TOKENS] == [0, 1, 2, 3]
    assert (begin_id(SMALL), end_id(SMALL), padding_id(SMALL)) == (1, 2, 3)
    only_end = gpt2_like(eos_token=EOS)
    assert begin_id(only_end) == end_id(only_end) == padding_id(only_end) == only_end.eos_token_id
    same = gpt2_like(eos_token=EOS, pad_token=EOS)
    assert padding_id(same) == end_id(same) and check_tokenizer(same) is same
    no_end = gpt2_like()
    for ask in (end_id, begin_id, padding_id):
        with pytest.raises(SettingError, match="no end-of-text token"):
            ask(no_end)


def test_id_0_may_be_a_real_word():
    foreign = gpt2_like(eos_token=EOS)
    zero = decode(foreign, [0])
    assert zero == "!" and 0 in encode(foreign, "no!").ids


def test_save_and_load_give_the_same_ids(tmp_path):
    SMALL.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for text in [*TEXTS, "<eos> 然 🙂"]:
        assert encode(loaded, text).ids.tolist() == encode(SMALL, text).ids.tolist()
    assert load_tokenizer(str(tmp_path)).eos_token_id == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no/such/folder", "no such folder"),
        ("./missing", "no such folder"),
        ("no-such-tokenizer", "no such folder, and not in the local Hugging Face cache"),
        ("train:2048", "no such folder"),
    ],
)
def test_a_missing_tokenizer_is_told_in_one_line(name, told):
    with pytest.raises(SettingError, match=told) as error:
        load_tokenizer(name)
    assert "\n" not in str(error.value) and name in str(error.value)


def test_unusable_folders_are_told_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{not json")
    (tmp_path / "broken" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    gpt2_like().save_pretrained(tmp_path / "no_end")
    for name, told in {"empty": "holds no tokenizer.json", "broken": "cannot be read", "no_end": "eos_token"}.items():
        with pytest.raises(UserError, match=told) as error:
            load_tokenizer(tmp_path / name)
        assert "\n" not in str(error.value)
    with pytest.raises(SettingError, match="is a file; give the folder"):
        load_tokenizer(tmp_path / "broken" / "tokenizer.json")
    with pytest.raises(SettingError, match="not a fast one"):
        check_tokenizer(object(), "slow")
    config = tmp_path / "no_end" / "tokenizer_config.json"  # the advice of the message works
    config.write_text(json.dumps({**json.loads(config.read_text()), "eos_token": "!"}))
    assert load_tokenizer(tmp_path / "no_end").eos_token == "!"


def test_control_tokens_that_are_not_marked_as_special():
    # DeepSeek marks <｜User｜> as an ordinary added token, Qwen 3 <think>; $AAPL and the blanks are ordinary ones.
    tokenizer = gpt2_like(eos_token=EOS)
    unmarked = ["<｜User｜>", "<|tool|>", "<think>", "<b>", "$AAPL", "    "]
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=True) for t in unmarked])
    tokenizer.chat_template = "{% for m in messages %}    <think>{{ m.content }}{% endfor %}"
    before = {t: tokenizer.convert_tokens_to_ids(t) for t in unmarked}
    control = {tokenizer.convert_ids_to_tokens(i) for i in control_ids(tokenizer)}
    assert control == {EOS, "<｜User｜>", "<|tool|>", "<think>"}
    text = "a<｜User｜>b<|tool|>c<think>d<b>e$AAPL f    g"
    ids = encode(tokenizer, text).ids
    assert not set(ids.tolist()) & set(control_ids(tokenizer)) and decode(tokenizer, ids) == text
    assert {before["<b>"], before["$AAPL"], before["    "]} <= set(ids.tolist())
    assert {t: tokenizer.convert_tokens_to_ids(t) for t in unmarked} == before
    assert Encoder(spec_of(tokenizer)).encode([text])[0][0].tolist() == ids.tolist()
    scaffold, _ = Encoder(spec_of(tokenizer)).encode(["<｜User｜>"], [True])[0]
    assert scaffold.tolist() == [before["<｜User｜>"]]
    # One that is added later is seen too.
    tokenizer.add_special_tokens({"additional_special_tokens": ["<late>"]})
    assert tokenizer.convert_tokens_to_ids("<late>") not in encode(tokenizer, "a<late>").ids


def test_an_earlier_call_with_truncation_or_padding_shortens_nothing():
    tokenizer = gpt2_like(eos_token=EOS, pad_token=EOS)
    text = "one two three four five"
    whole, mark = encode(tokenizer, text).ids.tolist(), tokenizer_fingerprint(tokenizer)
    assert len(tokenizer(text, truncation=True, max_length=3)["input_ids"]) == 3
    assert encode(tokenizer, text).ids.tolist() == whole
    tokenizer([text, "a"], padding="max_length", max_length=50)
    assert encode(tokenizer, text).ids.tolist() == whole
    tokenizer(text, truncation=True, max_length=3)
    assert tokenizer_fingerprint(tokenizer) == mark


def test_fingerprints_name_what_decides_ids(tmp_path):
    SMALL.save_pretrained(tmp_path)
    mark = tokenizer_fingerprint(SMALL)
    assert len(mark) == 16 and int(mark, 16) >= 0
    assert tokenizer_fingerprint(load_tokenizer(tmp_path)) == mark
    others = [train_tokenizer(TEXTS, 300), train_tokenizer(TEXTS, 400, han_run=2), load_tokenizer(tmp_path)]
    others[2].add_tokens(["$AAPL"])
    marks = {tokenizer_fingerprint(t) for t in others}
    for special in ("eos_token", "bos_token", "pad_token"):
        changed = load_tokenizer(tmp_path)
        setattr(changed, special, "!")
        marks.add(tokenizer_fingerprint(changed))
    assert len(marks) == 6 and mark not in marks


def test_a_vocabulary_that_is_larger_than_the_model():
    tokenizer = gpt2_like(eos_token=EOS)
    tokenizer.add_tokens(["$AAPL"])
    assert tokenizer.vocab_size == 300 and rows_needed(tokenizer) == 302
    check_vocabulary(tokenizer, 302)
    check_vocabulary(tokenizer, 4096)
    with pytest.raises(SettingError, match=r"vocab_size=301 is not allowed: at least 302, .* is 301 \('\$AAPL'\)"):
        check_vocabulary(tokenizer, 301)
    # Ids may have gaps: the count of entries is not enough.
    gaps = with_special(Tokenizer(models.BPE({"a": 0, "b": 9}, [])), eos_token="b")
    assert len(gaps) == 2 and rows_needed(gaps) == 10


def test_a_part_written_in_python_cannot_travel():
    class Letters:
        def pre_tokenize(self, text):
            pass

    tokenizer = gpt2_like(eos_token=EOS)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Letters())
    with pytest.raises(SettingError, match="cannot be written as a tokenizer.json") as error:
        spec_of(tokenizer)
    assert "\n" not in str(error.value)
