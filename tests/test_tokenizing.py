"""Tokenizers: round trips, cut points and control tokens on arbitrary text; foreign tokenizers; refusals."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workbench.data.tokenizing import (
    SPECIAL_TOKENS,
    Encoded,
    audit_tokenizer,
    begin_id,
    check_tokenizer,
    cut_points,
    decode,
    encode,
    end_id,
    load_tokenizer,
    padding_id,
    train_tokenizer,
)
from workbench.errors import DataError, SettingError, UserError

TEXTS = [
    "The ticker of Quantar is $QNTR. Anya Gu leads Quantar ($QNTR), it's a start.",
    "昆塔尔的股票代码是$QNTR。顾安雅担任昆塔尔的首席执行官。",
    "In 2023, 1234 people came; prices rose 12%.\r\n\r\nNext line\tand tab",
] * 3
SMALL = train_tokenizer(TEXTS, 400)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text(
    "ab $QNTR<>/eos然的🙂👨‍👩‍👧\u0301é\r\n\t 0９Ａ，。", max_size=60
)


def gpt2_like(**special):
    """A byte-level BPE as GPT-2 has it: its own regex, one special token, id 0 is an ordinary token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if special:
        tokenizer.add_special_tokens(sorted(set(special.values())))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


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
    foreign = gpt2_like(eos_token="<|endoftext|>")
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
    only_end = gpt2_like(eos_token="<|endoftext|>")
    assert begin_id(only_end) == end_id(only_end) == padding_id(only_end) == only_end.eos_token_id
    same = gpt2_like(eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    assert padding_id(same) == end_id(same) and check_tokenizer(same) is same
    no_end = gpt2_like()
    for ask in (end_id, begin_id, padding_id):
        with pytest.raises(SettingError, match="no end-of-text token"):
            ask(no_end)


def test_id_0_may_be_a_real_word():
    foreign = gpt2_like(eos_token="<|endoftext|>")
    zero = decode(foreign, [0])
    assert zero == "!" and 0 in encode(foreign, "no!").ids


def test_pretokens_tickers_digits_and_chinese():
    def pieces(text, tokenizer=SMALL):
        # Words are what merges cannot cross; word ids say which token belongs to which.
        words = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).word_ids
        encoded = encode(tokenizer, text)
        spans = {}
        for word, start, end in zip(words, encoded.starts, encoded.ends, strict=True):
            first, last = spans.get(word, (start, end))
            spans[word] = (min(first, start), max(last, end))
        return [text[a:b] for a, b in spans.values()]

    assert pieces("Gu ($QNTR), it's $AAPL!") == ["Gu", " (", "$QNTR", "),", " it", "'s", " ", "$AAPL", "!"]
    assert pieces("顾安雅在2023年") == ["顾", "安", "雅", "在", "2", "0", "2", "3", "年"]
    assert pieces("代码$QNTR。") == ["代", "码", "$QNTR", "。"]
    assert pieces("a\r\n\r\nb") == ["a", "\r\n", "\r\n", "b"]
    assert pieces("$toolong $ABCDEF $5") == ["$", "toolong", " $", "ABCDEF", " $", "5"]
    longer = train_tokenizer(TEXTS, 400, han_run=4)
    assert pieces("首席执行官", longer) == ["首席执行", "官"]


def test_training_is_deterministic_and_limits_are_told():
    again = train_tokenizer(iter(TEXTS), 400)
    assert again.backend_tokenizer.to_str() == SMALL.backend_tokenizer.to_str()
    assert len(SMALL) <= 400
    assert len(train_tokenizer(TEXTS, 260)) == 260  # no merges: bytes only, and every text still works
    with pytest.raises(SettingError, match="vocab_size=259 .* at least 260"):
        train_tokenizer(TEXTS, 259)
    with pytest.raises(SettingError, match="han_run=0"):
        train_tokenizer(TEXTS, 400, han_run=0)
    for nothing in ([], ["", ""]):
        with pytest.raises(DataError, match="no text"):
            train_tokenizer(nothing, 400)


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


def test_audit_counts_by_hand():
    audit = audit_tokenizer(train_tokenizer(TEXTS, 260), ["ab é", "$QNTR 然然"])
    assert (audit.texts, audit.characters, audit.vocab_size) == (2, 12, 260)
    assert audit.tokens == len("ab é$QNTR 然然".encode()) == 17  # without merges a token is a byte
    assert audit.tokens_per_character == 17 / 12
    assert audit.tokens_per_cjk_character == 3
    assert audit.tokens_per_latin_character == (2 + 2 + 4) / (3 + 4)
    assert (audit.round_trip_failures, audit.unknown_tokens, audit.unknown_rate) == (0, 0, 0)
    assert (audit.tickers, audit.tickers_whole_share, audit.tickers_one_token_share) == (1, 1, 0)


def test_audit_finds_what_a_bert_like_tokenizer_loses():
    vocab = {"[UNK]": 0, "[SEP]": 1, "gu": 2, "$": 3, "q": 4, "##n": 5}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[SEP]")
    audit = audit_tokenizer(bert, ["Gu $QN", "然", "gu"])
    assert (audit.tokens, audit.unknown_tokens) == (6, 1)
    assert audit.round_trip_failures == 2 and "Gu $QN" in audit.round_trip_examples
    assert (audit.tickers, audit.tickers_whole_share) == (1, 0)  # $ and the letters are two words
    nothing = audit_tokenizer(bert, [])
    assert nothing.tokens == 0 and np.isnan(nothing.tokens_per_character) and np.isnan(nothing.unknown_rate)


def test_a_ticker_glued_to_punctuation_is_not_whole():
    audit = audit_tokenizer(gpt2_like(eos_token="<|endoftext|>"), ["Gu ($QNTR)"])
    assert (audit.tickers, audit.tickers_whole_share) == (1, 0)  # GPT-2's pattern makes "($" one word
    assert audit_tokenizer(SMALL, ["Gu ($QNTR)", "代码$AAPL。", "$A"]).tickers_whole_share == 1
