"""Rotary positions, and how their frequencies are changed for contexts longer than the trained one.

    C head dimension   L max_position_embeddings   trained original_max_position_embeddings

    default   frequency i of C/2 is theta^(-2i/C)               (Su et al. 2021, section 3.2.2)
    linear    all of them divided by ``factor``                 (Chen et al. 2023, section 2.3)
    llama3    kept where a wave turns ``high_freq_factor`` times or more within the trained length,
              divided by ``factor`` where it turns ``low_freq_factor`` times or less, in between a
              mixture, linear in the turns                      (Llama 3.1's released code)
    yarn      the same idea between ``beta_fast`` and ``beta_slow`` turns, but linear in the number
              of the dimension, as released; and cos and sin times sqrt(1/t) = 0.1 ln(factor) + 1
                                                                (Peng et al. 2023, sections 3.2 to 3.4)

Costs two float32 tables of L x C, 128 MiB for 131,072 positions and heads of 128. Angles are
float64 until cos and sin are taken: ``transformers`` forms them in float32, which near position
131,072 is up to 0.009 radians off. Not here: dynamic scaling and LongRoPE, whose tables depend on
the length of the input.
"""

import math

import numpy as np
from mindspore import ops

from workbench.config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> tuple[np.ndarray, float]:
    """Radians a position of each pair of dimensions, float64 (C/2,), and the factor of cos and sin."""
    size, theta, scaling = config.head_size, config.rope_theta, config.rope_scaling
    frequency = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if scaling.rope_type == "default":
        return frequency, 1.0
    if scaling.rope_type == "linear":
        return frequency / scaling.factor, 1.0
    trained = scaling.original_max_position_embeddings
    if scaling.rope_type == "llama3":
        turns = trained * frequency / (2 * np.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        return _mixed(frequency, (turns - low) / (high - low), scaling.factor), 1.0
    # The (fractional) dimension that makes so many turns within the trained length.
    first, last = (
        size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    width = last - first or 1e-3
    attention_factor = scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1
    return _mixed(frequency, 1 - (np.arange(size // 2) - first) / width, scaling.factor), attention_factor


def _mixed(frequency: np.ndarray, kept: np.ndarray, factor: float) -> np.ndarray:
    """``kept``, cut to 0..1, is the share of the frequency that is not divided by ``factor``."""
    kept = np.clip(kept, 0, 1)
    return frequency * (kept + (1 - kept) / factor)


def rotary_table(config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, float32 (L, C), of RoFormer's angles (Su et al. 2021, eq. 15), scaled as configured.

    Both halves of the last axis hold the same C/2 frequencies, as in Hugging Face's Llama; the
    first half of sin is negated, so that ``x * cos + swap_halves(x) * sin`` is the rotation. Raises
    SettingError as ``inverse_frequencies``.
    """
    frequency, factor = inverse_frequencies(config)
    angles = np.arange(config.max_position_embeddings)[:, None] * frequency[None, :]
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)
    return (
        np.concatenate([cos, cos], axis=1).astype(np.float32),
        np.concatenate([-sin, sin], axis=1).astype(np.float32),
    )


def rotate(x, cos, sin):
    """Rotary embedding of x (..., C) by cos and sin of the same shape (``rotary_table``)."""
    first, second = ops.split(x, x.shape[-1] // 2, -1)
    return ops.add(ops.mul(x, cos), ops.mul(ops.concat((second, first), -1), sin))
