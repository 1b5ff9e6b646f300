"""attend.py against torch and the plain definition: values, all gradients, and the memory it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.errors import SettingError
from workbench.model.attend import LeanAttend, attend, chunk_mask, pieces
from workbench.model.masks import additive, document_positions, visible

TOP = Path(__file__).parents[1]
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
    kind = {"kind": "sliding", "window": window} if window else {}
    return visible(positions, positions, segments, segments, **kind)


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
    return values_and_gradients(lambda_free(lean, *places), query, key, value, gradient, compiled)


def lambda_free(lean, positions, segments):
    def function(query, key, value):
        return lean(query, key, value, positions, segments)

    return function


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "pynative"])
@pytest.mark.parametrize(
    "rows, heads, groups, window, chunk",
    [
        ("one document", 2, 2, 0, 4),
        ("packed", 4, 2, 0, 3),
        ("padding", 4, 1, 0, 4),
        ("padding", 2, 2, 3, 2),
        ("packed", 6, 2, 2, 64),
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


@settings(max_examples=15, deadline=None)
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


@pytest.mark.parametrize("window", [0, 3])
def test_chunk_mask_is_the_part_of_the_whole_mask(window):
    segments = np.array(ROWS["padding"], np.int32)
    positions = document_positions(segments)
    part = [ms.Tensor(np.ascontiguousarray(a)) for a in (positions[:, 3:7], positions[:, 1:7])]
    part += [ms.Tensor(np.ascontiguousarray(a)) for a in (segments[:, 3:7], segments[:, 1:7])]
    got = chunk_mask(ops.Tile(), *part, window).asnumpy()
    np.testing.assert_array_equal(got, additive(seen(positions, segments, window))[:, 3:7, 1:7])


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


MEASURED = """
import sys
import workbench, mindspore as ms, numpy as np
from tests.test_attend import peak_problem
peak_problem(sys.argv[1])
"""


def peak_problem(form):
    """Two layers of attention and their gradients at 2 x 512 positions; 16 MiB of scores a layer."""
    batch, heads, length, layers = 2, 8, 512, 3
    arrays = [ms.Tensor(normal(seed, batch * heads, length, SIZE)) for seed in range(3)]
    segments = ms.Tensor(np.ones((batch, length), np.int32))
    positions = ms.Tensor(np.tile(np.arange(length, dtype=np.int32), (batch, 1)))
    mask = ms.Tensor(np.tile(additive(np.tril(np.ones((length, length), bool))), (batch * heads, 1, 1)))
    cells = [LeanAttend(heads, heads) for _ in range(layers)]

    def lean(query, key, value):
        for cell in cells:
            query = cell(query, key, value, positions, segments)
        return ops.ReduceSum()(query)

    def plain(query, key, value):
        for _ in range(layers):
            query = attend(query, key, value, mask)
        return ops.ReduceSum()(query)

    ms.jit(ms.grad(lean if form == "lean" else plain, (0, 1, 2)))(*arrays)[0].asnumpy()


def peak_mb(form):
    environment = os.environ | {
        "MS_DEV_RUNTIME_CONF": "graph_pipeline:False,memory_statistics:True",
        "PYTHONPATH": str(TOP),
    }
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, form], cwd=TOP, env=environment, capture_output=True, text=True, check=True
    )
    return int(re.search(r"peak used mem:(\d+)M", done.stdout).group(1))


def test_scores_are_not_kept():
    """3 layers keep 16 MiB each in the plain form; the lean form's peak lies below even one score array and mask."""
    plain, lean = peak_mb("plain"), peak_mb("lean")
    assert plain > 16 * 4  # the mask and one array of probabilities a layer
    assert lean < plain / 2
