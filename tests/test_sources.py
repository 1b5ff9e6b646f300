"""Samples read out of a store: labels, segments and positions against a loop over tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.layout import make_layout
from workbench.data.sources import SampleSource, random_batch
from workbench.data.store import CUT, LOSS, Entry, TokenStore


def source_of(documents, sequence_length=16, overlap=0.25, overlap_loss=False):
    entries = [
        Entry(np.asarray(t, np.int32), np.asarray([CUT | (LOSS if x else 0) for x in loss], np.uint8), str(task), truth)
        for t, loss, task, truth in documents
    ]
    store = TokenStore.of(entries, {str(task): task for _, _, task, _ in documents})
    return SampleSource("base", store, make_layout(store, sequence_length, overlap, overlap_loss), padding_id=5)


DOCUMENTS = [
    (list(range(100, 140)), [0] + [1] * 39, 0, np.nan),
    ([1, 0, 7, 8, 2], [0, 0, 0, 1, 1], 3, 1.0),  # token 0 is a word like any other
    ([1, 9, 2], [0, 1, 1], 0, 0.0),
]


@pytest.fixture
def source():
    return source_of(DOCUMENTS)


def brute_force(source, documents, row, overlap_loss=False):
    """A row built token by token, and the targets that it asks for."""
    size, seen = source.layout.sequence_length, []
    out = {n: [v] * size for n, v in (("input_ids", 5), ("labels", -100), ("segment_ids", 0), ("position_ids", 0))}
    out |= {"task_ids": [0] * size, "instruction_labels": [-100] * size, "fact_targets": [-1.0] * size}
    at = 0
    for segment, (document, start, stop, loss_from) in enumerate(source.pieces(row), 1):
        tokens, loss, task, truth = documents[document]
        for i in range(start, stop):
            asked = loss[i + 1] and (overlap_loss or i + 1 >= loss_from)
            out["input_ids"][at], out["segment_ids"][at], out["position_ids"][at] = tokens[i], segment, i - start
            out["labels"][at] = tokens[i + 1] if asked else -100
            out["task_ids"][at] = task
            if i + 2 == len(tokens):
                out["instruction_labels"][at] = task or -100
                out["fact_targets"][at] = truth if truth == truth else -1.0
            if asked:
                seen.append((document, i + 1))
            at += 1
    return out, seen


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_batches_are_what_a_loop_over_the_tokens_makes(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    overlap, overlap_loss = data.draw(st.sampled_from([0.0, 0.25, 0.5])), data.draw(st.booleans())
    documents = []
    for n in rng.integers(1, 70, data.draw(st.integers(1, 12))).tolist():
        truth = [np.nan, 0.0, 1.0][rng.integers(3)]
        documents.append(
            (rng.integers(0, 50, n).tolist(), (rng.random(n) < 0.7).tolist(), int(rng.integers(0, 4)), truth)
        )
    source, targets = source_of(documents, 24, overlap, overlap_loss), []
    rows = rng.permutation(len(source))
    batch = source.batch(rows, rows)
    for b, row in enumerate(rows.tolist()):
        expected, seen = brute_force(source, documents, row, overlap_loss)
        targets += seen
        alone = source.batch(np.array([row]), np.array([row]))  # goes another way
        for name, values in expected.items():
            assert batch[name][b].tolist() == values == alone[name][0].tolist(), name
    wanted = [(d, i) for d, (_, loss, _, _) in enumerate(documents) for i, x in enumerate(loss) if x and i]
    assert sorted(set(targets)) == wanted
    assert overlap_loss or len(targets) == len(wanted), "a target is asked for twice"


def test_the_end_of_text_has_loss_even_when_it_is_also_the_padding_id():
    batch = source_of([([1, 9, 5], [0, 1, 1], 0, np.nan)], 8, 0.0).batch(np.array([0]), np.array([0]))
    assert batch["labels"][0, :3].tolist() == [9, 5, -100]


def test_a_tail_shorter_than_the_overlap_reads_further_back_instead_of_padding():
    source = source_of([(list(range(20)), [1] * 20, 0, np.nan)])
    assert len(source) == 2 and source.ledger.utilisation == 1.0
    assert source.pieces(1) == [(0, 3, 19, 17)]


def test_types_are_those_of_the_contract(source):
    batch = source.batch(np.array([0, 1]), np.array([7, 8]))
    assert {n: str(a.dtype) for n, a in batch.items()} == {
        **dict.fromkeys(
            ("input_ids", "labels", "segment_ids", "position_ids", "task_ids", "instruction_labels", "sample_ids"),
            "int32",
        ),
        "fact_targets": "float32",
    }
    assert batch["sample_ids"].tolist() == [7, 8]
    other = random_batch(np.random.default_rng(0), 2, 16, 50)
    assert {n: (a.dtype, a.shape) for n, a in other.items()} == {n: (a.dtype, a.shape) for n, a in batch.items()}


def test_an_empty_store_has_no_rows():
    source = source_of([])
    assert len(source) == 0 and source.ledger.tokens_in == 0 and source.ledger.utilisation == 0
