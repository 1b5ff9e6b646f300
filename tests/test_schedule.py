"""The learning rate at known steps, beside transformers' schedules, and held where it is."""

from dataclasses import replace

import pytest
import torch
from step_runs import batch_of, fresh
from transformers.optimization import get_cosine_with_min_lr_schedule_with_warmup, get_wsd_schedule

from workbench.config import TrainConfig
from workbench.train.schedule import learning_rate_at

CONFIG = TrainConfig(steps=110, warmup_steps=10, learning_rate=1.0, min_lr_ratio=0.1)
STABLE = replace(CONFIG, lr_scheduler_type="warmup_stable_decay", decay_share=0.5)


@pytest.mark.parametrize(("step", "rate"), [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (500, 0.1)])
def test_warm_up_then_cosine(step, rate):
    assert learning_rate_at(step, CONFIG) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.1), (9, 1.0), (10, 1.0), (55, 1.0), (82.5, 0.55), (110, 0.1), (500, 0.1)]
)
def test_warm_up_stable_decay(step, rate):
    assert learning_rate_at(step, STABLE) == pytest.approx(rate)


def test_no_warm_up_and_warm_up_longer_than_the_run():
    assert learning_rate_at(0, TrainConfig(warmup_steps=0, learning_rate=1.0)) == 1.0
    short = TrainConfig(steps=5, warmup_steps=50, learning_rate=1.0)
    assert learning_rate_at(4, short) == pytest.approx(0.1)


def test_a_decay_that_reaches_into_the_warm_up_begins_where_that_ends():
    config = replace(STABLE, warmup_steps=80)
    rates = [learning_rate_at(step, config) for step in (40, 79, 80, 95, 110)]
    assert rates == pytest.approx([41 / 80, 1.0, 1.0, 0.55, 0.1])


def test_a_constant_rate_is_constant_after_the_warm_up():
    config = replace(CONFIG, lr_scheduler_type="constant")
    assert [learning_rate_at(s, config) for s in (4, 9, 10, 109, 10_000)] == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_the_decays_are_those_of_transformers():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = get_cosine_with_min_lr_schedule_with_warmup(optimizer, 10, 110, min_lr_rate=0.1)
    stable = get_wsd_schedule(optimizer, 10, 55, num_stable_steps=45, min_lr_ratio=0.1, decay_type="linear")
    for step in range(110):
        if step >= 10:  # theirs begins the warm-up at a rate of 0, ours at one step's share
            assert learning_rate_at(step, CONFIG) == pytest.approx(cosine.lr_lambdas[0](step), abs=1e-9)
            assert learning_rate_at(step, STABLE) == pytest.approx(stable.lr_lambdas[0](step), abs=1e-9)


def test_a_frozen_schedule_stands_still_goes_on_where_it_stood_and_survives_the_checkpoint():
    train = replace(CONFIG, warmup_steps=0, steps=8, learning_rate=1e-3)
    state, step = fresh(train)

    def rates(count):
        return [step(state, batch_of(i))[1]["learning_rate"] for i in range(count)]

    first = rates(3)
    state.freeze()
    assert rates(2) == [learning_rate_at(3, train)] * 2
    saved = state.arrays()
    state.thaw()
    assert rates(2) == [learning_rate_at(3, train), learning_rate_at(4, train)]
    assert first == [learning_rate_at(i, train) for i in range(3)]
    assert state.numbers()["updates"] == 7
    state.load(*saved)
    assert state.numbers()["frozen"] == 1 and rates(2) == [learning_rate_at(3, train)] * 2
