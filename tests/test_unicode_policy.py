"""Character rules against unicodedata, and the characters that must be kept."""

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import unicode_policy as rules
from workbench.data.edits import apply

QUICK = settings(deadline=None, max_examples=300, derandomize=True)
# Characters that combine, in scripts where composition is hard, and others around them.
COMBINING = st.text(
    "ae\u0301\u0327\u0323\u1100\u1161\u11a8\u0b47\u0b3e\u0bc6\u0bbe\u0f71\u0f72\u3099かﾞｶﾊﾟ\u0344\uf900ﬁ½，中\n\u2126",
    max_size=20,
)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_normal_form_is_that_of_unicodedata(form):
    @QUICK
    @given(st.one_of(COMBINING, st.text(max_size=20)))
    def same(text):
        assert apply(text, rules.normal_form(text, form)) == unicodedata.normalize(form, text)

    same()


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_normal_form_of_every_character_after_every_kind_of_base(form):
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
    for base in ("", "a", "\u1100", "\u09c7", "か"):
        text = base.join(everything[::31] if base else everything)
        assert apply(text, rules.normal_form(text, form)) == unicodedata.normalize(form, text)


def test_normal_form_edits_are_local():
    text = "中文" * 1000 + "e\u0301" + "中文" * 1000
    assert [(e.start, e.end, e.replacement) for e in rules.normal_form(text, "NFC")] == [(2000, 2002, "é")]


def test_controls_are_all_of_cc_but_tab_and_line_ends():
    text = "".join(map(chr, range(0x250)))
    kept = apply(text, rules.controls(text))
    assert kept == "".join(c for c in text if unicodedata.category(c) != "Cc" or c in "\t\n\r")


def test_colour_codes_go_whole_and_nothing_else_does():
    text = "\x1b[31m快讯\x1b[0m \x1b[1;32mok\x1b[m \x1b[注] \x1b[31 [31m"
    assert apply(text, rules.controls(text)) == "快讯 ok [注] [31 [31m"


def test_line_ends():
    text = "a\r\nb\rc\n\rd\u2028e\u2029f\r\r\n一\x85二"
    assert apply(text, rules.line_ends(text)) == "a\nb\nc\n\nd\ne\nf\n\n一\n二"
    assert rules.line_ends("a\nb\n") == []


def test_surrogates():
    text = "a\ud800b\udfffc"
    assert apply(text, rules.surrogates(text)) == "a\ufffdb\ufffdc"
    assert rules.surrogates("a😀中") == []


KEPT = [
    "👩\u200d🔬", "👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3",
    "می\u200cخواهم", "क्\u200dष", "क्\u200cष", "ක්\u200dෂ", "ന്\u200d", "ه\u200d.",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
]  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_joiners_that_join_are_kept(text):
    assert rules.zero_width(text) == rules.zero_width(f"字{text}字{text}") == []


@pytest.mark.parametrize(
    "text, clean",
    [
        ("\ufeff中\u200b文\u2060", "中文"),
        ("co\u00adop\u00ader\u00ada\u00adtion", "cooperation"),
        ("\u202eabc\u202c \u2066x\u2069 \u200e\u200fא\u061c", "abc x א"),
        ("a\u200db \u200dc 中\u200c文 あ\u200dい", "ab c 中文 あい"),
        ("👩\u200d", "👩"),
        ("👩\u200dx", "👩x"),
        ("क्\u200d\u200d\u200bष", "क्\u200dष"),
        ("see\U000e0041\U000e0042 🏴\U000e0041", "see 🏴"),
        ("\u200b\u200d\u200c\ufeff", ""),
    ],
)
def test_invisible_characters_go(text, clean):
    assert apply(text, rules.zero_width(text)) == clean


@QUICK
@given(st.text("a中 \u200b\u200c\u200d\ufeff👩🔬🏴\ufe0fमي\U000e0067\U000e007f", max_size=20))
def test_zero_width_only_deletes_invisible_characters_and_settles(text):
    clean = apply(text, rules.zero_width(text))
    gone = [text[i] for e in rules.zero_width(text) for i in range(e.start, e.end)]
    assert all(unicodedata.category(c) == "Cf" for c in gone)
    assert rules.zero_width(clean) == []


def test_folding_touches_letters_and_digits_or_quotes_only():
    text = "ＡＢＣ１２３ｘｙｚ，？！（）；：～“引”‘用’。"
    assert apply(text, rules.fold_width(text)) == "ABC123xyz，？！（）；：～“引”‘用’。"
    assert apply(text, rules.fold_quotes(text)) == "ＡＢＣ１２３ｘｙｚ，？！（）；：～\"引\"'用'。"
    wide = "".join(chr(c) for c in range(0xFF01, 0xFFEF))
    folded = apply(wide, rules.fold_width(wide))
    narrow = [unicodedata.normalize("NFKC", w) for w in wide]
    assert [f for w, f in zip(wide, folded) if w != f] == [n for n in narrow if n.isascii() and n.isalnum()]
