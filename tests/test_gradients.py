"""Gradient inspection on tiny cells: exactly the parameters that are cut off are named."""

import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from workbench.diagnose.gradients import (
    SMALLEST_BUILT_IN_EPS,
    SMALLEST_MANUAL_EPS,
    gradient_findings,
    inspect_gradients,
    lint_eps,
)
from workbench.errors import DataError, SettingError


class Net(nn.Cell):
    """Two layers used, one behind stop_gradient, one never called, one frozen."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 4)
        self.second = nn.Dense(4, 1)
        self.cut = nn.Dense(4, 4)
        self.unused = nn.Dense(4, 4)
        self.frozen = Parameter(Tensor(np.ones(4, np.float32)), name="scale", requires_grad=False)

    def construct(self, x):
        hidden = ops.tanh(self.first(x * self.frozen)) + ops.stop_gradient(self.cut(x))
        return self.second(hidden)


@pytest.fixture(scope="module")
def net():
    ms.set_seed(1)
    return Net()


def batches(count=3, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (Tensor(rng.normal(size=(5, 4)).astype(np.float32)), Tensor(rng.normal(size=(5, 1)).astype(np.float32)))
        for _ in range(count)
    ]


def loss_of(net):
    return lambda x, y: ((net(x) - y) ** 2).mean()


def flags(reports):
    return {r.name: r.flags for r in reports if r.flags}


def test_exactly_the_cut_and_the_unused_are_named(net):
    reports = inspect_gradients(loss_of(net), net.get_parameters(), batches())
    zero = ("zero",)
    assert flags(reports) == {
        "cut.weight": zero, "cut.bias": zero, "unused.weight": zero, "unused.bias": zero, "scale": ("frozen",),
    }  # fmt: skip
    assert [r.name for r in reports] == [p.name for p in net.get_parameters()]
    found = gradient_findings(reports)
    assert [f.cause for f in found] == ["gradient cut off", "parameter frozen"]
    assert len(found[0].evidence) == 4 and found[0].severity == "fatal"


def test_the_gradient_of_the_last_layer_is_the_one_computed_by_hand(net):
    data = batches()
    reports = {r.name: r for r in inspect_gradients(loss_of(net), net.get_parameters(), data)}
    largest = 0.0
    for x, y in data:
        hidden = np.tanh(net.first(x).asnumpy()) + net.cut(x).asnumpy()
        error = hidden @ net.second.weight.asnumpy().T + net.second.bias.asnumpy() - y.asnumpy()
        largest = max(largest, float(np.abs(2 * (error * hidden).mean(axis=0)).max()))
    assert reports["second.weight"].max_abs == pytest.approx(largest, rel=1e-4)
    assert reports["second.weight"].batches == 3


def test_no_weight_is_changed(net):
    before = {p.name: p.asnumpy().copy() for p in net.get_parameters()}
    inspect_gradients(loss_of(net), net.get_parameters(), batches())
    assert all(np.array_equal(before[p.name], p.asnumpy()) for p in net.get_parameters())


def test_one_infinite_batch_stays_visible(net):
    data = batches()
    data[0] = (data[0][0], Tensor(np.full((5, 1), np.inf, np.float32)))
    reports = inspect_gradients(loss_of(net), net.second.get_parameters(), data)
    assert set(flags(reports)) == {"second.weight", "second.bias"}
    assert gradient_findings(reports)[0].cause == "non-finite gradient"


def test_a_parameter_that_the_optimizer_does_not_hold(net):
    reports = inspect_gradients(
        loss_of(net), net.first.get_parameters(), batches(1), optimizer_parameters=[net.first.weight]
    )
    assert flags(reports) == {"first.bias": ("not in optimizer",)}
    assert gradient_findings(reports)[0].cause == "parameter not in optimizer"


def test_bad_input_is_refused(net):
    with pytest.raises(DataError, match="batches is empty"):
        inspect_gradients(loss_of(net), net.get_parameters(), [])
    with pytest.raises(SettingError, match="parameters is empty"):
        inspect_gradients(loss_of(net), [], batches())
    with pytest.raises(SettingError, match="'first.weight'"):
        inspect_gradients(loss_of(net), [net.first.weight, net.first.weight], batches())


def float16_gradient_is_finite(eps):
    norm = nn.LayerNorm((16,), epsilon=eps).to_float(ms.float16)
    weights = Tensor(np.arange(16), ms.float16)
    grad = ms.grad(lambda x: (norm(x) * weights).sum())(Tensor(np.ones((2, 16)), ms.float16))
    return bool(np.isfinite(grad.asnumpy()).all())


@pytest.mark.parametrize("eps", [1e-12, 1e-8, 1e-7, 1e-5])
def test_the_linter_warns_exactly_where_float16_gradients_are_not_finite(eps):
    found = lint_eps(nn.SequentialCell(nn.Dense(2, 2), nn.LayerNorm((16,), epsilon=eps)))
    assert bool(found) == (not float16_gradient_is_finite(eps))
    assert all(f.cause == "epsilon too small" and "1 (LayerNorm)" in f.evidence[0] for f in found)


class HandNorm(nn.Cell):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def construct(self, x):
        return x * ops.rsqrt((x * x).mean(axis=-1, keep_dims=True) + self.eps)


def test_a_norm_written_by_hand_gets_a_note_below_the_float16_bound():
    assert [f.severity for f in lint_eps(HandNorm(1e-5))] == ["note"]
    assert lint_eps(HandNorm(1e-3)) == [] and lint_eps(nn.Dense(2, 2)) == []
    assert np.isfinite(np.float16(SMALLEST_MANUAL_EPS * 1.001) ** np.float16(-1.5))
    assert math.isclose(SMALLEST_MANUAL_EPS, 6.15e-4, rel_tol=1e-2) and SMALLEST_BUILT_IN_EPS == 1e-7
