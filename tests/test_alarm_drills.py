"""Faults in real training, each through the one compiled step: the alarm comes within its bound."""

import math

import numpy as np
import pytest
from step_runs import TRAIN, batch_of, fresh

from workbench.alarm_config import AlarmConfig
from workbench.evaluate.perplexity import Perplexity
from workbench.train.alarms import Alarms

LEARNT = 60  # steps until the batch is known by heart
RATE = 0.02


class Run:
    """Training on one batch, which is learnt by heart, and on its twin with other numbers when a fault asks for it."""

    def __init__(self, config=AlarmConfig()):
        self.state, self.step = fresh()
        self.alarms, self.found, self.at = Alarms(config, TRAIN), [], 0

    def steps(self, count, seed=0, rate=RATE, **fault):
        """``count`` steps; the alarms that they raised."""
        before = len(self.found)
        for _ in range(count):
            self.at += 1
            _, metrics = self.step(self.state, batch_of(seed) | fault, rate, self.alarms.limits())
            self.found += self.alarms.after_step({"step": self.at, **metrics})
        return self.found[before:]

    def evaluate(self):
        """The alarms of an evaluation, on the batch that is learnt, at the weights as they are."""
        kept = self.state.arrays()
        _, metrics = self.step(self.state, batch_of(0), 0.0)
        self.state.load(*kept)
        value = math.exp(metrics["loss"])
        return self.alarms.after_evaluation(self.at, Perplexity(value, 0.95 * value, 1.05 * value, 30, 2))


@pytest.fixture
def run():
    trained = Run()
    assert trained.steps(LEARNT) == []
    return trained


def test_a_batch_of_random_tokens_is_a_loss_spike_at_its_step(run):
    alarm, *others = run.steps(1, seed=1)
    assert (alarm.kind, alarm.step, alarm.first_step) == ("loss_spike", LEARNT + 1, LEARNT + 1)
    assert {a.kind for a in others} <= {"exploding_gradient"}  # such a batch has a large gradient too


def test_a_learning_rate_spike_is_a_perplexity_jump_at_the_next_evaluation():
    run = Run()
    for _ in range(6):
        assert run.steps(10) == [] and run.evaluate() == []
    run.steps(5, rate=2.0)
    (alarm,) = run.evaluate()
    assert (alarm.kind, alarm.first_step, alarm.last_step) == ("perplexity_jump", LEARNT + 1, LEARNT + 5)


def test_an_infinite_loss_factor_drives_the_scale_to_its_floor(run):
    halvings = int(math.log2(run.state.numbers()["loss_scale"] / TRAIN.min_loss_scale))
    assert run.steps(halvings, loss_factor=math.inf) == []
    (alarm,) = run.steps(3, loss_factor=math.inf)
    assert (alarm.kind, alarm.step) == ("scale_floor", LEARNT + halvings + 1)
    assert run.steps(1) == [] and len(run.steps(1, loss_factor=math.inf)) == 1


def test_a_loss_factor_of_zero_is_a_dead_gradient_within_five_steps(run):
    (alarm,) = run.steps(8, loss_factor=0.0)
    assert (alarm.kind, alarm.step, alarm.first_step) == ("dead_gradient", LEARNT + 5, LEARNT + 1)


def test_a_loss_factor_of_a_million_explodes_at_once(run):
    (alarm,) = run.steps(1, loss_factor=1e6)
    assert (alarm.kind, alarm.step) == ("exploding_gradient", LEARNT + 1)


def test_weights_that_are_not_finite_stop_the_run(run):
    weights, optimizer = run.state.arrays()
    run.state.load({n: np.full_like(v, np.nan) for n, v in weights.items()}, optimizer)
    (alarm,) = run.steps(3)
    assert (alarm.kind, alarm.step, alarm.first_step, alarm.policy) == (
        "non_finite_loss",
        LEARNT + 3,
        LEARNT + 1,
        "stop",
    )


def test_with_skip_the_random_batch_changes_nothing_until_the_run_gives_up():
    run = Run(AlarmConfig(loss_spike="skip", max_skips_in_row=3))
    assert run.steps(LEARNT) == []
    kept = run.state.arrays()[0]
    alarm, *others = run.steps(2, seed=1)
    assert (alarm.kind, alarm.step, alarm.policy) == ("loss_spike", LEARNT + 1, "skip")
    assert {a.kind for a in others} <= {"exploding_gradient"}
    now = run.state.arrays()[0]
    assert all(np.array_equal(kept[n], now[n]) for n in kept)
    (alarm,) = run.steps(3, seed=1)
    assert (alarm.step, alarm.first_step, alarm.policy) == (LEARNT + 3, LEARNT + 1, "stop")
    assert run.steps(1) == [] and any((kept[n] != v).any() for n, v in run.state.arrays()[0].items())


def test_three_clean_runs_are_silent():
    rates = np.concatenate([np.linspace(0, RATE, 10), RATE * np.cos(np.linspace(0, 1.5, 90))])
    for seed in range(3):
        run = Run(AlarmConfig(spike_window=20))
        for i, rate in enumerate(rates):
            assert run.steps(1, seed=10 * seed + i % 3, rate=float(rate)) == []
        assert run.evaluate() == []
