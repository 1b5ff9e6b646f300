"""The samples behind an alarm: the worst are found, and their text can be read."""

import json

import numpy as np
import pytest
from corpus_files import PLAIN, jsonl, write_corpus

from workbench.data.pipeline import open_corpus
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError
from workbench.train.alarms import Alarm
from workbench.train.suspects import cut, describe, suspects

ALARM = Alarm("loss_spike", 7, "note", "loss 9, limit 3", 7, 7)
TEXTS = [f"第{i}篇文章：模型训练需要检查点，数据要清洗。编号 {i * 7}，结束。" for i in range(60)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, samples):
    folder = tmp_path_factory.mktemp("suspects")
    config = write_corpus(folder, {"文章.jsonl": jsonl(TEXTS)}, **PLAIN, validation_share=0.0)
    return open_corpus(config, load_tokenizer(str(samples / "tokenizer")), folder / "data")


def by_number(worst):
    """Losses that are highest where the row's sample number is ``worst``; the sizes of the batches asked for."""
    asked = []

    def losses(batch):
        asked.append(batch["input_ids"].shape[0])
        return np.where(np.isin(batch["sample_ids"], worst), 9.0 + batch["sample_ids"] / 100, 2.0)

    return losses, asked


def test_the_worst_rows_are_found_with_their_text(corpus):
    ids = corpus.samples(np.arange(20))["sample_ids"]
    losses, asked = by_number(ids[[3, 17]])
    found = suspects(ALARM, corpus, np.arange(20), losses, most=2)
    assert sorted(one["position"] for one in found) == [3, 17] and found[0]["loss"] >= found[1]["loss"]
    assert asked == [16, 16]
    for one in found:
        (document,) = {o["line"] for o in corpus.origin(one["position"])} or {None}
        assert one["sample"] == ids[one["position"]] and one["source"] == "base"
        assert "文章.jsonl" in one["document"] and f"line {document}" in one["document"]
        # What is told is the text of that document, as far as the window goes.
        assert one["text"].rstrip("…") in TEXTS[document - 1] and len(one["text"]) > 5
    assert json.loads(json.dumps(found)) == found


def test_a_loss_that_is_not_finite_is_the_worst(corpus):
    def losses(batch):
        return np.where(batch["sample_ids"] == bad, np.nan, 1.0 + np.arange(16))

    bad = int(corpus.samples(np.asarray([5]))["sample_ids"][0])
    assert suspects(ALARM, corpus, range(10), losses)[0]["position"] == 5


def test_without_losses_some_are_told_and_none_is_called_the_worst(corpus):
    found = suspects(ALARM, corpus, range(16))
    assert [one["position"] for one in found] == [0, 8, 15] and {one["loss"] for one in found} == {None}
    text = describe(ALARM, found)
    assert text.startswith("loss_spike at step 7 (note): loss 9, limit 3\nsamples of step 7:") and "worst" not in text
    assert all(one["text"] in text for one in found)
    assert "worst samples of steps 3-9" in describe(
        Alarm("perplexity_jump", 9, "note", "", 3, 9), suspects(ALARM, corpus, [1], by_number([])[0])
    )


def test_many_positions_cost_a_bounded_number_of_batches(corpus):
    losses, asked = by_number([])
    suspects(ALARM, corpus, range(100_000), losses, look_at=40, batch_size=8)
    assert asked == [8] * 5


def test_the_machine_is_not_in_the_data(corpus):
    alarm = Alarm("memory", 7, "note", "grows", 1, 7)
    assert suspects(alarm, corpus, range(9)) == [] and describe(alarm, []) == "memory at step 7 (note): grows"


def test_wrong_input_is_refused(corpus):
    with pytest.raises(DataError, match="no position is given for steps 7 to 7 of loss_spike"):
        suspects(ALARM, corpus, [])
    with pytest.raises(DataError, match=r"expected \(16,\)"):
        suspects(ALARM, corpus, range(4), lambda batch: np.zeros((16, 2)))


@pytest.mark.parametrize(
    "text, told",
    [
        ("短", "短"),
        ("一二三四五六七八九十", "一二三四五六七八九十"),
        ("一二三四五六七八九十甲", "一二三四五六七八九…"),
        ("a\n b\t c", "a b c"),
        ("\ufffd坏\ufffd", "坏"),
        ("12345678e\u0301 and more", "12345678…"),
        ("1234567👨‍👩‍👧 family", "1234567…"),
        ("", ""),
    ],
)
def test_text_is_cut_between_characters(text, told):
    assert cut(text, 10) == told
