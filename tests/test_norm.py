"""norm.py against float64 torch, on the rows that break a norm in float16, and the known wrong ways failing on them."""

import numpy as np
import pytest
import torch

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.config import ModelConfig
from workbench.model.norm import LayerNorm, Normalize, RMSNorm, layer_norm, make_norm, rms_norm

SIZE, EPSILON = 64, 1e-5
DRAWN = np.random.default_rng(0).normal(size=(4, SIZE))
ROWS = {"constant": np.full((4, SIZE), 3.0), "spread 1e-3": DRAWN * 1e-3, "unit": DRAWN, "times 300": DRAWN * 300}


def tensor(array, dtype=ms.float32):
    return ms.Tensor(np.asarray(array, np.float32)).astype(dtype)


def uneven(cell, seed):
    """``cell`` with drawn weights."""
    rng = np.random.default_rng(seed)
    for parameter in cell.get_parameters():
        parameter.set_data(tensor(rng.normal(size=parameter.shape)))
    return cell


def exact(cell, x, outer):
    """torch in float64 with the cell's weights: values and the gradients of x and of each weight."""
    weights = [torch.tensor(p.asnumpy().astype(np.float64), requires_grad=True) for p in cell.get_parameters()]
    given = torch.tensor(x.astype(np.float64), requires_grad=True)
    kind = torch.nn.functional.layer_norm if len(weights) == 2 else torch.nn.functional.rms_norm
    result = kind(given, (x.shape[1],), *weights, eps=EPSILON)
    (result * torch.tensor(outer)).sum().backward()
    return result.detach().numpy(), [a.grad.numpy() for a in (given, *weights)]


def value_and_gradients(function, x, weights, outer, compiled=False):
    """``function(x)``, and the gradients of its product with ``outer`` for x and for the weights (Parameters)."""
    scale = tensor(outer)

    def total(a):
        result = function(a)
        return (ops.cast(result, ms.float32) * scale).sum(), result

    both = ms.value_and_grad(total, 0, weights, has_aux=True)
    (_, result), (of_x, of_weights) = (ms.jit(both) if compiled else both)(x)
    return result, [of_x, *of_weights]


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["by hand", "plain", "layer"])
def test_values_and_gradients_are_torchs(kind, compiled, dtype):
    cell = uneven(LayerNorm(SIZE, EPSILON) if kind == "layer" else RMSNorm(SIZE, EPSILON), 1)
    cell.by_hand = kind == "by hand"
    x, outer = tensor(DRAWN * 2 + 0.5, dtype), np.random.default_rng(2).normal(size=DRAWN.shape)
    wanted, wanted_gradients = exact(cell, x.asnumpy(), outer)
    got, gradients = value_and_gradients(cell, x, cell.trainable_params(), outer, compiled)
    assert got.dtype == gradients[0].dtype == dtype and {g.dtype for g in gradients[1:]} == {ms.float32}
    rounding = 5e-6 if dtype == ms.float32 else 1e-3
    np.testing.assert_allclose(got.asnumpy(), wanted, rtol=rounding, atol=rounding)
    for have, want in zip(gradients, wanted_gradients):
        np.testing.assert_allclose(have.asnumpy(), want, rtol=rounding, atol=rounding * np.abs(want).max())


def test_the_kernel_is_the_plain_definition_also_far_from_zero():
    x, cell = tensor(DRAWN + 1000), uneven(LayerNorm(SIZE, EPSILON), 3)
    plain = layer_norm(x, cell.weight, cell.bias, EPSILON)
    np.testing.assert_allclose(cell(x).asnumpy(), plain.asnumpy(), atol=1e-3)
    np.testing.assert_allclose(cell(x).asnumpy(), exact(cell, x.asnumpy(), DRAWN)[0], atol=1e-3)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
def test_no_row_breaks_a_norm_in_float16(kind, name):
    cell, x = kind(SIZE, EPSILON), tensor(ROWS[name], ms.float16)
    wanted, _ = exact(cell, x.asnumpy(), DRAWN)
    got, gradients = value_and_gradients(cell, x, cell.trainable_params(), DRAWN)
    np.testing.assert_allclose(got.asnumpy(), wanted, atol=2e-3)
    assert all(np.isfinite(g.asnumpy()).all() for g in gradients)


def float16_norm(epsilon, floor=0.0):
    """A layer norm without weights, all in float16, with a floor under the variance."""
    epsilon, floor = (tensor(value, ms.float16) for value in (epsilon, floor))

    def function(x):
        mean = ops.ReduceMean(True)
        variance = ops.maximum(mean(ops.pow(x - mean(x, -1), 2), -1), floor)
        return (x - mean(x, -1)) / ops.sqrt(variance + epsilon)

    return function


def test_what_float16_does_to_a_norm():
    """Measured on MindSpore 2.10, CPU: why the norms here compute in float32 and add one epsilon, once."""

    def finite(function, rows):
        result, gradients = value_and_gradients(function, tensor(ROWS[rows], ms.float16), [], DRAWN)
        return np.isfinite(result.asnumpy()).all(), np.isfinite(gradients[0].asnumpy()).all()

    def spread(function, rows):
        return function(tensor(ROWS[rows], ms.float16)).asnumpy().astype(np.float64).std()

    one, zero = tensor(np.ones(SIZE), ms.float16), tensor(np.zeros(SIZE), ms.float16)

    def kernel(epsilon):
        return lambda x: ops.LayerNorm(-1, -1, epsilon)(x, one, zero)[0]

    # 1e-12 is 0 in float16. The fused kernel hides it in the values and not in the gradient.
    assert finite(kernel(1e-12), "constant") == (True, False) and finite(kernel(1e-7), "constant") == (True, True)
    assert finite(float16_norm(1e-12), "constant") == (False, False)
    # 1e-5 alone does not help the operators: (variance + epsilon)^-1.5 overflows below 6e-4.
    assert finite(float16_norm(1e-5), "spread 1e-3") == (True, False)
    # A floor under the variance beside the epsilon does, at a price: where it acts, the rows come out
    # sqrt((v + 1e-5) / 2e-5) = 0.74 times as wide and are only multiplied by a constant, not normalised.
    floored = float16_norm(1e-5, floor=1e-5)
    assert finite(floored, "spread 1e-3") == (True, True)
    variance = ROWS["spread 1e-3"].var(axis=1).mean()
    assert spread(floored, "spread 1e-3") == pytest.approx((variance / 2e-5) ** 0.5, rel=0.02)
    assert spread(float16_norm(1e-5), "spread 1e-3") == pytest.approx((variance / (variance + 1e-5)) ** 0.5, rel=0.02)
    # And neither survives large rows: the variance is infinite, everything becomes 0, silently.
    assert spread(floored, "times 300") == spread(float16_norm(1e-5), "times 300") == 0
    assert spread(LayerNorm(SIZE, EPSILON), "times 300") == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_cell_starts_with_weights_of_one_and_survives_zeros(by_hand):
    cell = RMSNorm(4, EPSILON)
    cell.by_hand = by_hand
    x = np.array([[3.0, 3.0, -3.0, 3.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(cell(ms.Tensor(x)).asnumpy(), np.sign(x), atol=1e-5)
    gradient = ms.grad(lambda a: cell(a).sum())(ms.Tensor(x)).asnumpy()
    assert np.isfinite(gradient).all()


def test_hand_written_norm_is_the_definition_for_many_short_rows():
    """As over each head: (N * H, C)."""
    rows, weight = np.random.default_rng(4).normal(size=(600, 8)), np.linspace(0.5, 2, 8)
    inputs = tensor(rows), tensor(weight)
    np.testing.assert_allclose(
        Normalize(EPSILON)(*inputs)[0].asnumpy(), rms_norm(*inputs, EPSILON).asnumpy(), rtol=1e-5, atol=1e-6
    )


def test_the_norm_is_the_configured_one():
    config = ModelConfig(norm_type="layer_norm", rms_norm_eps=0.5)
    layer, over_heads = make_norm(config), make_norm(ModelConfig(rms_norm_eps=0.5), 32)
    assert isinstance(layer, LayerNorm) and layer.bias.shape == (config.hidden_size,)
    assert isinstance(over_heads, RMSNorm) and over_heads.weight.shape == (32,)
    for norm, size in ((layer, config.hidden_size), (over_heads, 32)):
        signs = np.tile([1.0, -1.0], size // 2)[None]
        np.testing.assert_allclose(norm(tensor(signs)).asnumpy(), signs / np.sqrt(1.5), rtol=1e-5)
