"""Data pipeline trouble written into a run's rows, and none in a clean one."""

import numpy as np
import pytest

from workbench.diagnose.pipeline import short_batches, step_order, waiting
from workbench.errors import DataError


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    seconds = np.exp(rng.normal(np.log(0.25), 0.15, n))
    return [
        {"step": i + 1, "step_seconds": s, "tokens_per_second": 2048 / s, "cpu_percent": 180 + rng.normal(0, 8)}
        for i, s in enumerate(seconds)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_run_and_one_that_logs_every_tenth_step(seed):
    clean = rows(seed=seed)
    assert step_order(clean) + short_batches(clean) + waiting(clean) == []
    assert step_order([r for r in clean if r["step"] % 10 == 0]) == []
    assert step_order([]) == short_batches([]) == waiting([]) == []


def test_steps_logged_twice_and_missing():
    (twice,) = step_order(rows()[:100] + rows()[80:])
    assert (twice.cause, twice.step) == ("step logged twice", 81) and "20 steps" in twice.evidence[0]
    (hole,) = step_order(rows()[:100] + rows()[120:])
    assert (hole.cause, hole.step) == ("steps missing", 100) and "goes on at 121" in hole.evidence[0]


def test_short_batches():
    part = [{**r, "tokens_per_second": r["tokens_per_second"] / (4 if r["step"] > 150 else 1)} for r in rows()]
    (finding,) = short_batches(part)
    assert finding.step == 151 and "50 steps" in finding.evidence[0]


def test_slow_and_idle_is_waiting_while_slow_and_busy_is_not():
    def slowed(cpu):
        return [
            {**r, "step_seconds": r["step_seconds"] * 3, "cpu_percent": cpu} if r["step"] > 120 else r for r in rows()
        ]

    (idle,) = waiting(slowed(60))
    assert idle.cause == "waiting for data" and idle.step == 121
    (busy,) = waiting(slowed(180))
    assert busy.cause == "steps slow down"


def test_a_row_without_a_step_is_refused():
    with pytest.raises(DataError, match="row 2"):
        step_order([{"step": 1}, {"loss": 2}])
