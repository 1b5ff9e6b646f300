"""Where text may be cut: against the segmentation of the whole text, and known sentences."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.boundaries import is_boundary, nearest_boundary, sentence_ends, sentences, word_starts

CLUSTERS = ["👨‍👩‍👧", "e\u0301", "🇩🇪", "👍🏽", "\r\n", "각", "क्षि", "กำ", "a", "中", " ", "。", "☺️", "\u200d", "\u0301"]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.lists(st.sampled_from(CLUSTERS), max_size=25).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(TEXT)
def test_a_boundary_is_one_of_the_whole_texts_segmentation(text):
    edges = {0, *(m.end() for m in regex.finditer(r"\X", text)), len(text)}
    assert {at for at in range(len(text) + 1) if is_boundary(text, at)} == edges
    for at in range(len(text) + 1):
        assert abs(nearest_boundary(text, at) - at) == min(abs(e - at) for e in edges)


@pytest.mark.parametrize("cluster", ["👨‍👩‍👧", "e\u0301", "🇩🇪", "👍🏽", "\r\n", "각", "\ud83d\ude00"])
def test_nothing_may_be_cut_inside_what_a_reader_sees_as_one(cluster):
    text = f"a{cluster}b"
    inside = range(2, 1 + len(cluster))
    assert not any(is_boundary(text, at) for at in inside)
    assert is_boundary(text, 1) and is_boundary(text, 1 + len(cluster))


@settings(max_examples=300, deadline=None)
@given(TEXT, st.sampled_from(["。", ". ", "! ", "\n", "……", "”", "Dr. "]))
def test_sentences_put_together_are_the_text(text, mark):
    text = mark.join([text, "中 x", text])
    assert "".join(a + b for a, b in sentences(text)) == text
    assert all(is_boundary(text, at) for at in (*sentence_ends(text), *word_starts(text)))


def test_sentences_end_where_a_reader_ends_them():
    text = "Dr. Voss paid 3.50 (see fig. 2). “Why?” 他走了。“好！”她说。\nTitle\n\nA. B. Lee left… 完"
    assert [s for s, _ in sentences(text)] == [
        "Dr. Voss paid 3.50 (see fig.",
        "2).",
        "“Why?”",
        "他走了。",
        "“好！”",
        "她说。",
        "Title",
        "A. B. Lee left…",
        "完",
    ], "an abbreviation that is not in the list ends a sentence, as the module says"
    assert list(sentence_ends("It is 3.5 m. Yes.", 0, 8)) == [], "where the look ends is no end of a sentence"
    assert list(sentence_ends("It is 3.5 m. Yes.", 4, 14)) == [13] and list(word_starts("ab cd ef", 2, 5)) == [3]
    assert sentences("") == [] and sentences("  \n") == [("", "  \n")]
