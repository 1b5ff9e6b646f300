"""Perturbed copies: pure, replayable from what they record, and of a kind that changes the text."""

import json
from collections import Counter

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.data.boundaries import sentences
from workbench.data.homophones import ENGLISH
from workbench.data.perturb import KINDS, UNCHANGED, perturb, replay
from workbench.errors import SettingError

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.text("ab E.!?\n。！，中的银行文Ａ！🇩🇪👍🏽\u200d\u0301שלום 12%年", max_size=150),
    st.lists(
        st.sampled_from(
            ["Mira Voss", "Tor Ek", "1998", "in 2004", "12 %", "$ALDA", "《海》", "3月1日", " ", ". ", "。", "\n", "x"]
        ),
        max_size=20,
    ).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(0, 5), st.sampled_from([None, *([k] for k in KINDS)]))
@example("", 0, None)
@example("a", 0, ["character noise"])
@example("aa", 0, ["character noise"])
@example("👨‍👩‍👧", 0, None)
def test_a_copy_is_pure_and_its_changes_make_it_again(text, seed, kinds):
    copy = perturb(text, seed, kinds)
    assert copy == perturb(text, seed, kinds)
    assert replay(text, copy.kind, json.loads(json.dumps(copy.changes))) == copy.text
    assert copy.text.encode("utf-8").decode("utf-8") == copy.text
    assert (copy.kind == UNCHANGED) == (copy.text == text)
    assert copy.kind in (kinds or KINDS) or copy.kind == UNCHANGED
    assert copy.truth == (0.0 if copy.kind == "swapped facts" else None)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(0, 3))
def test_a_kind_that_can_change_the_text_is_found(text, seed):
    able = [kind for kind in KINDS if perturb(text, seed, [kind]).kind == kind]
    copy = perturb(text, seed)
    assert copy.kind in (able or [UNCHANGED])
    if able:
        assert copy == perturb(text, seed, [copy.kind]), "the kinds asked for decide which, not how"


def test_each_kind_is_as_likely_where_all_can():
    text = "他们在公司附近散步，Mira Voss was born in 1998. Tor Ek left it in 2004, their way. 银行在那里。{}"
    kinds = Counter(perturb(text.format(i), 0).kind for i in range(1000))
    assert set(kinds) == set(KINDS)
    assert sum((n - 200) ** 2 / 200 for n in kinds.values()) < 20, "chi-square with 4 degrees of freedom, 0.05 % tail"


def test_another_seed_or_text_is_another_copy():
    text = "The harbour froze early and the ships stayed where they were. Nobody minded. " * 3
    assert len({perturb(text, seed, ["character noise"]).text for seed in range(10)}) == 10


def test_a_kind_that_does_not_exist_is_named():
    with pytest.raises(SettingError, match="unknown kind of perturbation 'homophone'; did you mean 'homophones'"):
        perturb("a", 0, ["homophone"])
    with pytest.raises(SettingError, match="kinds=.. is not allowed: one or more of character noise"):
        perturb("a", 0, [])


def clusters(text):
    return Counter(c for c in regex.findall(r"\X", text) if len(c) > 1)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(0, 5))
@example("e\u0301a\u0301 👨‍👩‍👧x👍🏽y🇩🇪z क्षि각 o\u0308o", 1)
def test_noise_cuts_no_grapheme_cluster_and_makes_none(text, seed):
    copy = perturb(text, seed, ["character noise"])
    assert clusters(copy.text) == clusters(text)


def test_noise_is_two_percent_of_the_letters_and_leaves_numbers_alone():
    text = "In 1998 it cost 3,120.50 dollars; 第2024年 they paid $77 more for everything else there was. " * 40
    copy = perturb(text, 0, ["character noise"])
    letters = len(regex.findall(r"\p{L}", text))
    assert 0.015 * letters < len(copy.changes) <= 0.02 * letters + 1
    assert regex.findall(r"\d+", copy.text) == regex.findall(r"\d+", text)


def test_width_goes_both_ways_and_leaves_chinese_alone():
    assert perturb("AB1!", 0, ["width change"]).text == "ＡＢ１！"
    assert perturb("ＡＢ１！", 0, ["width change"]).text == "AB1!"
    assert perturb("中文。 \u3000", 0, ["width change"]).kind == UNCHANGED
    words = " ".join(f"word{i}" for i in range(200))
    copy = perturb(words, 0, ["width change"])
    assert len(copy.changes) == 20 and all(len(new) == end - start for start, end, new in copy.changes)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(0, 5))
def test_shuffled_sentences_are_the_same_sentences_with_the_space_in_place(text, seed):
    copy = perturb(text, seed, ["shuffled sentences"])
    if copy.kind == UNCHANGED:
        return
    spoken = sentences(text)
    assert sorted(copy.changes) == list(range(len(spoken)))
    assert copy.text == "".join(spoken[i][0] + space for i, (_, space) in zip(copy.changes, spoken))
    assert Counter(copy.text) == Counter(text)


def test_a_shuffle_keeps_lines_and_needs_two_different_sentences():
    text = "One.\nTwo. Three.\n\nFour."
    copies = {perturb(text, seed, ["shuffled sentences"]).text for seed in range(40)}
    assert text not in copies and len(copies) > 10
    assert all(regex.findall(r"\s+", c) == ["\n", " ", "\n\n"] for c in copies)
    for still in ("One.", "One. One. One.", "中文", ""):
        assert perturb(still, 0, ["shuffled sentences"]).kind == UNCHANGED


def everyday(character):
    """Whether ``character`` is in GB 2312, level 1, by its code."""
    try:
        code = character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return 0xB0A1 <= int.from_bytes(code, "big") <= 0xD7F9


def test_chinese_homophones_sound_the_same_and_are_everyday_characters():
    from pypinyin import Style, pinyin

    text = "他们在公司附近的河边散步，看见许多鸟在水面上慢慢地飞。银行的行长说，这里的音乐会重新开始了。" * 10
    copy = perturb(text, 3, ["homophones"])
    han = len(regex.findall(r"\p{Han}", text))
    assert abs(len(copy.changes) - 0.03 * han) <= 1
    readings = pinyin(text.replace("，", "").replace("。", ""), style=Style.TONE3)
    places = [i for i, c in enumerate(text) if c not in "，。"]
    by_place = dict(zip(places, (r[0] for r in readings)))
    same = 0
    for start, end, new in copy.changes:
        assert end == start + 1 and len(new) == 1 and new != text[start] and everyday(new)
        # Any reading of the new character may be meant; it must be the one that the place has.
        same += by_place[start] in pinyin(new, style=Style.TONE3, heteronym=True)[0]
    assert same >= 0.95 * len(copy.changes), "the reading in the few characters around may differ from the whole line's"
    starts = [start for start, _, _ in copy.changes]
    assert all(b - a > 1 for a, b in zip(starts, starts[1:])), "no two in a row"


def test_a_character_with_two_readings_is_replaced_by_the_one_it_has_here():
    seen = {perturb("银行", s, ["homophones"]).text for s in range(60)} | {
        perturb("行走", s, ["homophones"]).text for s in range(60)
    }
    from pypinyin import Style, pinyin

    for text in seen:
        for original, reading in (("银行", ["yin2", "hang2"]), ("行走", ["xing2", "zou3"])):
            kept = [a == b for a, b in zip(text, original)]
            if sum(kept) == 1:
                at = kept.index(False)
                assert reading[at] in pinyin(text[at], style=Style.TONE3, heteronym=True)[0]


def test_a_chinese_character_alone_is_a_whole_word_and_stays():
    assert perturb("A 在 B", 0, ["homophones"]).kind == UNCHANGED


def test_english_homophones_keep_case_and_stay_inside_words():
    assert len(ENGLISH) >= 60 and all(word in ENGLISH[other] for word, others in ENGLISH.items() for other in others)
    assert perturb("Whose", 0, ["homophones"]).text == "Who's"
    assert perturb("WHOSE", 0, ["homophones"]).text == "WHO'S"
    assert perturb("it’s", 0, ["homophones"]).text == "its"
    assert perturb("its", 0, ["homophones"]).text == "it's"
    for still in ("itself", "bytes", "its\u0301", "xits", "its2", "l'its"):
        assert perturb(still, 0, ["homophones"]).kind == UNCHANGED, still
