"""The kill test in a shortened form; in full it is ``python -m tests.kills --kills 50``."""

import pytest

from tests.kills import kill_often


@pytest.mark.parametrize("seed", [20231024])
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path, seed):
    told = kill_often(tmp_path, kills=3, seed=seed, steps=50, layers=1, moments=("writing", "evaluating", "step"))
    assert told["kills"] == 3 and told["resumes"] >= 1 and told["rollbacks"] >= 1
    assert told["equal"] and all(told["equal"].values()), told
