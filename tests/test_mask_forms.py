"""mask_forms.py: every form against the definition, over all small shapes, and at the edges."""

import inspect
import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import nn, ops
from mindspore.graph.api import ms_compile_cache

from workbench.errors import DataError, SettingError
from workbench.model.mask_forms import (
    Chunk,
    KernelMask,
    additive,
    additive_mask,
    chunks,
    compiled_mask,
    expand,
    kernel_mask,
)
from workbench.model.masks import Mask, after_past, discard, document_positions, packed, visible

KINDS = [
    Mask(),
    *(Mask("sliding", window=n) for n in (1, 2, 3, 9)),
    *(Mask("prefix", prefix_length=n) for n in (0, 1, 3, 9)),
]
SHAPES = list(itertools.product(range(1, 6), range(5)))  # new queries, past


def rows_of_documents(length):
    """Every row of ``length`` with padding (0) and documents that do not come in two pieces."""
    for row in itertools.product(range(3), repeat=length):
        runs = [s for s, _ in itertools.groupby(row) if s]
        if len(set(runs)) == len(runs):
            yield np.array(row, np.int32)


def tensors(*arrays):
    return [ms.Tensor(np.asarray(a, np.int32)) for a in arrays]


def same_bits(got, expected):
    assert got.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("mask", KINDS, ids=str)
def test_the_operators_give_the_additive_form_bit_for_bit(mask):
    """All rows of documents of one length in one batch, and single documents with every past."""
    segments = np.stack(list(rows_of_documents(4)))
    positions = document_positions(segments)
    got = additive_mask(*tensors(positions, positions, segments, segments), mask).asnumpy()
    same_bits(got, additive(packed(segments, mask)))
    for past in (0, 3, 7):
        pasts = np.arange(past + 1)[:, None]  # each row has its own past, behind it slots not filled yet
        queries, keys = pasts + np.arange(4), np.tile(np.arange(past + 6), (past + 1, 1))
        got = additive_mask(*tensors(queries, keys), mask=mask).asnumpy()
        same_bits(got, additive(visible(queries, keys, mask=mask)))


def test_queries_of_other_segments_than_the_keys():
    queries, keys = np.array([[5, 0, 1]]), np.array([[4, 5, 0, 1]])
    query_segments, key_segments = np.array([[1, 2, 2]]), np.array([[1, 1, 2, 2]])
    got = additive_mask(*tensors(queries, keys, query_segments, key_segments)).asnumpy()
    np.testing.assert_array_equal(got[0] == 0, [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=4), st.sampled_from(KINDS))
def test_packed_rows_of_any_kind(pieces, mask):
    """Documents with padding before them, whose rows see what they see alone."""
    row = [s for i, (padding, n) in enumerate(pieces) for s in [0] * padding + [i + 1] * n]
    positions = document_positions(np.array([row]))
    got = additive_mask(*tensors(positions, positions, [row], [row]), mask).asnumpy()[0]
    same_bits(got, additive(packed(np.array(row), mask)))
    for i, (_, n) in enumerate(pieces):
        where = np.flatnonzero(np.array(row) == i + 1)
        np.testing.assert_array_equal(got[np.ix_(where, where)] == 0, after_past(n, mask=mask))
        assert (got[where] == 0).sum() == after_past(n, mask=mask).sum()


def test_softmax_of_a_row_that_sees_nothing_is_finite():
    segments = np.array([[0, 0, 1, 1]])
    positions = document_positions(segments)
    for mask in KINDS:
        hidden = additive_mask(*tensors(positions, positions, segments, segments), mask)
        scores = ms.Tensor(np.random.default_rng(0).normal(0, 100, (1, 4, 4)).astype(np.float32))
        weights = ops.softmax(ops.add(scores, hidden), -1).asnumpy()
        assert np.isfinite(weights).all()
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
        assert (weights[0, 2:, :2] == 0).all()


def test_a_compiled_mask_is_one_function_compiled_once_a_shape():
    mask = Mask("sliding", window=4)
    assert compiled_mask(Mask("sliding", window=4)) is compiled_mask(mask) is not compiled_mask()
    short, long = (tensors(*[np.arange(n)[None]] * 2, *[np.ones((1, n))] * 2) for n in (6, 7))
    same_bits(compiled_mask(mask)(*short).asnumpy()[0], additive(after_past(6, mask=mask)))
    before = len(ms_compile_cache)
    other = [ms.Tensor(t.asnumpy() + 1) for t in short]
    same_bits(compiled_mask(mask)(*other).asnumpy()[0], additive(after_past(6, mask=mask)))
    assert len(ms_compile_cache) == before
    compiled_mask(mask)(*long).asnumpy()
    assert len(ms_compile_cache) == before + 1
    np.testing.assert_array_equal(compiled_mask()(*short[:2]).asnumpy()[0] == 0, np.tri(6))


class Masked(nn.Cell):
    """x, zero where the mask hides, with its gradient written by hand: the mask is built in both directions."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def seen(self, positions, segments):
        return ops.cast(ops.equal(additive_mask(positions, positions, segments, segments, self.mask), 0), ms.float32)

    def construct(self, x, positions, segments):
        return ops.mul(x, self.seen(positions, segments))

    def bprop(self, x, positions, segments, out, dout):
        return ops.mul(dout, self.seen(positions, segments)), ops.zeros_like(positions), ops.zeros_like(segments)


@pytest.mark.parametrize("mask", [Mask(), Mask("sliding", window=2), Mask("prefix", prefix_length=2)], ids=str)
def test_it_compiles_in_a_cell_in_both_directions(mask):
    gradient = ms.jit(ms.grad(Masked(mask)))(ops.ones((1, 5, 5), ms.float32), *tensors([range(5)], [[1] * 5]))
    np.testing.assert_array_equal(gradient.asnumpy()[0] == 1, after_past(5, mask=mask))


@pytest.mark.parametrize("mask", KINDS, ids=str)
def test_the_kernels_form_means_the_definition(mask):
    """One document with every past, and packed rows with every past."""
    for new, past in SHAPES:
        form = kernel_mask(mask, new, past + new)
        np.testing.assert_array_equal(expand(form, new, past + new)[0], after_past(new, past, mask))
        assert form.sparse_mode == {"causal": 3, "sliding": 4, "prefix": 5}[mask.kind]
        if form.prefix:
            assert past <= form.prefix[0] <= past + new  # what the kernel allows where S1 <= S2
            np.testing.assert_array_equal(form.attn_mask[0, 0] == 0, after_past(new, past, mask))
    for length in range(1, 5):
        for row, past in itertools.product(rows_of_documents(length), range(length)):
            form = kernel_mask(mask, length - past, length, row)
            got, expected = expand(form, length - past, length)[0], packed(row, mask)[past:]
            real = row[past:] != 0 if form.input_layout == "TND" else slice(None)
            np.testing.assert_array_equal(got[real], expected[real])
            assert not got[row[past:] == 0][:, row != 0].any()  # padding sees at most padding
            assert (form.input_layout == "TND") == (mask.kind == "causal" and past == 0)


def test_a_batch_of_packed_rows_lies_end_to_end_for_the_kernel():
    segments = np.array([[1, 1, 2, 0], [2, 2, 2, 3]], np.int32)
    form = kernel_mask(Mask(), 4, 4, segments)
    assert form.actual_seq_qlen == form.actual_seq_kvlen == (2, 3, 4, 7, 8)
    assert form.next_tokens == 0 and form.pre_tokens >= 4 and form.prefix is None
    got = expand(form, 8, 8)[0].reshape(2, 4, 2, 4)
    assert not got[0, :, 1].any() and not got[1, :, 0].any()
    real = segments != 0
    rows = np.stack([got[0, :, 0], got[1, :, 1]])
    np.testing.assert_array_equal(rows[real], packed(segments)[real])
    dense = kernel_mask(Mask("sliding", window=2), 4, 4, segments)
    assert dense.sparse_mode == 1 and dense.attn_mask.shape == (2, 1, 4, 4)
    np.testing.assert_array_equal(expand(dense, 4, 4), packed(segments, Mask("sliding", window=2)))


def test_the_tile_is_the_kernels_and_its_way_up_matters():
    form = kernel_mask(Mask(), 5, 8)
    assert form.attn_mask.shape == (2048, 2048) and form.attn_mask.dtype == np.uint8
    assert form.attn_mask is kernel_mask(Mask("sliding", window=3), 2, 2).attn_mask  # kept once
    assert (expand(replace(form, attn_mask=form.attn_mask.T), 5, 8)[0] != after_past(5, 3)).any()
    # The mode that counts from the upper left corner is right without a past and wrong with one.
    left = replace(form, sparse_mode=2)
    np.testing.assert_array_equal(expand(left, 5, 5)[0], after_past(5))
    assert (expand(left, 5, 8)[0] != after_past(5, 3)).any()


def test_beyond_the_tile_the_form_still_means_the_definition():
    for mask in (Mask(), Mask("sliding", window=2100)):
        np.testing.assert_array_equal(expand(kernel_mask(mask, 40, 4200), 40, 4200)[0], after_past(40, 4160, mask))


def test_the_forms_fields_are_arguments_of_the_kernel():
    arguments = inspect.signature(ops.flash_attention_score).parameters
    assert {f.name for f in fields(KernelMask)} <= set(arguments)
    segments = np.array([[0, 1, 1]])
    np.testing.assert_array_equal(
        kernel_mask(Mask("prefix", prefix_length=1), 3, 3, segments).attn_mask[0, 0],
        discard(additive(packed(segments[0], Mask("prefix", prefix_length=1)))),
    )


@pytest.mark.parametrize("mask", KINDS, ids=str)
def test_chunks_put_together_are_the_whole_and_no_range_is_too_wide(mask):
    for (new, past), size in itertools.product(SHAPES, range(1, 7)):
        whole, queries, keys = after_past(new, past, mask), np.arange(past, past + new), np.arange(past + new)
        built = np.zeros_like(whole)
        for c in chunks(new, past, size, mask):
            built[c.queries, c.keys] = visible(queries[c.queries], keys[c.keys], mask=mask)
            seen = np.flatnonzero(whole[c.queries].any(0))
            assert (c.keys.start, c.keys.stop) == (seen.min(), seen.max() + 1)
            assert c.queries.stop - c.queries.start <= size
        np.testing.assert_array_equal(built, whole)


@pytest.mark.parametrize("mask", KINDS, ids=str)
def test_chunks_of_packed_rows_miss_nothing(mask):
    for length, size in itertools.product(range(1, 6), range(1, 4)):
        pieces = chunks(length, 0, size, mask, documents=True)
        for row in rows_of_documents(length):
            outside = packed(row, mask)
            for c in pieces:
                outside[c.queries, c.keys] = False
            assert not outside.any()


def test_chunks_are_plain_slices():
    assert chunks(5, 3, 2, Mask("sliding", window=3)) == [
        Chunk(slice(0, 2), slice(1, 5)),
        Chunk(slice(2, 4), slice(3, 7)),
        Chunk(slice(4, 5), slice(5, 8)),
    ]


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: kernel_mask(Mask(), 4, 3), "query_length=4, key_length=3"),
        (lambda: kernel_mask(Mask(), 0, 3), "query_length=0"),
        (lambda: kernel_mask(Mask(), 3, 3, np.ones(4, int)), "expected key_length=3"),
        (lambda: kernel_mask(Mask(), 3, 3, np.array([1, 2, 1])), "two pieces"),
        (lambda: kernel_mask(Mask(), 1025, 1025, np.arange(1025)), "1025 documents"),
        (lambda: expand(replace(kernel_mask(Mask(), 1, 1), sparse_mode=6), 1, 1), "sparse_mode=6"),
        (lambda: chunks(4, 0, 0), "size=0"),
        (lambda: chunks(0, 0, 1), "query_length=0"),
        (lambda: chunks(4, -1, 2), "past=-1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call, told):
    with pytest.raises((SettingError, DataError)) as error:
        call()
    assert told in str(error.value) and "\n" not in str(error.value)
