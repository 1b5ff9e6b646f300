"""The online rules find what ``diagnose/spikes.py`` finds afterwards, at the same steps; limits say it beforehand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.alarm_config import AlarmConfig
from workbench.config import TrainConfig
from workbench.diagnose import spikes
from workbench.diagnose.columns import spread as array_spread
from workbench.evaluate.perplexity import Perplexity
from workbench.train import detectors
from workbench.train.alarms import Alarms

CONFIG = AlarmConfig()
VALUES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60)


def steps_of(rows, kind, config=CONFIG):
    alarms = Alarms(config, TrainConfig())
    return [a.step for row in rows for a in alarms.after_step(row) if a.kind == kind]


def noisy(seed, n=400, tail=3):
    """Losses and norms with tails heavy enough that both rules have something to find."""
    rng = np.random.default_rng(seed)
    loss = 2 + 4 * np.exp(-np.arange(n) / 60) + rng.standard_t(tail, n) * 0.12
    loss[rng.integers(60, n, 3)] += rng.uniform(0.3, 3, 3)
    norm = np.exp(rng.standard_t(tail, n) * 0.8)
    return [
        {"step": i + 1, "loss": float(np.float32(a)), "grad_norm": float(np.float32(b)), "overflow": 0}
        for i, (a, b) in enumerate(zip(loss, norm))
    ]


@given(VALUES)
def test_medians_are_numpys(values):
    assert detectors.middle(values) == np.median(values)
    assert detectors.spread(values) == pytest.approx(float(array_spread(np.array(values))), rel=1e-12)


def test_loss_spikes_are_those_found_afterwards():
    found = {}
    for seed in range(15):
        rows = noisy(seed)
        found[seed] = steps_of(rows, "loss_spike")
        assert found[seed] == [f.step for f in spikes.loss_spikes(rows)], seed
    assert sum(map(len, found.values())) > 15


@pytest.mark.parametrize("window", [11, 30, 120])
def test_loss_spikes_with_other_limits(window):
    config = AlarmConfig(spike_window=window, spike_deviations=4, spike_nats=0.2)
    for seed in range(4):
        rows = noisy(seed, tail=2)
        offline = spikes.loss_spikes(rows, window=window, k=4, min_jump=0.2)
        assert steps_of(rows, "loss_spike", config) == [f.step for f in offline] != []


def test_explosions_are_found_where_they_are_found_afterwards():
    both = 0
    for seed in range(30):
        rows = noisy(seed)
        offline = [f for f in spikes.gradient_norms(rows) if f.cause == "exploding gradient"]
        online = steps_of(rows, "exploding_gradient")
        assert bool(offline) == bool(online), seed
        both += bool(online)
        # What is found afterwards dates from the first high row; nothing is raised before that.
        assert not online or online[0] >= offline[0].step
    assert 5 < both < 30


def test_zero_gradients_are_found_where_they_are_found_afterwards():
    for length in (4, 5, 60):
        rows = [{**r, "grad_norm": 0.0} if 100 <= r["step"] < 100 + length else r for r in noisy(0)]
        offline = [f.step for f in spikes.gradient_norms(rows) if f.cause == "dead gradient"]
        assert steps_of(rows, "dead_gradient") == [s + 4 for s in offline] == ([104] if length > 4 else [])


@given(st.lists(st.tuples(st.sampled_from([1.0, math.nan, math.inf]), st.integers(0, 1)), max_size=40))
def test_losses_that_are_not_finite_are_those_found_afterwards(given_rows):
    rows = [{"step": i, "loss": loss, "overflow": over} for i, (loss, over) in enumerate(given_rows)]
    offline = spikes.spoilt_rows(rows)
    online = steps_of(rows, "non_finite_loss")
    # Three overflows are dated back to the first of them, and known at the third.
    assert bool(offline) == bool(online) and (not offline or online[0] - offline[0]["step"] in (0, 1, 2))


def test_scale_at_its_floor_is_found_where_it_is_found_afterwards():
    scales = [4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    rows = [{"step": i, "overflow": o, "loss_scale": s} for i, (s, o) in enumerate(zip(scales, [1, 1, 1, 1, 0, 0, 1]))]
    (offline,) = [f for f in spikes.overflow_storm(rows) if "floor" in f.cause]
    assert steps_of(rows, "scale_floor") == [offline.step, 6] == [2, 6]


@settings(max_examples=60)
@given(st.lists(st.floats(1, 500), min_size=1, max_size=30), st.floats(1.1, 4))
def test_perplexity_jumps_with_tight_intervals_are_those_found_afterwards(values, factor):
    alarms = Alarms(AlarmConfig(perplexity_factor=factor), TrainConfig())
    online = [a.step for i, v in enumerate(values) for a in alarms.after_evaluation(i, Perplexity(v, v, v, 1, 1))]
    offline = spikes.perplexity_jumps([{"step": i, "perplexity": v} for i, v in enumerate(values)], factor)
    assert online[:1] == [f.step for f in offline]


def test_the_articles_collapse_and_a_noisy_descent():
    alarms = Alarms(CONFIG, TrainConfig())
    for step, value in ((0, 900.0), (100, 60.0), (200, 28.6), (300, 31.0)):
        assert alarms.after_evaluation(step, Perplexity(value, 0.9 * value, 1.1 * value, 1, 1)) == []
    (alarm,) = alarms.after_evaluation(400, Perplexity(132.4, 120.0, 145.0, 1, 1))
    assert (alarm.first_step, alarm.last_step, alarm.policy) == (301, 400, "note")
    assert "132.4" in alarm.message and "28.6 at step 200" in alarm.message and "42.9" in alarm.message
    assert alarms.after_evaluation(500, Perplexity(140, 130, 150, 1, 1)) == []  # the same episode
    assert alarms.after_evaluation(600, Perplexity(30, 28, 33, 1, 1)) == []
    assert len(alarms.after_evaluation(700, Perplexity(math.inf, 1, math.inf, 1, 1))) == 1


def test_what_few_rows_cannot_tell_apart_is_no_jump():
    alarms = Alarms(CONFIG, TrainConfig())
    assert alarms.after_evaluation(0, Perplexity(20, 5, 80, 10, 2)) == []
    assert alarms.after_evaluation(1, Perplexity(60, 15, 240, 10, 2)) == []
    assert len(alarms.after_evaluation(2, Perplexity(81, 15, 240, 10, 2))) == 1


SKIPPING = AlarmConfig(loss_spike="skip", exploding_gradient="skip")


@pytest.mark.parametrize("seed", range(3))
def test_a_step_above_its_limits_is_an_alarm_and_no_other(seed):
    alarms, above = Alarms(SKIPPING, TrainConfig()), 0
    rows = noisy(seed, n=150)
    rows[100] |= {"loss": 9.0}
    rows[130] |= {"grad_norm": 2000.0}
    for row in rows:
        limits, before = alarms.limits(), alarms.state()
        for kind, name, limit in zip(("loss_spike", "exploding_gradient"), ("loss", "grad_norm"), limits):
            one = Alarms(SKIPPING, TrainConfig())
            one.load({**before, "active": []})
            raised = kind in [a.kind for a in one.after_step(row)]
            assert raised == (row[name] > limit)
            above += raised
            if math.isfinite(limit):
                at, over = float(limit), float(np.nextafter(np.float32(limit), np.float32(math.inf)))
                for value, wanted in ((at, False), (over, True)):
                    one.load({**before, "active": []})
                    assert (kind in [a.kind for a in one.after_step({**row, name: value})]) == wanted
        alarms.after_step(row)
    assert above >= 2


def test_ranks_that_scatter_alike_are_not_apart_and_an_offset_is():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        losses = 3 + rng.normal(0, 1.0, (500, 8)) + rng.normal(0, 1, (500, 1))
        rows = [{"step": i, "rank_losses": row.tolist()} for i, row in enumerate(losses)]
        alarms = Alarms(CONFIG, TrainConfig(), world=8)
        assert [a for r in rows for a in alarms.after_step(r)] == []
        apart = [{**r, "rank_losses": [v + 4.2 * (i == 3) for i, v in enumerate(r["rank_losses"])]} for r in rows]
        (alarm,) = [a for r in apart for a in Alarms.after_step(alarms, {**r, "step": r["step"] + 500})]
        assert alarm.kind == "rank_divergence" and "rank 3 has" in alarm.message and alarm.step <= 520
        assert alarm.last_step - alarm.first_step == CONFIG.rank_window - 1
