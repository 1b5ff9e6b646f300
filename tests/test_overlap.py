"""The overlap sweep: arms that see the same targets, and runs that repeat."""

import numpy as np
import pytest
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.data.layout import make_layout
from workbench.data.sources import SampleSource
from workbench.data.store import CUT, LOSS, Entry, TokenStore
from workbench.train.overlap import EVALUATIONS, overlap_sweep, slots_of


def source_of(seed, documents):
    rng = np.random.default_rng(seed)
    # A text whose next token is the one before plus one, most of the time.
    entries = []
    for _ in range(documents):
        steps = np.where(rng.random(70) < 0.9, 1, rng.integers(0, 64, 70))
        entries.append(Entry((np.cumsum(steps) % 64).astype(np.int32), np.full(70, CUT | LOSS)))
    store = TokenStore.of(entries)
    return SampleSource("base", store, make_layout(store, 32, 0.25), 0)


@pytest.fixture(scope="module")
def runs():
    train = TrainConfig(batch_size=8, learning_rate=1e-2, warmup_steps=4)
    arms = [(0.0, 1.0), (0.5, 1.0), (0.0, 1.5), (0.0, 1.0)]
    source = source_of(0, 60)
    return source, overlap_sweep(source, source_of(1, 10), 16, arms, [0, 1], TINY, train)


def test_arms_and_seeds_are_all_run(runs):
    source, done = runs
    assert [(r.overlap, r.epochs, r.seed) for r in done[:4]] == [
        (0.0, 1.0, 0),
        (0.0, 1.0, 1),
        (0.5, 1.0, 0),
        (0.5, 1.0, 1),
    ]
    assert all(len(r.losses) == EVALUATIONS and np.isfinite(r.losses).all() for r in done)
    assert done[2].slots > 1.4 * done[0].slots and done[4].slots == pytest.approx(1.5 * done[0].slots, rel=0.1)
    assert done[0].slots - slots_of(source, 16, 0.0) in range(0, 8 * 16)


def test_it_learns_and_a_run_repeats(runs):
    _, done = runs
    assert all(r.losses[-1] < r.losses[0] < np.log(64) + 0.5 for r in done)
    # The same arm and seed again, after six others in the same compiled model.
    assert done[6].losses == pytest.approx(done[0].losses, rel=1e-4)
    assert done[0].losses != done[1].losses and done[0].wobble >= 0
