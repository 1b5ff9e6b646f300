"""Memory of a step: what the configuration says against a real model, and what the allocator says."""

from dataclasses import replace

import pytest
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.errors import UserError
from workbench.model.transformer import Transformer
from workbench.train.memory import measure_memory, parameter_count, parts

WIDE = replace(TINY, hidden_size=64, intermediate_size=128, num_hidden_layers=4)
TRAIN = TrainConfig(batch_size=8)


SPARSE = dict(num_experts=4, num_hidden_layers=3, mlp_only_layers=(1,), shared_expert_intermediate_size=8)


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        WIDE,
        replace(TINY, tie_word_embeddings=False),
        replace(TINY, head_dim=6, attention_bias=True, attention_output_bias=True, mlp_bias=True, use_qk_norm=True),
        replace(TINY, norm_type="layer_norm"),
        replace(TINY, **SPARSE),
    ],
)
def test_parameters_are_counted_as_the_model_has_them(config):
    assert parameter_count(config) == sum(p.size for p in Transformer(config, seed=0).trainable_params())


def test_recompute_lowers_the_measured_peak_and_both_hold_the_state():
    none, block = (measure_memory(WIDE, replace(TRAIN, recompute=name), 64) for name in ("none", "block"))
    assert block.peak_mb < none.peak_mb
    # Gradients live only while they are used; weights and both moments are there all the time.
    held = parts(WIDE)["parameters"] + parts(WIDE)["optimizer"]
    for trace in (none, block):
        assert trace.peak_mb > held
        assert trace.peak_mb == pytest.approx(trace.allocated_mb.max())
        assert (trace.seconds[1:] >= trace.seconds[:-1]).all() and len(trace.seconds) == len(trace.allocated_mb)


def test_a_measurement_that_fails_says_why():
    with pytest.raises(UserError, match="the memory measurement failed"):
        measure_memory(replace(TINY, max_position_embeddings=8), TRAIN, 16)
