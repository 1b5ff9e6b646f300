"""Edits: composition against two applications in a row, and the offset map against brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.edits import Edit, apply, compose, offsets

QUICK = settings(deadline=None, max_examples=300, derandomize=True)


@st.composite
def edits_of(draw, length: int, rule: str, deletions: bool = False):
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=12, unique=True)))
    made = []
    for start, end in zip(cuts[::2], cuts[1::2]):
        made.append(Edit(start, end, "" if deletions else draw(st.text("xyz", max_size=4)), (rule,)))
    return made


@st.composite
def two_passes(draw):
    raw = draw(st.text("abcdefgh", max_size=25))
    first = draw(edits_of(len(raw), "one"))
    between = apply(raw, first)
    return raw, first, between, draw(edits_of(len(between), "two"))


def test_apply_by_hand():
    assert apply("abcdef", [Edit(0, 1, ""), Edit(2, 4, "XYZ"), Edit(6, 6, "!")]) == "bXYZef!"
    assert apply("abc", []) == "abc"


def test_compose_merges_only_what_overlaps():
    first = [Edit(1, 2, "BB", ("one",)), Edit(5, 6, "", ("one",))]  # aBBcdeg of abcdefg
    second = [Edit(2, 3, "", ("two",)), Edit(4, 5, "D", ("two",)), Edit(6, 7, "G", ("two",))]
    assert compose(first, second, "aBBcdeg") == [
        Edit(1, 2, "B", ("one", "two")),
        Edit(3, 4, "D", ("two",)),
        Edit(5, 6, "", ("one",)),
        Edit(6, 7, "G", ("two",)),
    ]


def test_compose_deletion_around_a_deletion():
    # abcdef without cd is abef; then without be: everything from b to e is gone, in one edit.
    assert compose([Edit(2, 4, "", ("one",))], [Edit(1, 3, "", ("two",))], "abef") == [Edit(1, 5, "", ("one", "two"))]


@QUICK
@given(two_passes())
def test_composition_is_both_passes(case):
    raw, first, between, second = case
    both = compose(first, second, between)
    assert apply(raw, both) == apply(between, second)
    ends = [0]
    for edit in both:
        assert edit.start >= ends[-1] and edit.end >= edit.start
        ends.append(edit.end)
    assert ends[-1] <= len(raw)
    assert {r for e in both for r in e.rules} == {r for e in first + second for r in e.rules}


@QUICK
@given(two_passes())
def test_offsets_are_monotone_and_in_range(case):
    raw, first, between, second = case
    both = compose(first, second, between)
    clean = apply(raw, both)
    at = offsets(len(raw), both)
    assert at.dtype == np.int32 and at.shape == (len(clean) + 1,)
    assert (np.diff(at) >= 0).all() and at[0] >= 0 and at[-1] <= len(raw)


@QUICK
@given(st.data(), st.text(max_size=40))
def test_offsets_of_deletions_point_at_the_character_itself(data, raw):
    first = data.draw(edits_of(len(raw), "one", deletions=True))
    between = apply(raw, first)
    second = data.draw(edits_of(len(between), "two", deletions=True))
    at = offsets(len(raw), compose(first, second, between))
    clean = apply(between, second)
    # Brute force: the positions that are left, deleted from a list of positions pass by pass.
    left = list(range(len(raw)))
    for edits in (first, second):
        gone = {i for e in edits for i in range(e.start, e.end)}
        left = [p for i, p in enumerate(left) if i not in gone]
    assert at[:-1].tolist() == left
    assert "".join(raw[i] for i in left) == clean


def test_offsets_inside_a_replacement():
    assert offsets(6, [Edit(1, 5, "XY")]).tolist() == [0, 1, 3, 5, 6]
    assert offsets(3, [Edit(1, 2, "XYZ")]).tolist() == [0, 1, 1, 1, 2, 3]
    assert offsets(0, []).tolist() == [0]
    assert offsets(3, [Edit(0, 3, "")]).tolist() == [3]
