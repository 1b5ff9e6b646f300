"""ZeRO-1 against the plain optimizer: on one rank here, on two in one launch of ``ranks_sharding.py``."""

import json
from pathlib import Path

import numpy as np
import pytest
from optimizer_arms import SHAPES, STEPS, STOP, Arm, differing, furthest

from workbench.errors import DataError
from workbench.launching import launch

ELEMENTS = sum(int(np.prod(s)) for s in SHAPES.values())


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What the launched ranks left: told by rank, and a function of (name, rank) -> arrays."""
    out = tmp_path_factory.mktemp("ranks")
    one = Arm(optimizer_sharding="zero1").run(0, STOP)
    assert one.updates == STOP - 1
    np.savez(out / "one.npz", **one.arrays())
    launch(str(Path(__file__).parent / "ranks_sharding.py"), [str(out)], workers=2, timeout=550)
    return [json.loads((out / f"told-{r}.json").read_text()) for r in (0, 1)], lambda name, rank=0: dict(
        np.load(out / f"{name}-{rank}.npz")
    )


@pytest.fixture(scope="module")
def plain():
    return Arm().run().arrays()


@pytest.mark.parametrize("by", ["bytes", "size_groups", "parameter"])
def test_one_rank_is_the_plain_optimizer_to_the_bit(plain, by):
    arm = Arm(optimizer_sharding="zero1", bucket_by=by).run()
    assert arm.updates == STEPS - 1 and differing(plain, arm.arrays()) == []
    assert arm.optimizer.resident_bytes() == {"device": 8 * ELEMENTS, "host": 0, "disk": 0}


@pytest.mark.parametrize("by", ["bytes", "size_groups", "parameter"])
def test_two_ranks_are_plain_data_parallelism_to_the_bit(two, plain, by):
    told, arrays = two
    assert differing(arrays("plain"), plain) == [], "and that is one rank with the summed gradients"
    for rank in (0, 1):
        assert differing(plain, arrays(f"zero1-{by}", rank)) == []
        assert told[rank][f"zero1-{by}"]["updates"] == STEPS - 1


def test_clipping_differs_in_the_last_bits_of_the_norm_only(two):
    told, arrays = two
    norms = [np.asarray(t[name]["norms"]) for t in told for name in ("plain-clipped", "zero1-clipped")]
    for other in norms[1:]:
        assert np.allclose(norms[0], other, rtol=3e-7, equal_nan=True)
    assert furthest(arrays("plain-clipped"), arrays("zero1-clipped")) < 1e-6
    assert differing(arrays("zero1-clipped", 0), arrays("zero1-clipped", 1)) == []


def test_each_rank_holds_half_of_the_moments_and_what_fills_up(two):
    told, _ = two
    for rank in (0, 1):
        assert told[rank]["plain"]["bytes"]["device"] == 8 * ELEMENTS
        for by in ("bytes", "size_groups", "parameter"):
            filled = 8 * len(SHAPES)  # at most one element a bucket, both moments, halved
            assert 4 * ELEMENTS <= told[rank][f"zero1-{by}"]["bytes"]["device"] <= 4 * ELEMENTS + filled


def test_an_overflow_on_one_rank_changes_nothing_on_either(two):
    assert [t["changed by an overflow"] for t in two[0]] == [[], []]


def test_a_checkpoint_goes_from_two_ranks_to_one_and_from_one_to_two(two, plain):
    _, arrays = two
    saved = arrays("zero1-stopped")
    for sharding in ("zero1", "none"):
        resumed = Arm(optimizer_sharding=sharding).load(saved, STOP - 1.0).run(STOP, STEPS)
        assert differing(plain, resumed.arrays()) == []
    assert differing(plain, arrays("zero1-from-one", 1)) == []


def test_the_whole_step_on_two_ranks(two):
    """With clipping and an overflow of one rank."""
    told, arrays = two
    assert told[0]["losses-none"] == [pytest.approx(pair, abs=2e-6) for pair in told[0]["losses-zero1"]]
    assert [overflow for _, overflow in told[1]["losses-zero1"]] == [0, 0, 0, 1] + [0] * 16
    assert furthest(arrays("step-none"), arrays("step-zero1")) < 1e-6
    assert differing(arrays("step-zero1", 0), arrays("step-zero1", 1)) == []


def test_offload_on_two_ranks_is_plain_data_parallelism(two, plain):
    assert differing(plain, two[1]("offloaded", 1)) == []


def test_moments_that_do_not_fit_are_refused_and_nothing_is_written():
    arm = Arm(optimizer_sharding="zero1").run(0, 2)
    before = arm.arrays()
    wrong = {name: values for name, values in arm.optimizer.moments().items() if "norm" not in name}
    with pytest.raises(DataError, match="missing moment1.norm.weight, moment2.norm.weight"):
        arm.optimizer.load(wrong)
    assert differing(before, arm.arrays()) == []
