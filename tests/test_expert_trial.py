"""The routing trial writes rows that the diagnosis reads, and begins where its weights are."""

import numpy as np
import pytest

import workbench  # noqa: F401  (sets MindSpore's environment)

from workbench.config import ModelConfig
from workbench.diagnose.experts import collapsed, loads
from workbench.errors import DataError
from workbench.model.expert_trial import RoutingTrial
from workbench.model.weights import set_weights


def test_rows_are_metrics_and_the_same_start_gives_the_same_rows():
    config = ModelConfig(
        vocab_size=32, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_experts=4, initializer_range=0.1
    )
    ids = np.random.default_rng(0).integers(0, 32, 100)
    trial = RoutingTrial(config, ids, tokens=24)
    begin = {p.name: p.asnumpy().copy() for p in trial.weights}
    rows = trial.train(3, balance=0.1)
    steps, shares = loads(rows)
    assert steps.tolist() == [1, 2, 3] and shares.shape == (3, 1, 4)
    np.testing.assert_allclose(shares.sum(-1), 1)
    assert rows[-1]["loss"] < rows[0]["loss"] and rows[0]["dropped_assignments"] == 0
    assert not np.array_equal(trial.weights[0].asnumpy(), begin[trial.weights[0].name])
    set_weights(trial.weights, begin)
    again = trial.train(3, balance=0.1)
    np.testing.assert_allclose([r["loss"] for r in again], [r["loss"] for r in rows], rtol=1e-4)

    forced = {**begin, "layers.0.gate.weight": np.zeros((4, 16), np.float32)}
    forced["layers.0.gate.weight"][1] = trial.common
    set_weights(trial.weights, forced)
    (finding,) = collapsed([trial.step(1, 0, balance=0.0)[0]], experts_per_token=2)
    assert "nearly all tokens for expert 1 (50.00%)" in finding.evidence[0]


def test_a_text_that_is_too_short_is_refused():
    config = ModelConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_experts=4)
    with pytest.raises(DataError, match="the text has 25 tokens, the trial needs at least 26"):
        RoutingTrial(config, np.zeros(25, np.int64), tokens=24)
    shortest = RoutingTrial(config, np.zeros(26, np.int64), tokens=24)
    assert len(shortest.train(2, balance=0.0)) == 2
