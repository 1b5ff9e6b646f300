"""attend.py against torch and the plain definition: values, all gradients, and the memory it promises."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import peak_mb

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.errors import SettingError
from workbench.model.attend import LeanAttend, attend, pieces
from workbench.model.masks import Mask, additive, document_positions, visible

SIZE = 4
ROWS = {
    "one document": [[1] * 9],
    "packed": [[1, 1, 1, 2, 2, 3, 3, 3, 3], [1, 1, 1, 1, 1, 1, 2, 2, 2]],
    "padding": [[1, 1, 1, 2, 2, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1, 2, 0]],
}


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def problem(segments, heads, groups):
    """(query, key, value, upstream gradient, positions, segments) laid out as ``LeanAttend`` takes them."""
    segments = np.array(segments, np.int32)
    batch, length = segments.shape
    wide, narrow = (batch * groups, heads // groups * length, SIZE), (batch * groups, length, SIZE)
    arrays = (normal(1, *wide), normal(2, *narrow), normal(3, *narrow), normal(4, *wide))
    return *arrays, document_positions(segments), segments


def seen(positions, segments, window):
    mask = Mask("sliding", window=window) if window else Mask()
    return visible(positions, positions, segments, segments, mask)


def by_torch(query, key, value, gradient, mask, heads, groups):
    """float64 ``scaled_dot_product_attention`` with repeated heads; rows that see nothing set to 0."""
    batch, length = mask.shape[:2]
    inputs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (query, key, value)]
    q = inputs[0].reshape(batch, heads, length, SIZE)
    k, v = (x.reshape(batch, groups, length, SIZE).repeat_interleave(heads // groups, 1) for x in inputs[1:])
    empty = torch.tensor(~mask.any(-1))[:, None, :, None]
    allowed = torch.tensor(mask | ~mask.any(-1, keepdims=True))[:, None]
    context = torch.nn.functional.scaled_dot_product_attention(q, k, v, allowed, scale=1.0)
    context = context.masked_fill(empty, 0.0).reshape(query.shape)
    (context * torch.tensor(gradient.astype(np.float64))).sum().backward()
    return context.detach().numpy(), [x.grad.numpy() for x in inputs]


def values_and_gradients(function, query, key, value, gradient, compiled):
    """``function(query, key, value)`` and the gradients of its product with ``gradient``."""
    weight = ms.Tensor(gradient)

    def weighted(query, key, value):
        context = function(query, key, value)
        return ops.ReduceSum()(ops.mul(context, weight)), context

    derive = ms.value_and_grad(weighted, (0, 1, 2), has_aux=True)
    (_, context), gradients = (ms.jit(derive) if compiled else derive)(*map(ms.Tensor, (query, key, value)))
    return context.asnumpy(), [g.asnumpy() for g in gradients]


def lean_results(lean, query, key, value, gradient, positions, segments, compiled):
    places = ms.Tensor(positions), ms.Tensor(segments)
    return values_and_gradients(at(lean, *places), query, key, value, gradient, compiled)


def at(lean, positions, segments):
    def function(query, key, value):
        return lean(query, key, value, positions, segments)

    return function


@pytest.mark.parametrize(
    "rows, heads, groups, window, chunk, compiled",
    [
        ("one document", 2, 2, 0, 4, True),
        ("packed", 4, 2, 0, 3, True),
        ("padding", 4, 1, 3, 4, True),
        ("padding", 4, 2, 3, 2, False),
        ("packed", 6, 2, 2, 64, False),
    ],
)
def test_values_and_gradients_are_torchs(rows, heads, groups, window, chunk, compiled):
    *arrays, positions, segments = problem(ROWS[rows], heads, groups)
    mask = seen(positions, segments, window)
    expected, expected_gradients = by_torch(*arrays, mask, heads, groups)
    lean = LeanAttend(heads, groups, window, chunk)
    context, gradients = lean_results(lean, *arrays, positions, segments, compiled)
    np.testing.assert_allclose(context, expected, atol=1e-5)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    heads_apart = context.reshape(segments.shape[0], heads, segments.shape[1], SIZE)
    assert (heads_apart.transpose(0, 2, 1, 3)[segments == 0] == 0).all()


def test_the_plain_definition_is_torchs_too():
    heads, groups = 4, 2
    *arrays, positions, segments = problem(ROWS["packed"], heads, groups)
    mask = seen(positions, segments, 0)
    expected, expected_gradients = by_torch(*arrays, mask, heads, groups)
    wide = ms.Tensor(np.repeat(additive(mask)[:, None], heads, 1).reshape(*arrays[0].shape[:2], -1))

    def function(query, key, value):
        return attend(query, key, value, wide)

    context, gradients = values_and_gradients(function, *arrays, compiled=True)
    np.testing.assert_allclose(context, expected, atol=1e-5)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


@settings(max_examples=8, deadline=None)
@given(
    segments=st.lists(st.integers(0, 3), min_size=1, max_size=8).map(sorted),
    chunk=st.integers(1, 9),
    window=st.integers(0, 9),
)
def test_any_row_chunk_and_window(segments, chunk, window):
    *arrays, positions, segments = problem([segments], 2, 1)
    expected, _ = by_torch(*arrays, seen(positions, segments, window), 2, 1)
    places = ms.Tensor(positions), ms.Tensor(segments)
    context = LeanAttend(2, 1, window, chunk)(*map(ms.Tensor, arrays[:3]), *places)
    np.testing.assert_allclose(context.asnumpy(), expected, atol=1e-5)


def test_half_precision_stays_close():
    *arrays, positions, segments = problem(ROWS["padding"], 4, 2)
    expected, expected_gradients = by_torch(*arrays, seen(positions, segments, 0), 4, 2)
    half = [a.astype(np.float16) for a in arrays]
    context, gradients = lean_results(LeanAttend(4, 2, 0, 4), *half, positions, segments, True)
    assert context.dtype == np.float16
    np.testing.assert_allclose(context, expected, atol=1e-2)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, atol=5e-2)


@pytest.mark.parametrize("length, chunk, window", [(10, 4, 0), (10, 4, 3), (7, 7, 1), (1, 128, 0)])
def test_pieces_cover_every_query_and_every_key_it_may_see(length, chunk, window):
    queries = [
        (query, first, stop) for start, stop, first in pieces(length, chunk, window) for query in range(start, stop)
    ]
    assert [query for query, _, _ in queries] == list(range(length))
    for query, first, stop in queries:
        assert first <= (max(0, query - window + 1) if window else 0) and query < stop <= length


@pytest.mark.parametrize("given, named", [((4, 3), "heads=4"), ((4, 2, -1), "window=-1"), ((4, 2, 0, 0), "chunk=0")])
def test_impossible_settings_are_refused(given, named):
    with pytest.raises(SettingError, match=named):
        LeanAttend(*given)


ATTENTION_ALONE = """
import workbench, mindspore as ms, numpy as np
from mindspore import ops
from workbench.model.attend import LeanAttend, attend

batch, heads, length, layers = 2, 8, 512, 3
arrays = [ms.Tensor(np.random.default_rng(n).normal(size=(16, length, 4)).astype(np.float32)) for n in range(3)]
positions = ms.Tensor(np.tile(np.arange(length, dtype=np.int32), (batch, 1)))
segments = ms.Tensor(np.ones((batch, length), np.int32))
mask = ms.Tensor(np.zeros((16, length, length), np.float32))
cell = LeanAttend(heads, heads)

def lean(query, key, value):
    for _ in range(layers):
        query = cell(query, key, value, positions, segments)
    return ops.ReduceSum()(query)

def plain(query, key, value):
    for _ in range(layers):
        query = attend(query, key, value, mask)
    return ops.ReduceSum()(query)

ms.jit(ms.grad(FORM, (0, 1, 2)))(*arrays)[0].asnumpy()
"""


def test_scores_are_not_kept(tmp_path):
    """Three layers at 2 x 512 positions, 16 MiB of scores each: plain keeps the probabilities of every layer."""
    plain, lean = (peak_mb(ATTENTION_ALONE.replace("FORM", form), tmp_path) for form in ("plain", "lean"))
    assert plain > 4 * 16  # a mask and three layers
    assert lean < plain / 2
