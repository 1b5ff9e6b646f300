"""rotary.py against complex numbers, and what each scaling promises."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.config import ModelConfig
from workbench.errors import SettingError
from workbench.model.rotary import inverse_frequencies, rotary_table, rotate
from workbench.model_config import RopeScaling

PLAIN = ModelConfig(hidden_size=128, num_attention_heads=4, max_position_embeddings=64)
SCALINGS = {
    "linear": RopeScaling(rope_type="linear", factor=4),
    "llama3": RopeScaling(rope_type="llama3", factor=8, original_max_position_embeddings=2048),
    "yarn": RopeScaling(rope_type="yarn", factor=16, original_max_position_embeddings=2048),
}


def scaled(name):
    return replace(PLAIN, rope_scaling=SCALINGS[name])


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def turned(x, config):
    """Row p of x (L, C) at position p."""
    return rotate(ms.Tensor(x), *(ms.Tensor(table) for table in rotary_table(config))).asnumpy()


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_rotary_positions_are_complex_rotations(theta):
    config = replace(PLAIN, head_dim=8, max_position_embeddings=300, rope_theta=theta)
    x = normal(0, 300, 8)
    angles = np.arange(300)[:, None] * theta ** (-np.arange(4) / 4)
    wanted = (x[:, :4] + 1j * x[:, 4:]) * np.exp(1j * angles)
    np.testing.assert_allclose(turned(x, config), np.concatenate([wanted.real, wanted.imag], 1), atol=1e-5)


@pytest.mark.parametrize("config", [PLAIN, *map(scaled, SCALINGS)], ids=["default", *SCALINGS])
def test_scores_depend_on_distance_alone_and_lengths_grow_by_the_factor(config):
    query, key = (np.tile(normal(seed, 1, 32), (64, 1)) for seed in (1, 2))
    turned_query, turned_key = turned(query, config), turned(key, config)
    scores = turned_query @ turned_key.T
    for distance in range(-63, 64):
        line = np.diagonal(scores, distance)
        np.testing.assert_allclose(line, line[0], atol=3e-5)
    factor = inverse_frequencies(config)[1]
    np.testing.assert_allclose(np.linalg.norm(turned_query, axis=1), factor * np.linalg.norm(query[0]), rtol=1e-5)


def test_linear_scaling_is_the_position_divided():
    wide, narrow = rotary_table(scaled("linear")), rotary_table(PLAIN)
    for long, short in zip(wide, narrow):
        np.testing.assert_allclose(long[::4], short[:16], atol=1e-6)


@pytest.mark.parametrize("name, most, least", [("llama3", 4, 1), ("yarn", 32, 1)])
def test_high_frequencies_stay_and_low_ones_are_divided(name, most, least):
    config = scaled(name)
    plain, (changed, _) = inverse_frequencies(PLAIN)[0], inverse_frequencies(config)
    share, turns = changed / plain, 2048 * plain / (2 * np.pi)
    # YaRN's ends are rounded outwards to whole dimensions, so its ramp is one dimension longer on either side.
    one = PLAIN.rope_theta ** (2 / PLAIN.head_size) if name == "yarn" else 1
    assert (turns > most * one).sum() > 2 and (turns < least / one).sum() > 2
    assert (share[turns > most * one] == 1).all()
    np.testing.assert_allclose(share[turns < least / one], 1 / config.rope_scaling.factor, rtol=1e-12)
    assert (np.diff(share) <= 0).all() and len(set(share)) > 3


@settings(max_examples=40, deadline=None)
@given(
    rope_type=strategies.sampled_from(("linear", "llama3", "yarn")),
    trained=strategies.integers(1, 1 << 20),
    theta=strategies.floats(1.5, 1e7),
    size=strategies.sampled_from((2, 4, 64, 128)),
)
def test_factor_1_changes_nothing_and_any_factor_stays_between(rope_type, trained, theta, size):
    def frequencies(factor):
        scaling = RopeScaling(rope_type=rope_type, factor=factor, original_max_position_embeddings=trained)
        return inverse_frequencies(replace(PLAIN, head_dim=size, rope_theta=theta, rope_scaling=scaling))

    plain, one = inverse_frequencies(replace(PLAIN, head_dim=size, rope_theta=theta))[0], frequencies(1.0)
    np.testing.assert_allclose(one[0], plain, rtol=1e-12)
    assert one[1] == 1
    changed = frequencies(8.0)[0]
    assert (changed <= plain * (1 + 1e-12)).all() and (changed >= plain / 8 * (1 - 1e-12)).all()


def test_yarns_attention_factor_is_the_papers_or_the_given_one():
    assert inverse_frequencies(scaled("yarn"))[1] == pytest.approx(0.1 * np.log(16) + 1)
    given_one = replace(SCALINGS["yarn"], attention_factor=0.9)
    cos, sin = rotary_table(replace(PLAIN, rope_scaling=given_one))
    np.testing.assert_allclose(cos**2 + sin**2, 0.81, rtol=1e-5)


def test_a_base_of_1_is_refused():
    with pytest.raises(SettingError, match="rope_theta=1.0 is not allowed: above 1"):
        rotary_table(replace(PLAIN, rope_theta=1.0))
