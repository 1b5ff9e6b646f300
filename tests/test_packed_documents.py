"""Documents that share a row do not see each other: from the store through the batch to the logits."""

import numpy as np
from tiny_model import TINY

import mindspore as ms

from workbench.data.layout import make_layout
from workbench.data.sources import SampleSource
from workbench.data.store import CUT, LOSS, Entry, TokenStore
from workbench.model.transformer import Transformer

NAMES = ("input_ids", "position_ids", "segment_ids", "task_ids")


def row_of(first):
    entries = [Entry(np.array(t, np.int32), np.full(len(t), CUT | LOSS)) for t in (first, range(20, 28))]
    store = TokenStore.of(entries)
    source = SampleSource("base", store, make_layout(store, 32, 0.0), 0)
    assert len(source) == 1
    return source.batch(np.array([0]), np.array([0]))


def test_changing_one_document_leaves_the_logits_of_the_other_bit_identical():
    model = Transformer(TINY, seed=0)
    batches = [row_of(list(range(1, 9))), row_of([1, 40, 41, 42, 43, 44, 45, 8])]
    logits = [model.logits(model(*(ms.Tensor(b[n]) for n in NAMES))).asnumpy() for b in batches]
    logits = [x.reshape(32, -1) for x in logits]
    other = [np.flatnonzero(np.isin(b["input_ids"][0], range(20, 28))) for b in batches]
    changed = [np.flatnonzero((b["segment_ids"][0] > 0) & ~np.isin(b["input_ids"][0], range(20, 28))) for b in batches]
    assert len(other[0]) == 7 and np.array_equal(other[0], other[1])
    assert np.array_equal(logits[0][other[0]], logits[1][other[1]])
    assert not np.array_equal(logits[0][changed[0]], logits[1][changed[1]])
