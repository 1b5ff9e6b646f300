"""rotary.py against the frequencies of the installed transformers, and the tables of its Llama."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import workbench  # noqa: F401  (sets MindSpore's environment)

from workbench.config import ModelConfig
from workbench.model.rotary import inverse_frequencies, rotary_table
from workbench.model_config import RopeScaling

LLAMA3 = dict(rope_type="llama3", original_max_position_embeddings=8192, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", original_max_position_embeddings=4096)
# Head size, theta, scaling.
CASES = [
    (64, 10000.0, dict(rope_type="linear", factor=4.0)),
    (128, 500000.0, dict(LLAMA3, factor=8.0)),
    (64, 500000.0, dict(LLAMA3, factor=32.0)),
    (64, 10000.0, dict(LLAMA3, factor=4.0, original_max_position_embeddings=512, high_freq_factor=2.5)),
    (128, 1000000.0, dict(YARN, factor=4.0, original_max_position_embeddings=32768)),  # Qwen3's
    (64, 10000.0, dict(YARN, factor=16.0)),
    (64, 10000.0, dict(YARN, factor=16.0, truncate=False, beta_fast=16.0, beta_slow=2.0)),
    (64, 150000.0, dict(YARN, factor=32.0, truncate=False, attention_factor=1.2)),
    (8, 10000.0, dict(YARN, factor=2.0, original_max_position_embeddings=16)),  # the whole ramp lies outside
]


def both(size, theta, scaling):
    shape = dict(hidden_size=4 * size, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=65536)
    theirs = LlamaConfig(**shape, rope_parameters=dict(scaling, rope_theta=theta))
    return ModelConfig(**shape, rope_theta=theta, rope_scaling=RopeScaling(**scaling)), theirs


@pytest.mark.parametrize("size, theta, scaling", CASES)
def test_frequencies_and_attention_factor_are_theirs(size, theta, scaling):
    ours, theirs = both(size, theta, scaling)
    wanted, wanted_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs, "cpu")
    frequency, factor = inverse_frequencies(ours)
    np.testing.assert_allclose(frequency, wanted.numpy(), rtol=2e-6)
    assert factor == pytest.approx(wanted_factor, rel=1e-12)


@pytest.mark.parametrize("size, theta, scaling", [(64, 10000.0, dict(rope_type="default")), *CASES])
def test_the_table_is_their_table(size, theta, scaling):
    ours, theirs = both(size, theta, scaling)
    for table, wanted in zip(rotary_table(ours), LlamaRotaryEmbedding(theirs)(torch.zeros(1), torch.arange(256)[None])):
        np.testing.assert_allclose(np.abs(table[:256]), np.abs(wanted[0].numpy()), atol=1e-4)
