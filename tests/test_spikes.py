"""Faults written into healthy noisy curves are found at their step; healthy curves raise no alarm."""

import math

import numpy as np
import pytest

from workbench.diagnose import spikes
from workbench.errors import DataError


def healthy(seed, n=600):
    """A decaying loss with row noise and heavy tails, a warm-up of the gradient, a loss scale coming down."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    loss = 1.5 + 6.1 * np.exp(-t / 60) + 1.5 * np.exp(-t / 400) + rng.standard_t(5, n) * 0.05
    norm = (0.8 + 6 * np.exp(-t / 15)) * np.exp(rng.normal(0, 0.3, n))
    rows = []
    scale, good = 65536.0, 0
    for i in range(n):
        overflow = int(scale > 1024 or (good > 0 and good % 200 == 0))
        good = 0 if overflow else good + 1
        rows.append(
            {
                "step": i + 1,
                "loss": loss[i],
                "grad_norm": math.inf if overflow else norm[i],
                "overflow": overflow,
                "loss_scale": scale,
            }
        )
        scale = scale / 2 if overflow else scale
    return rows


def alarms(rows):
    return (
        spikes.non_finite(rows)
        + spikes.loss_spikes(rows)
        + spikes.loss_divergence(rows)
        + spikes.overflow_storm(rows)
        + spikes.gradient_norms(rows)
    )


def test_no_alarm_on_healthy_curves():
    assert {seed: [str(f) for f in alarms(healthy(seed))] for seed in range(12)} == {seed: [] for seed in range(12)}


def change(rows, steps, **values):
    return [{**r, **{k: v(r[k]) for k, v in values.items()}} if r["step"] in steps else r for r in rows]


@pytest.mark.parametrize("seed", range(3))
def test_a_spike_is_one_warning_at_its_step_and_no_divergence(seed):
    rows = change(healthy(seed), range(300, 306), loss=lambda v: v + 1.532)
    (finding,) = alarms(rows)
    assert (finding.cause, finding.severity, finding.step) == ("loss spike", "warning", 300)
    assert float(finding.evidence[0].split(": +")[1].split()[0]) > 1.3


def test_the_rows_that_stand_out_are_those_of_a_plain_loop():
    counts = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        loss = np.cumsum(rng.normal(-0.01, 0.02, 150)) + rng.standard_t(2, 150) * 0.3
        wanted = []
        for i in range(10, 150):
            past = loss[max(0, i - 30) : i]
            moves = np.diff(past)
            noise = 1.4826 * np.median(np.abs(moves - np.median(moves)))
            if loss[i] - np.median(past[-10:]) > max(0.5, 4 * noise):
                wanted.append(i)
        rows = [{"step": i, "loss": v} for i, v in enumerate(loss)]
        found = spikes.loss_spikes(rows, window=30, k=4)
        assert sum(int(f.evidence[1].split()[0]) for f in found) == len(wanted)
        assert [f.step for f in found] == [i for n, i in enumerate(wanted) if n == 0 or i - wanted[n - 1] > 30]
        counts.append(len(wanted))
    assert sum(counts) > 10


def test_two_spikes_far_apart_are_two():
    rows = change(healthy(0), [200, 400], loss=lambda v: v + 3)
    assert [f.step for f in spikes.loss_spikes(rows)] == [200, 400]


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_that_stays_up_is_divergence_near_its_step(seed):
    rows = change(healthy(seed), range(400, 601), loss=lambda v: v + 1.532)
    (finding,) = spikes.loss_divergence(rows)
    assert (finding.cause, finding.severity) == ("loss divergence", "fatal") and abs(finding.step - 400) <= 10


def test_a_slow_climb_without_a_jump_is_divergence():
    rows = healthy(1)
    climbing = [{**r, "loss": r["loss"] + max(0, r["step"] - 350) * 0.01} for r in rows]
    assert spikes.loss_spikes(climbing) == []
    (finding,) = spikes.loss_divergence(climbing)
    assert 350 < finding.step < 600


def test_nan_is_fatal_at_its_first_step_but_not_where_it_was_skipped():
    rows = change(healthy(2), range(250, 601), loss=lambda v: math.nan)
    (finding,) = spikes.non_finite(rows)
    assert (finding.cause, finding.severity, finding.step) == ("non-finite loss", "fatal", 250)
    assert any("at step 249" in e for e in finding.evidence)
    skipped = change(healthy(2), [250, 300], loss=lambda v: math.inf, overflow=lambda v: 1)
    assert spikes.non_finite(skipped) == []
    lasting = change(healthy(2), range(250, 260), loss=lambda v: math.inf, overflow=lambda v: 1)
    assert spikes.non_finite(lasting)[0].step == 250


def test_a_non_finite_gradient_that_was_not_skipped():
    (finding,) = spikes.non_finite(change(healthy(0), [333], grad_norm=lambda v: math.inf))
    assert (finding.cause, finding.step) == ("non-finite gradient", 333)
    both = change(healthy(0), [333], grad_norm=lambda v: math.nan, loss=lambda v: math.nan)
    assert [f.cause for f in spikes.non_finite(both)] == ["non-finite loss"]


def evaluations(*values):
    return [{"kind": "evaluation", "step": 100 * (i + 1), "perplexity": v} for i, v in enumerate(values)]


def test_the_articles_collapse_alarms_with_its_size():
    (finding,) = spikes.perplexity_jumps(evaluations(60.0, 35.0, 28.6, 132.4))
    assert (finding.cause, finding.severity, finding.step) == ("perplexity collapse", "fatal", 400)
    assert "x4.63" in finding.evidence[0] and "+1.532 nats" in finding.evidence[0]
    (back,) = spikes.perplexity_jumps(evaluations(60.0, 28.6, 132.4, 30.0))
    assert back.severity == "warning" and back.step == 300


def test_perplexity_that_is_infinite_or_merely_wobbles():
    assert spikes.perplexity_jumps(evaluations(40.0, math.inf))[0].severity == "fatal"
    assert spikes.perplexity_jumps(evaluations(math.nan))[0].step == 100
    assert spikes.perplexity_jumps(evaluations(50, 40, 42, 38, 39)) == []
    assert spikes.perplexity_jumps([{"kind": "start", "time": 1.0}]) == []


def test_an_overflow_storm_and_its_floor():
    storm = change(healthy(0), range(200, 240), overflow=lambda v: 1)
    (finding,) = spikes.overflow_storm(storm)
    assert (finding.cause, finding.severity) == ("overflow storm", "warning") and finding.step == 200
    floored = change(storm, range(230, 240), loss_scale=lambda v: 1.0)
    assert [(f.cause, f.severity, f.step) for f in spikes.overflow_storm(floored)] == [
        ("loss scale at its floor", "fatal", 230), ("overflow storm", "warning", 200),
    ]  # fmt: skip
    assert spikes.overflow_storm(change(healthy(0), range(1, 401), overflow=lambda v: 1))[-1].severity == "fatal"


def test_the_storm_counts_windows_as_brute_force_does():
    rng = np.random.default_rng(4)
    for _ in range(30):
        flags = (rng.random(120) < rng.uniform(0.1, 0.4)).astype(int)
        rows = [{"step": i, "overflow": int(f), "loss_scale": 64.0} for i, f in enumerate(flags)]
        worst = max(flags[i : i + 50].sum() for i in range(120))
        assert bool(spikes.overflow_storm(rows)) == (worst >= 15)


def test_dead_and_exploding_gradients():
    (dead,) = spikes.gradient_norms(change(healthy(0), range(100, 601), grad_norm=lambda v: 0.0))
    assert (dead.cause, dead.severity, dead.step) == ("dead gradient", "fatal", 100)
    assert spikes.gradient_norms(change(healthy(0), range(100, 104), grad_norm=lambda v: 0.0)) == []
    (burst,) = spikes.gradient_norms(change(healthy(0), range(300, 310), grad_norm=lambda v: v * 40))
    assert (burst.cause, burst.step) == ("exploding gradient", 300)
    (once,) = spikes.gradient_norms(change(healthy(0), [300], grad_norm=lambda v: v * 1000))
    assert once.step == 300


@pytest.mark.parametrize(
    "rows", [[], [{"step": 1}], [{"step": 1, "loss": 2.0, "grad_norm": 1.0, "overflow": 0, "loss_scale": 1.0}]]
)
def test_nearly_nothing_is_no_alarm(rows):
    assert alarms(rows) == []


def test_wrong_rows_are_refused_by_name():
    with pytest.raises(DataError, match="loss='bad'"):
        spikes.non_finite([{"step": 1, "loss": "bad"}])
    with pytest.raises(DataError, match="perplexity"):
        spikes.perplexity_jumps([{"kind": "evaluation", "step": 1, "perplexity": "low"}])
