"""flash.py: its calls bind to the installed kernel's signature, and stand-ins written from its documentation agree.

The kernel itself exists only on Ascend.
"""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from tiny_model import TINY

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.errors import DataError
from workbench.model.attend import attend
from workbench.model.batch import check_batch
from workbench.model.flash import document_ends, flash_attend, flash_attend_packed
from workbench.model.mask_forms import KernelMask, expand, kernel_mask
from workbench.model.masks import Mask, additive, document_positions, packed
from workbench.model.transformer import Transformer

HEADS, GROUPS, SIZE = 6, 2, 4
SIGNATURE = inspect.signature(ms.ops.flash_attention_score)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def plain(q, k, v, seen):
    """(B, H, Q, C), (B, K, L, C) twice, boolean (B, Q, L) -> (B, H, Q, C); a row that sees nothing is 0."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    weights = np.exp(q @ k.transpose(0, 1, 3, 2)) * seen[:, None]
    total = weights.sum(-1, keepdims=True)
    return (np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v).astype(np.float32)


def stand_in(calls):
    """What the documentation says of the two layouts in use."""

    def kernel(*args, **kwargs):
        call = SIGNATURE.bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        calls.append(given["input_layout"])
        assert (given["keep_prob"], given["scalar_value"]) == (1.0, 1.0)
        q, k, v = (given[name].asnumpy().astype(np.float32) for name in ("query", "key", "value"))
        if given["input_layout"] == "BNSD":
            assert given["sparse_mode"] == 1 and given["attn_mask"].dtype == ms.bool_
            return ms.Tensor(plain(q, k, v, ~given["attn_mask"].asnumpy()[:, 0]), given["query"].dtype)
        form = KernelMask(
            given["sparse_mode"],
            given["attn_mask"].asnumpy(),
            next_tokens=given["next_tokens"],
            actual_seq_qlen=tuple(given["actual_seq_qlen"].asnumpy()),
            actual_seq_kvlen=tuple(given["actual_seq_kvlen"].asnumpy()),
            input_layout="TND",
        )
        q, k, v = (x.transpose(1, 0, 2)[None] for x in (q, k, v))
        context = plain(q, k, v, expand(form, q.shape[2], k.shape[2]))[0].transpose(1, 0, 2)
        return ms.Tensor(np.ascontiguousarray(context), given["query"].dtype)

    return kernel


def operands(batch, new, length):
    key, value = (ms.Tensor(normal(seed, batch * GROUPS, length, SIZE)) for seed in (1, 2))
    return ms.Tensor(normal(0, batch * GROUPS, HEADS // GROUPS * new, SIZE)), key, value


def for_heads(mask):
    batch, new, length = mask.shape
    return ms.Tensor(np.repeat(mask[:, None], HEADS, axis=1).reshape(batch * GROUPS, -1, length))


@pytest.mark.parametrize("past", [0, 3])
def test_a_dense_mask_is_handed_over_in_the_opposite_sense(monkeypatch, past):
    monkeypatch.setattr(ms.ops, "flash_attention_score", stand_in([]))
    segments = np.array([[1, 1, 2, 2, 2], [1, 1, 1, 1, 1]])
    mask = additive(packed(segments, Mask("sliding", window=2)))[:, past:]
    tensors = operands(2, 5 - past, 5)
    got = flash_attend(*tensors, ms.Tensor(mask), HEADS)
    np.testing.assert_allclose(got.asnumpy(), attend(*tensors, for_heads(mask)).asnumpy(), atol=1e-5)


def test_packed_rows_need_their_ends_alone(monkeypatch):
    monkeypatch.setattr(ms.ops, "flash_attention_score", stand_in([]))
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1]], np.int32)
    tensors = operands(3, 6, 6)
    got = flash_attend_packed(*tensors, document_ends(ms.Tensor(segments)), HEADS, 3).asnumpy()
    expected = attend(*tensors, for_heads(additive(packed(segments)))).asnumpy()
    tokens = np.repeat((segments != 0)[:, None], HEADS, axis=1).reshape(3 * GROUPS, -1)
    np.testing.assert_allclose(got[tokens], expected[tokens], atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_ends_are_those_of_the_kernels_form_in_a_fixed_shape(seed):
    rng = np.random.default_rng(seed)
    lengths = [rng.multinomial(12, [0.4, 0.3, 0.3]) for _ in "ab"]
    segments = np.stack([np.repeat([1, 2, 0], n) for n in lengths]).astype(np.int32)
    ends = document_ends(ms.Tensor(segments)).asnumpy()
    known = kernel_mask(Mask(), 12, 12, segments).actual_seq_qlen
    assert ends.shape == (24,) and ends.dtype == np.int64
    assert tuple(ends[: len(known)]) == known and (ends[len(known) :] == 24).all()


@pytest.mark.parametrize(
    "windowed, layouts", [({}, {"TND"}), (dict(sliding_window=3, max_window_layers=1), {"TND", "BNSD"})]
)
def test_the_model_with_the_kernel_is_the_model(monkeypatch, windowed, layouts):
    calls = []
    monkeypatch.setattr(ms.ops, "flash_attention_score", stand_in(calls))
    config = replace(TINY, num_hidden_layers=2, initializer_range=0.2, **windowed)
    segments = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1, 1]], np.int32)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, segments.shape).astype(np.int32)
    arrays = [ms.Tensor(a) for a in (ids, document_positions(segments), segments, np.zeros_like(segments))]
    with_kernel = Transformer(config, 0, "float16", flash_attention=True)
    for parameter, exact in zip(with_kernel.get_parameters(), Transformer(config, 0).get_parameters()):
        np.testing.assert_array_equal(parameter.asnumpy(), exact.asnumpy())
    got, expected = with_kernel(*arrays).asnumpy(), Transformer(config, 0, "float16")(*arrays).asnumpy()
    assert set(calls) == layouts and len(calls) == 2
    tokens = segments != 0
    np.testing.assert_allclose(got[tokens], expected[tokens], atol=2e-2 * np.abs(expected).max())


def test_more_documents_than_the_kernel_takes_are_refused():
    segments = np.tile(np.arange(1, 9, dtype=np.int32), (129, 1))
    zeros = np.zeros_like(segments)
    batch = {"input_ids": zeros, "position_ids": zeros, "segment_ids": segments, "task_ids": zeros}
    check_batch(batch, TINY)
    with pytest.raises(DataError, match="1,032 documents .* at most 1,024: lower batch_size"):
        check_batch(batch, TINY, flash_attention=True)
