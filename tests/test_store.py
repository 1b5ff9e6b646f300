"""Samples read out of a store: labels, segments and positions against a loop over tokens."""

import numpy as np
import pytest

from workbench.data.store import CUT, LOSS, SampleSource, StoreWriter, TokenStore, open_stores, save_stores


def writer_of(documents):
    writer = StoreWriter()
    for tokens, loss, task, truth in documents:
        writer.add(
            np.asarray(tokens, np.int32), np.asarray([CUT | (LOSS if x else 0) for x in loss], np.uint8), task, truth
        )
    return writer


DOCUMENTS = [
    (list(range(100, 140)), [0] + [1] * 39, 0, np.nan),
    ([1, 0, 7, 8, 2], [0, 0, 0, 1, 1], 3, 1.0),  # token 0 is a word like any other
    ([1, 9, 2], [0, 1, 1], 0, 0.0),
]


@pytest.fixture
def source():
    return SampleSource.cut("base", writer_of(DOCUMENTS).store(), 16, 0.25, padding_id=5)


def test_labels_are_the_next_token_once_for_every_target(source):
    batch = source.batch(np.arange(len(source)), np.arange(len(source)))
    seen = []
    for row in range(len(source)):
        at = 0
        for segment, (document, start, stop, loss_from) in enumerate(source.pieces(row), 1):
            tokens, loss, _, _ = DOCUMENTS[document]
            for i in range(start, stop):
                assert batch["input_ids"][row, at] == tokens[i]
                assert batch["segment_ids"][row, at] == segment
                assert batch["position_ids"][row, at] == i - start
                asked = loss[i + 1] and i + 1 >= loss_from
                assert batch["labels"][row, at] == (tokens[i + 1] if asked else -100)
                if asked:
                    seen.append((document, i + 1))
                at += 1
        assert (batch["segment_ids"][row, at:] == 0).all()
        assert (batch["input_ids"][row, at:] == 5).all()
        assert (batch["labels"][row, at:] == -100).all()
    wanted = [(d, i) for d, (_, loss, _, _) in enumerate(DOCUMENTS) for i, x in enumerate(loss) if x and i]
    assert sorted(seen) == wanted


def test_the_end_of_text_has_loss_even_when_it_is_also_the_padding_id():
    source = SampleSource.cut("base", writer_of([([1, 9, 5], [0, 1, 1], 0, np.nan)]).store(), 8, 0.0, padding_id=5)
    batch = source.batch(np.array([0]), np.array([0]))
    assert batch["labels"][0, :3].tolist() == [9, 5, -100]


def test_task_and_truth_stand_at_the_last_input_of_their_document(source):
    batch = source.batch(np.arange(len(source)), np.arange(len(source)))
    at = np.argwhere(batch["instruction_labels"] != -100)
    assert len(at) == 1
    row, position = at[0]
    assert batch["labels"][row, position] == 2 and batch["instruction_labels"][row, position] == 3
    assert batch["fact_targets"][row, position] == 1.0
    assert (batch["task_ids"] == 3).sum() == 4
    assert (batch["fact_targets"] == 0.0).sum() == 1 and (batch["fact_targets"] == -1.0).sum() == batch[
        "labels"
    ].size - 2


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


def test_stores_come_back_from_disk_and_a_second_writer_changes_nothing(tmp_path):
    store = writer_of(DOCUMENTS).store()
    folder = tmp_path / "data" / "abc"
    assert open_stores(folder) is None
    save_stores(folder, {"base": store}, {"n": 1})
    save_stores(folder, {"base": store}, {"n": 1})
    stores, facts = open_stores(folder)
    assert facts["n"] == 1
    for name in ("tokens", "flags", "offsets", "task_ids", "truth"):
        assert np.array_equal(getattr(stores["base"], name), getattr(store, name), equal_nan=name == "truth")
    assert [p.name for p in folder.parent.iterdir()] == ["abc"], "nothing half-written is left behind"


def test_an_empty_store_has_no_rows():
    source = SampleSource.cut("tasks", StoreWriter().store(), 16, 0.25, 5)
    assert len(source) == 0 and source.ledger.tokens_in == 0 and source.ledger.utilisation == 0
    assert isinstance(source.store, TokenStore)
