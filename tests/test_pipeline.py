"""From files to batches: ledgers, splits, order over ranks, and what goes wrong with bad files."""

import json
from dataclasses import replace

import numpy as np
import pytest

from workbench.config import DataConfig
from workbench.data.documents import Document
from workbench.data.pipeline import COLUMNS, open_corpus
from workbench.data.prepare import prepare
from workbench.data.tasks import perturb
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError, SettingError


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture
def corpus_of(tmp_path, tokenizer):
    """A corpus of the given files ({name: bytes or str}) and settings."""

    def build(files, tasks=None, **values):
        folder = tmp_path / "texts"
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        if tasks is not None:
            (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(t) for t in tasks))
        config = DataConfig(
            data=str(folder),
            tasks=str(tmp_path / "tasks.jsonl") if tasks is not None else "",
            tokenizer="-",
            sequence_length=32,
            **values,
        )
        return open_corpus(config, tokenizer, tmp_path / "data")

    return build


def jsonl(texts):
    return "\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in texts)


MANY = [f"Document {i} 第{i}篇 is about the number {i * 7} and a few other things." for i in range(400)]
TASKS = [{"task_type": "sum", "turns": [{"question": f"{i}+1?", "answer": str(i + 1)}]} for i in range(50)]


def test_documents_are_accounted_for_and_validation_is_not_trained_on(corpus_of, tokenizer):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    facts = corpus.preparation
    assert facts.documents_read == 400 and facts.documents["base"] + facts.documents["validation"] == 400
    assert 5 <= facts.documents["validation"] <= 45
    texts = {}
    for name, source in {**corpus.sources, "validation": corpus.validation}.items():
        offsets = source.store.offsets
        texts[name] = {
            tokenizer.decode(source.store.tokens[a:b], skip_special_tokens=True) for a, b in zip(offsets, offsets[1:])
        }
    assert texts["base"] | texts["validation"] == set(MANY)
    assert not texts["base"] & texts["validation"]
    # A held-out document must not come back through a perturbed copy.
    assert texts["perturbed"] <= {perturb(Document(t, "", 0, {}), corpus.config.seed).parts[0] for t in texts["base"]}


def test_every_document_begins_and_ends_with_its_special_tokens(corpus_of, tokenizer):
    store = corpus_of({"a.jsonl": jsonl(MANY)}).sources["base"].store
    assert (store.tokens[store.offsets[:-1]] == tokenizer.bos_token_id).all()
    assert (store.tokens[store.offsets[1:] - 1] == tokenizer.eos_token_id).all()
    assert (store.tokens == tokenizer.bos_token_id).sum() == store.documents


def test_chinese_comes_through_whole(corpus_of, tokenizer):
    text = "你好，世界？；︰“引号”—— ￥３００，然后😀。"
    store = corpus_of({"a.txt": text}).sources["base"].store
    assert tokenizer.decode(store.tokens, skip_special_tokens=True) == text


def test_preparing_twice_reads_once_and_changed_data_is_prepared_anew(corpus_of):
    one, two = corpus_of({"a.jsonl": jsonl(MANY)}), corpus_of({"a.jsonl": jsonl(MANY)})
    assert one.fingerprint == two.fingerprint
    other = corpus_of({"a.jsonl": jsonl([*MANY[:-1], "changed"])})
    assert other.fingerprint != one.fingerprint
    assert corpus_of({"a.jsonl": jsonl(MANY)}, overlap=0.1).fingerprint != one.fingerprint


def test_all_ranks_together_see_the_order_of_one(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    steps = 2 * corpus.mixture.epoch_length // 8 + 1  # into the third epoch
    alone = [b["sample_ids"] for b in corpus.batches(8, steps=steps)]
    for ranks in (2, 4, 8):
        parts = [[b["sample_ids"] for b in corpus.batches(8, steps=steps, rank=r, ranks=ranks)] for r in range(ranks)]
        assert all(np.array_equal(np.concatenate(p), whole) for p, whole in zip(zip(*parts), alone))
    epoch = np.concatenate(alone)[: corpus.mixture.epoch_length]
    base = epoch[epoch < len(corpus.sources["base"])]
    assert sorted(base.tolist()) == list(range(len(corpus.sources["base"])))


def test_ten_samples_on_four_ranks_give_every_rank_the_same_number_of_steps(corpus_of):
    only_base = {"validation_share": 0.0, "base_share": 1.0, "task_share": 0.0, "perturbed_share": 0.0}
    corpus = corpus_of({"a.jsonl": jsonl(["1234567890" * 2 + "12345"] * 10)}, **only_base)  # a digit is a token
    assert len(corpus.sources["base"]) == 10
    counts = [len(list(corpus.batches(4, steps=5, rank=r, ranks=4))) for r in range(4)]
    assert counts == [5, 5, 5, 5]
    ids = np.concatenate([b["sample_ids"] for b in corpus.batches(4, steps=5)])
    assert np.bincount(ids, minlength=10).tolist() == [2] * 10, "two epochs of ten samples are twenty positions"


def test_resuming_at_a_position_is_going_on(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    whole = list(corpus.batches(4, steps=120))
    for done in (1, 57, 111):
        rest = list(corpus.batches(4, position=4 * done, steps=120 - done))
        for a, b in zip(whole[done:], rest, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in COLUMNS)


def test_a_batch_that_ranks_cannot_share_is_refused(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)})
    with pytest.raises(SettingError, match="batch_size=6 is not a multiple of the 4 ranks"):
        next(corpus.batches(6, steps=1, ranks=4))


def test_a_single_book_gives_its_end_for_validation(corpus_of, tokenizer):
    book = "".join(f"Sentence number {i} of the book. " for i in range(300))
    corpus = corpus_of({"book.txt": book})
    assert corpus.preparation.documents == {"base": 1, "validation": 1, "tasks": 0, "perturbed": 1}
    parts = [
        tokenizer.decode(s.store.tokens, skip_special_tokens=True) for s in (corpus.sources["base"], corpus.validation)
    ]
    assert "".join(parts) == book
    assert "Sentence number 299" not in parts[0]
    assert [s.name for s in corpus.mixture.sources] == ["base", "perturbed"]


def test_blank_space_at_the_end_of_a_book_is_not_lost(corpus_of, tokenizer):
    book = "One sentence of many. " * 40 + "\n" * 60
    store = corpus_of({"book.txt": book}).sources["base"].store
    assert tokenizer.decode(store.tokens, skip_special_tokens=True) == book


def test_a_document_of_one_character_is_a_sample(corpus_of):
    corpus = corpus_of({"a.txt": "字"})
    batch = next(corpus.batches(1, steps=1))
    assert (batch["labels"] != -100).sum() >= 2 and len(corpus.validation) == 0


def test_what_cannot_be_read_is_counted_by_reason(corpus_of):
    files = {
        "good.jsonl": jsonl(MANY[:5]) + "\n{broken\n" + json.dumps({"body": "x"}),
        "empty.txt": "",
        "latin.txt": "caf\xe9 au lait".encode("latin-1"),
        "controls.txt": "\x01\x02\x03",
    }
    facts = corpus_of(files).preparation
    assert facts.documents_read + sum(facts.rejected.values()) == 5 + 2 + 3
    assert sum(facts.dropped.values()) + facts.documents["base"] == facts.documents_read
    assert {q["source"].rsplit("/", 1)[-1] for q in facts.quarantine} >= {"good.jsonl", "empty.txt", "latin.txt"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"empty.txt": ""}, "no usable text is left"),
        ({"a.txt": "\x01\x02"}, "no usable text is left|nothing"),
        ({"image.bin": b"\x00\x01"}, "bin"),
    ],
)
def test_nothing_to_train_on_is_one_line(corpus_of, files, message):
    with pytest.raises(DataError, match=message) as raised:
        corpus_of(files)
    assert "\n" not in str(raised.value)


def test_no_such_path_is_one_line(tokenizer, tmp_path):
    config = DataConfig(data=str(tmp_path / "nowhere"), tasks="")
    with pytest.raises(DataError, match="nowhere") as raised:
        prepare(config, tokenizer, tmp_path / "data")
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match="tasks="):
        (tmp_path / "here.txt").write_text("x")
        prepare(replace(config, data=str(tmp_path / "here.txt"), tasks="gone.jsonl"), tokenizer, tmp_path / "data")


def test_utilisation_of_the_sample_corpus(samples, tokenizer, tmp_path):
    config = DataConfig(data=str(samples / "corpus"), tasks=str(samples / "tasks.jsonl"))
    corpus = open_corpus(config, tokenizer, tmp_path)
    assert corpus.sources["base"].ledger.utilisation > 0.985
    shares = np.bincount(corpus.mixture.locate(np.arange(corpus.mixture.epoch_length))[1]) / corpus.mixture.epoch_length
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.001)
