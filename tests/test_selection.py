"""An exact share by content: exact in number, the smallest hashes, the same for any split of the work."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.selection import candidates, choose, content_hash
from workbench.errors import SettingError

SHARES = {
    0.15: Fraction(3, 20),
    0.0: Fraction(0),
    1.0: Fraction(1),
    0.001: Fraction(1, 1000),
    0.999: Fraction(999, 1000),
}


def hashes_of(count, seed=0):
    return np.asarray([content_hash(f"document {i}", seed) for i in range(count)], np.uint64)


def run(hashes, share, block):
    chosen, carried = [], Fraction(0)
    for start in range(0, len(hashes), block):
        mask, carried = choose(hashes[start : start + block], share, carried)
        chosen.append(mask)
    return np.concatenate(chosen), carried


@pytest.mark.parametrize("count", [57, 999, 10_000])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("block", [1, 7, 64, 10_000])
def test_the_number_is_exact_at_the_end_of_every_block(count, share, block):
    mask, carried = run(hashes_of(count), share, block)
    for end in {*range(block, count, block), count}:
        assert mask[:end].sum() == int(end * SHARES[share])
    assert carried == count * SHARES[share] % 1


def test_fifteen_percent_of_ten_thousand_is_fifteen_hundred():
    assert run(hashes_of(10_000), 0.15, 256)[0].sum() == 1500


def test_of_one_block_the_smallest_hashes_are_taken_and_of_equal_ones_the_earlier():
    hashes = np.asarray([5, 3, 3, 2**64 - 1, 3, 0], np.uint64)
    mask, _ = choose(hashes, 0.5, Fraction(0))
    assert mask.tolist() == [False, True, True, False, False, True]
    mask, _ = choose(hashes, 0.5, Fraction(2, 3))
    assert mask.sum() == 3
    assert choose(hashes[:0], 0.5, Fraction(1, 3)) == (pytest.approx([]), Fraction(1, 3))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60),
    st.integers(0, 1000),
    st.integers(0, 999),
)
def test_a_worker_that_knows_no_remainder_prepares_all_that_can_be_chosen(values, thousandths, carried):
    hashes, share = np.asarray(values, np.uint64), thousandths / 1000
    # What can be carried are whole thousandths, and nothing where the share is 0.
    carried = Fraction(carried if thousandths else 0, 1000)
    mask, _ = choose(hashes, share, carried)
    ready = candidates(hashes, share)
    assert mask.sum() == int(len(values) * Fraction(thousandths, 1000) + carried)
    assert set(np.flatnonzero(mask)) == set(ready[: mask.sum()]) and len(ready) <= int(len(values) * share + 1e-9) + 1
    keys = [(values[i], i) for i in ready]
    assert keys == sorted(keys)


def test_the_choice_follows_the_content_wherever_a_document_stands_in_its_block():
    texts = [f"document {i}" for i in range(200)]
    shuffled = [texts[i] for i in np.random.default_rng(0).permutation(200)]

    def chosen(order):
        mask, _ = choose(np.asarray([content_hash(t, 4) for t in order], np.uint64), 0.15, Fraction(0))
        return {t for t, taken in zip(order, mask) if taken}

    assert chosen(texts) == chosen(shuffled) and len(chosen(texts)) == 30


def test_the_hash_depends_on_text_and_seed_and_is_spread_evenly():
    assert content_hash("中文😀", 1) == content_hash("中文😀", 1) != content_hash("中文😀", 2)
    assert content_hash("1\0a", 1) != content_hash("a", 11)
    assert 0 <= content_hash("\ud800", 0) < 2**64, "a lone surrogate, as broken JSON gives it, is no crash"
    counts = np.bincount((hashes_of(8000) >> np.uint64(61)).astype(int), minlength=8)
    assert ((counts - 1000) ** 2 / 1000).sum() < 26, "chi-square with 7 degrees of freedom, 0.05 % tail"


@pytest.mark.parametrize("share", [-0.1, 1.0001, float("nan"), float("inf"), Fraction(3, 2)])
def test_a_share_outside_nothing_to_all_is_refused(share):
    with pytest.raises(SettingError, match="share=.* is not allowed: 0 to 1"):
        choose(hashes_of(3), share, Fraction(0))
    with pytest.raises(ValueError, match="carried=1"):
        choose(hashes_of(3), 0.5, Fraction(1))
