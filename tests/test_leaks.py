"""Memory slope against scipy and known lines; what is a leak and what is not."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.diagnose.leaks import leak_finding, longest_process, memory_slope, watch_dataset
from workbench.errors import DataError, SettingError


def level(n, seed, noise=2.0, start=900.0):
    return start + np.random.default_rng(seed).normal(0, noise, n)


@pytest.mark.parametrize("seed", range(5))
def test_slope_and_interval_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(1, 9, 60)).astype(float)
    y = 500 + 0.05 * x + rng.standard_t(2, 60)
    mine = memory_slope(x, y, warmup=0, confidence=0.9)
    theirs = stats.theilslopes(y, x, alpha=0.9)
    assert np.allclose(
        [mine.mb_per_1000_steps, mine.low, mine.high],
        [1000 * theirs.slope, 1000 * theirs.low_slope, 1000 * theirs.high_slope],
    )


@settings(deadline=None, max_examples=40)
@given(st.floats(-2, 2), st.floats(0, 1e4), st.integers(13, 500), st.integers(1, 50), st.floats(0, 0.2))
def test_an_exact_line_gives_its_slope_at_any_length_and_stride(slope, start, n, stride, warmup):
    x = np.arange(n) * stride
    found = memory_slope(x, start + slope * x, warmup)
    assert np.allclose([found.mb_per_1000_steps, found.low, found.high], 1000 * slope, atol=1e-6)
    assert found.steps == (n - 1 - int(warmup * n)) * stride


def test_the_interval_covers_the_true_slope_as_often_as_it_says():
    covered, rounds, n = 0, 200, 400
    for seed in range(rounds):
        found = memory_slope(np.arange(n), level(n, seed) + 0.01 * np.arange(n), warmup=0)
        covered += found.low <= 10 <= found.high
    assert 0.90 <= covered / rounds <= 0.99


def test_a_leak_is_found_with_numbers_that_hold_the_truth():
    x = np.arange(300)
    finding = leak_finding(x, level(300, 1) + 0.5 * x)
    assert (finding.cause, finding.layer, finding.severity, finding.step) == ("memory leak", "memory", "warning", 60)
    assert "500" in finding.evidence[0] or "499" in finding.evidence[0] or "501" in finding.evidence[0]


SHAPES = {
    "flat": lambda x: 0 * x,
    "a warm-up that ends": lambda x: np.minimum(x, 0.15 * x[-1]) * 2,
    "a step at 40 %": lambda x: 400.0 * (x > 0.4 * x[-1]),
    "a step at 60 %": lambda x: 400.0 * (x > 0.6 * x[-1]),
    "a step at 80 %": lambda x: 400.0 * (x > 0.8 * x[-1]),
    "a step at 95 %": lambda x: 400.0 * (x > 0.95 * x[-1]),
    "peaks every 50 steps": lambda x: 700.0 * (x % 50 == 0),
    "saturating": lambda x: 200 * (1 - np.exp(-x / (0.05 * x[-1]))),
    "memory given back": lambda x: -0.3 * x,
    "growth far below the limit": lambda x: 10.0 * x / x[-1],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_leak(shape, seed):
    x = np.arange(400)
    assert leak_finding(x, level(400, seed) + SHAPES[shape](x)) is None


def test_noise_that_remembers_itself_does_not_alarm():
    alarms = 0
    for seed in range(100):
        shocks, noise = np.random.default_rng(seed).normal(0, 1, 400), [0.0]
        for shock in shocks[1:]:
            noise.append(0.9 * noise[-1] + shock)
        alarms += leak_finding(np.arange(400), 900 + np.array(noise)) is not None
    assert alarms == 0


def test_one_kept_tensor_a_layer_a_step_is_found_within_200_steps():
    # 24 layers that each keep a float32 tensor of (128, 64): 0.75 MB a step.
    x = np.arange(200)
    kept = x * 24 * 128 * 64 * 4 / 2**20
    assert leak_finding(x, level(200, 3, noise=4) + kept).cause == "memory leak"


def test_a_resumed_run_is_judged_by_its_longest_process():
    x = np.arange(300)
    y = np.concatenate([level(100, 1) + 400, level(200, 2, start=400)])
    steps, rss = longest_process(x, y)
    assert steps[0] == 100 and rss.size == 200
    assert longest_process(np.array([]), np.array([]))[0].size == 0


@pytest.mark.parametrize(
    "steps, rss, error",
    [
        (range(11), [1.0] * 11, "at least 10"),
        (range(20), [1.0] * 19, "one length"),
        ([5] * 20, [1.0] * 20, "increase"),
        (range(20), [float("nan")] * 20, "finite"),
        ([], [], "at least 10"),
    ],
)
def test_bad_readings_are_refused(steps, rss, error):
    with pytest.raises(DataError, match=error):
        memory_slope(list(steps), rss)


def test_bad_settings_are_refused():
    for wrong in ({"warmup": 1.0}, {"confidence": 1.0}):
        with pytest.raises(SettingError, match="not allowed"):
            memory_slope(range(30), range(30), **wrong)
    with pytest.raises(SettingError, match="25 to rows"):
        watch_dataset(lambda: [1], rows=20)


@pytest.fixture(scope="module")
def watched():
    script = Path(__file__).with_name("leak_scenarios.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.mark.parametrize("name", ["closure", "map with a closure"])
def test_a_large_closure_is_no_leak(watched, name):
    watch = watched[name]
    assert watch["cause"] is None
    assert watch["passes"] == 4 and watch["rows"][-1] == 2000 and len(watch["rows"]) == 40


@pytest.mark.parametrize("name", ["gathering", "map that gathers"])
def test_a_pipeline_that_gathers_state_leaks(watched, name):
    watch = watched[name]
    assert (watch["cause"], watch["layer"]) == ("data pipeline leak", "data pipeline")
    # 16 KiB a row is 15.6 MB in 1000 rows.
    assert 14 < float(watch["evidence"].split("grew ")[1].split(" MB")[0]) < 19


def test_an_iterator_made_anew_each_epoch_and_never_freed_is_found(watched):
    watch = watched["iterator an epoch"]
    assert watch["passes"] == 50 and watch["cause"] == "data pipeline leak"


def test_a_pipeline_that_runs_dry_is_refused():
    once = iter(range(10))
    with pytest.raises(DataError, match="pass 2"):
        watch_dataset(lambda: once, rows=100)
