"""The learning rate at known steps."""

import pytest

from workbench.config import TrainConfig
from workbench.train.optimizing import decays
from workbench.train.schedule import learning_rate_at

CONFIG = TrainConfig(steps=110, warmup_steps=10, learning_rate=1.0, min_lr_ratio=0.1)


@pytest.mark.parametrize(("step", "rate"), [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (500, 0.1)])
def test_warm_up_then_cosine(step, rate):
    assert learning_rate_at(step, CONFIG) == pytest.approx(rate)


def test_no_warm_up_and_warm_up_longer_than_the_run():
    assert learning_rate_at(0, TrainConfig(warmup_steps=0, learning_rate=1.0)) == 1.0
    short = TrainConfig(steps=5, warmup_steps=50, learning_rate=1.0)
    assert learning_rate_at(4, short) == pytest.approx(0.1)


def test_only_matrices_decay():
    assert decays("model.layers.0.mlp.up_proj.weight", 2)
    assert not decays("model.norm.weight", 1) and not decays("task_embedding.weight", 2)
