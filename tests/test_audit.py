"""The audit counted by hand and by other means; tokens that a policy changes, on cases one can follow."""

import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from tokenizer_zoo import ANY_TEXT, EOS, TEXTS, ZOO, bert_like, byte_level, gpt2_like, with_special
from tokenizers import Tokenizer, models, pre_tokenizers

from workbench.data.audit import ENTITIES, EntityCount, ScriptCount, audit_tokenizer, policy_effect
from workbench.data.cleaning import CleaningPolicy, clean
from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import encode
from workbench.errors import DataError

SMALL = train_tokenizer(TEXTS, 400)
BYTES = train_tokenizer(TEXTS, 260)  # without merges a token is a byte
NFC, NFKC = CleaningPolicy(), CleaningPolicy(unicode_form="NFKC")


def test_audit_counts_by_hand():
    audit = audit_tokenizer(BYTES, ["ab é", "$QNTR 然然"])
    assert (audit.texts, audit.characters, audit.vocab_size) == (2, 12, 260)
    assert audit.tokens == len("ab é$QNTR 然然".encode()) == 17
    assert audit.tokens_per_character == 17 / 12
    assert audit.tokens_per_cjk_character == 3
    assert audit.tokens_per_latin_character == (2 + 2 + 4) / (3 + 4)
    assert (audit.round_trip_failures, audit.unknown_tokens, audit.unknown_rate) == (0, 0, 0)
    assert (audit.tickers, audit.tickers_whole_share, audit.tickers_one_token_share) == (1, 1, 0)


def test_audit_finds_what_a_bert_like_tokenizer_loses():
    audit = audit_tokenizer(bert_like(), ["Gu $QN", "然", "gu"])
    assert (audit.tokens, audit.unknown_tokens) == (6, 1)
    assert audit.round_trip_failures == 2 and "Gu $QN" in audit.round_trip_examples
    assert (audit.tickers, audit.tickers_whole_share) == (1, 0)  # $ and the letters are two words
    nothing = audit_tokenizer(bert_like(), [])
    assert nothing.tokens == 0 and np.isnan(nothing.tokens_per_character) and np.isnan(nothing.unknown_rate)
    assert np.isnan(nothing.tickers_whole_share) and np.isnan(nothing.scripts["Han"].tokens_per_character)


def test_a_ticker_glued_to_punctuation_is_not_whole():
    audit = audit_tokenizer(gpt2_like(eos_token=EOS), ["Gu ($QNTR)"])
    assert (audit.tickers, audit.tickers_whole_share) == (1, 0)  # GPT-2's pattern makes "($" one word
    assert audit_tokenizer(SMALL, ["Gu ($QNTR)", "代码$AAPL。", "$A"]).tickers_whole_share == 1


SCRIPT_TEXT = {
    "Han": "然龘㐂𠮷",
    "Latin": "Aaéß",
    "Kana": "あアーｶ",
    "Hangul": "한글ㄱ",
    "Cyrillic": "Ядро",
    "Arabic": "مرحبا",
    "digits": "09０９",
    "emoji": "🙂🚀❤\ufe0f",
    "other": " ，。!\n\u3000अ",
}


def test_scripts_are_told_apart():
    audit = audit_tokenizer(BYTES, SCRIPT_TEXT.values())
    assert audit.scripts == {n: ScriptCount(len(t), len(t.encode())) for n, t in SCRIPT_TEXT.items()}
    assert audit.scripts["Kana"].tokens_per_character == 3


@pytest.mark.parametrize("name", ZOO)
@settings(deadline=None, max_examples=40)
@given(text=ANY_TEXT)
@example(text="然🙂👨‍👩‍👧 한글")
def test_the_table_adds_up_for_any_tokenizer_and_text(name, text):
    audit = audit_tokenizer(ZOO[name], [text])
    assert sum(s.characters for s in audit.scripts.values()) == audit.characters == len(text)
    assert sum(s.tokens for s in audit.scripts.values()) == audit.tokens == len(encode(ZOO[name], text))
    han = sum("CJK UNIFIED" in unicodedata.name(c, "") or "CJK COMPAT" in unicodedata.name(c, "") for c in text)
    # Squared and vertical forms have such names too, and what Python's tables do not know has none.
    if not re.search("[\u3300-\u33ff\ufe30-\ufe4f]", text) and "Cn" not in map(unicodedata.category, text):
        assert audit.scripts["Han"].characters == han


def test_entities_found_by_default():
    text = (
        "$AAPL rose 3.14 to 1,234.5 or 12,345 (not 1234 or v1.2.3 or 1,23) on 2024-01-31 and 2024年1月31日，"
        "见https://a.example/b?c=1。Write to anya.gu+x@quantar.example, not @home; 20240-01-312"
    )
    found = {name: pattern.findall(text) for name, pattern in ENTITIES.items()}
    assert found == {
        "tickers": ["$AAPL"],
        "numbers": ["3.14", "1,234.5", "12,345"],
        "dates": ["2024-01-31", "2024年1月31日"],
        "addresses": ["https://a.example/b?c=1", "anya.gu+x@quantar.example"],
    }
    assert {n: e.count for n, e in audit_tokenizer(SMALL, [text]).entities.items()} == {
        name: len(matches) for name, matches in found.items()
    }


def test_entities_whole_and_in_one_token():
    # Words are split at blanks and nowhere else; only "$AB" and "3.5" are entries.
    vocab = {"<unk>": 0, "<eos>": 1, "$AB": 2, "3.5": 3, "x": 4}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = with_special(backend, eos_token="<eos>", unk_token="<unk>")
    entities = audit_tokenizer(words, ["$AB x 3.5", "$CD x($AB)", "x"]).entities
    assert entities["tickers"] == EntityCount(3, 2, 2) and entities["numbers"] == EntityCount(1, 1, 1)
    own = audit_tokenizer(words, ["x x", "3.5 x"], entities={"pairs": "x x", "letters": "x"}).entities
    assert own == {"pairs": EntityCount(1, 0, 0), "letters": EntityCount(3, 3, 3)}
    assert own["letters"].whole_share == own["letters"].one_token_share == 1
    digits = audit_tokenizer(SMALL, ["on 2024-01-31, 3.14"]).entities
    assert digits["dates"] == EntityCount(1, 0, 0) and digits["numbers"] == EntityCount(1, 0, 0)
    assert audit_tokenizer(words, ["$AB"], entities={}).tickers == 0


def test_policy_effect_by_hand():
    # Full-width ，（3 bytes, 3 tokens）becomes ASCII under NFKC; the other tokens stay where they are.
    effect = policy_effect(BYTES, ["然，ok", "ok"], NFKC)
    assert (effect.texts, effect.texts_changed) == (2, 1)
    assert (effect.tokens_before, effect.tokens_after, effect.tokens_changed) == (10, 8, 3)
    assert effect.changed_share == 3 / 10 and (effect.unknown_before, effect.unknown_after) == (0, 0)
    assert policy_effect(BYTES, ["然，ok"], NFC).tokens_changed == 0
    # e and the accent, 3 tokens, become é, 2 tokens: none of the 3 is there any more.
    assert policy_effect(BYTES, ["xe\u0301y"], NFC).tokens_changed == 3
    # What is removed takes its own tokens with it, and none of its neighbours.
    assert policy_effect(BYTES, ["a\u200bb", "\u200b", "\ufeff\u200bab\u200b\u200b"], NFC).tokens_changed == 3 + 3 + 12
    assert np.isnan(policy_effect(BYTES, [], NFC).changed_share)


def test_a_merge_that_cleaning_makes_possible_counts():
    backend = byte_level()  # " Quantar" is one token of this one
    tokenizer = with_special(backend, eos_token=EOS)
    plain, broken = encode(tokenizer, "The Quantar"), encode(tokenizer, "The Quan\u200btar")
    assert len(broken) > len(plain)
    effect = policy_effect(tokenizer, ["The Quan\u200btar"], NFC)
    assert effect.tokens_after == len(plain) and 0 < effect.tokens_changed < len(broken)


def test_a_policy_can_make_or_heal_unknown_tokens():
    vocab = {"<unk>": 0, "<eos>": 1, "，": 2, "a": 3, "é": 4}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words = with_special(backend, eos_token="<eos>", unk_token="<unk>")
    made = policy_effect(words, ["a，a"], NFKC)  # the article's complaint: "," was never in the vocabulary
    assert (made.unknown_before, made.unknown_after, made.tokens_changed) == (0, 1, 1)
    healed = policy_effect(words, ["e\u0301"], NFC)
    assert (healed.unknown_before, healed.unknown_after) == (2, 0)


def test_surrogates_count_as_replacement_characters():
    effect = policy_effect(BYTES, ["a\ud800b"], NFC)
    assert (effect.tokens_before, effect.tokens_changed) == (5, 0)
    with pytest.raises(DataError, match="surrogates"):
        audit_tokenizer(BYTES, ["a\ud800b"])


@settings(deadline=None, max_examples=200)
@given(text=ANY_TEXT)
@example(text="㎡，e\u0301\u200b\u200b然")
def test_changed_tokens_are_those_outside_unchanged_text(text):
    """With a token a byte the answer is known from the edits: exactly the bytes that were edited."""
    for policy in (NFC, NFKC):
        effect = policy_effect(BYTES, [text], policy)
        edits = clean(text, policy).edits
        replaced = sum(len(text[e.start : e.end].encode()) for e in edits)
        # Bytes at the same place of a replacement may be the same (e of é): never more than were edited.
        same = sum((Counter(text[e.start : e.end].encode()) & Counter(e.replacement.encode())).total() for e in edits)
        assert replaced - same <= effect.tokens_changed <= replaced
        assert effect.tokens_before == len(text.encode())
        assert effect.tokens_after == len(clean(text, policy).text.encode())
