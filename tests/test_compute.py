"""compute.py against the parameters of real cells and a count by hand."""

import numpy as np
import pytest

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.config import ModelConfig
from workbench.model.compute import dense_twin, feed_forward_weights, flops_per_token, product_weights
from workbench.model.experts import SparseMoE
from workbench.model.feed_forward import SwiGLU

SPARSE = ModelConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=40,
    num_hidden_layers=4,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=12,
    decoder_sparse_step=2,
)


@pytest.mark.parametrize("shared", [0, 10])
def test_the_weights_are_those_of_the_cells(shared):
    config = ModelConfig(
        hidden_size=16, num_experts=8, moe_intermediate_size=12, shared_expert_intermediate_size=shared
    )
    cell = SparseMoE(config, np.random.default_rng(0), ms.float32)
    met, total = feed_forward_weights(config, 0)
    assert total == sum(p.size for p in cell.trainable_params())
    assert total - met == 6 * 3 * 16 * 12, "six of eight experts are not met"
    dense = SwiGLU(16, 40, 0.02, np.random.default_rng(0), ms.float32)
    assert feed_forward_weights(SPARSE, 0) == (sum(p.size for p in dense.trainable_params()),) * 2


def test_operations_by_hand():
    attention = 4 * 2 * 16 * 4 * (4 + 2)
    dense, sparse = 2 * 3 * 16 * 40, 2 * (16 * 8 + 2 * 3 * 16 * 12)
    assert product_weights(SPARSE)[0] == attention + dense + sparse + 64 * 16
    assert flops_per_token(SPARSE) == 2 * (attention + dense + sparse + 64 * 16)
    assert flops_per_token(SPARSE, 10) - flops_per_token(SPARSE) == 4 * 4 * 10 * 16


def test_a_token_computes_less_than_in_the_dense_twin():
    twin = dense_twin(SPARSE)
    assert twin.sparse_layers == () and flops_per_token(SPARSE, 100) < flops_per_token(twin, 100)
    rounding = 3 * 16 * 4 / 2
    assert abs(product_weights(twin)[1] - product_weights(SPARSE)[1]) <= rounding
    assert dense_twin(twin) == twin
