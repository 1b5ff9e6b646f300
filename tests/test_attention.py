"""attention.py against complex numbers and repeated key heads in float64."""

import numpy as np
import pytest

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.config import ModelConfig
from workbench.model.attention import Attention
from workbench.model.masks import additive, document_positions, packed
from workbench.model.rotary import rotary_table

CONFIG = ModelConfig(hidden_size=24, num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=16)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rotated(x, positions, theta=10000.0):
    """The rotation as multiplication of complex numbers (x_i, x_{i + C/2})."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * theta ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def layer_inputs(segments):
    """x (N, D) and what ``Attention`` takes beside it, laid out here by hand."""
    batch, length = segments.shape
    heads, groups, size = CONFIG.num_attention_heads, CONFIG.num_key_value_heads, CONFIG.head_size
    cos, sin = (np.broadcast_to(t[:length, None], (batch, length, heads, size)) for t in rotary_table(CONFIG))
    scale = np.float32(size**-0.5)
    tables = cos * scale, sin * scale, cos[:, :, :groups], sin[:, :, :groups]
    rotary = tuple(ms.Tensor(np.ascontiguousarray(table)) for table in tables)
    mask = np.repeat(additive(packed(segments))[:, None], heads, axis=1)
    mask = ms.Tensor(mask.reshape(batch * groups, -1, length))
    seen = np.repeat((segments.reshape(-1, 1) != 0).astype(np.float32), CONFIG.hidden_size, axis=1)
    places = (ms.Tensor(a.astype(np.int32)) for a in (document_positions(segments), segments))
    return normal(3, batch * length, CONFIG.hidden_size), (*rotary, mask, ms.Tensor(seen), *places)


def repeated_heads(layer, x, segments):
    """The layer in numpy float64, with the key and value heads repeated to all query heads."""
    batch, length = segments.shape
    heads, groups, size = CONFIG.num_attention_heads, CONFIG.num_key_value_heads, CONFIG.head_size
    x = x.astype(np.float64).reshape(batch, length, -1)
    q, k, v = (
        (x @ p.weight.asnumpy().astype(np.float64).T).reshape(batch, length, -1, size).transpose(0, 2, 1, 3)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    q, k = rotated(q, np.arange(length)), rotated(k, np.arange(length))
    k, v = (np.repeat(t, heads // groups, axis=1) for t in (k, v))
    weights = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(size)) * packed(segments)[:, None]
    total = weights.sum(-1, keepdims=True)
    context = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v
    merged = context.transpose(0, 2, 1, 3).reshape(batch * length, -1)
    return merged @ layer.o_proj.weight.asnumpy().astype(np.float64).T


@pytest.mark.parametrize("by_hand", [True, False])
def test_grouped_queries_equal_repeated_heads_and_padding_rows_are_zero(by_hand):
    segments = np.array([[1, 1, 1, 2, 2, 0], [0, 0, 1, 1, 1, 1]])
    layer = Attention(CONFIG, np.random.default_rng(0), ms.float32)
    layer.by_hand = by_hand
    x, inputs = layer_inputs(segments)
    got = layer(ms.Tensor(x), 2, *inputs).asnumpy()
    np.testing.assert_allclose(got, repeated_heads(layer, x, segments), atol=1e-6)
    assert (got[segments.reshape(-1) == 0] == 0).all()


def test_float16_products_stay_close_to_float32():
    segments = np.array([[1, 1, 1, 1]])
    x, inputs = layer_inputs(segments)
    exact, rounded = (
        Attention(CONFIG, np.random.default_rng(0), dtype)(ms.Tensor(x), 1, *inputs)
        for dtype in (ms.float32, ms.float16)
    )
    assert rounded.dtype == ms.float32
    difference = np.abs(exact.asnumpy() - rounded.asnumpy()).max()
    assert 0 < difference < 5e-3 * np.abs(exact.asnumpy()).max()
