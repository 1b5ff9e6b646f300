"""From files to batches: ledgers, splits, order over ranks, and what goes wrong with bad files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpus_files import MANY, PLAIN, TASKS, jsonl, write_corpus

from workbench.config import DataConfig
from workbench.data.perturb import perturb
from workbench.data.pipeline import open_corpus
from workbench.data.sources import COLUMNS
from workbench.data.prepare import prepare
from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError, SettingError


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture
def corpus_of(tmp_path, tokenizer):
    """A corpus of the given files ({name: bytes or str}) and settings."""
    return lambda files, tasks=None, **values: open_corpus(
        write_corpus(tmp_path, files, tasks, **values), tokenizer, tmp_path / "data"
    )


def test_documents_are_accounted_for_and_validation_is_not_trained_on(corpus_of, tokenizer):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS, instruction_share=0.0)
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
    assert texts["perturbed"] <= {perturb(t, corpus.config.seed).text for t in texts["base"]}


def test_every_document_begins_and_ends_with_its_special_tokens(corpus_of, tokenizer):
    store = corpus_of({"a.jsonl": jsonl(MANY)}).sources["base"].store
    assert (store.tokens[store.offsets[:-1]] == tokenizer.bos_token_id).all()
    assert (store.tokens[store.offsets[1:] - 1] == tokenizer.eos_token_id).all()
    assert (store.tokens == tokenizer.bos_token_id).sum() == store.documents


def test_chinese_comes_through_whole(corpus_of, tokenizer):
    text = "你好，世界？；︰“引号”—— ￥３００，然后😀。"
    store = corpus_of({"a.txt": text}, **PLAIN).sources["base"].store
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
    texts = ["1234567890" * 2 + "12345"] * 10  # a digit is a token
    corpus = corpus_of({"a.jsonl": jsonl(texts)}, validation_share=0.0, **PLAIN)
    assert len(corpus.sources["base"]) == 10
    counts = [len(list(corpus.batches(4, steps=5, rank=r, ranks=4))) for r in range(4)]
    assert counts == [5, 5, 5, 5]
    ids = np.concatenate([b["sample_ids"] for b in corpus.batches(4, steps=5)])
    assert np.bincount(ids, minlength=10).tolist() == [2] * 10, "two epochs of ten samples are twenty positions"


def test_resuming_at_a_position_is_going_on(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    whole = list(corpus.batches(4, steps=120))
    for done in (1, 57, 111):
        position = corpus.resume(json.loads(json.dumps(corpus.state(4 * done))))
        rest = list(corpus.batches(4, position=position, steps=120 - done, workers=2))
        for a, b in zip(whole[done:], rest, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in COLUMNS)


def test_saving_and_resuming_twice_in_a_later_epoch_with_other_ranks_changes_nothing(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    epoch = corpus.mixture.epoch_length
    steps = 3 * epoch // 8 + 2
    whole = [b["sample_ids"] for b in corpus.batches(8, steps=steps)]
    # One rank to the middle of the first epoch, two into the third, four to the end.
    plan, position, got = [(1, epoch // 16), (2, 2 * epoch // 8 + 1), (4, steps)], 0, []
    for ranks, until in plan:
        count = until - position // 8
        parts = [list(corpus.batches(8, position=position, steps=count, rank=r, ranks=ranks)) for r in range(ranks)]
        got += [np.concatenate([b["sample_ids"] for b in step]) for step in zip(*parts)]
        position = corpus.resume(json.loads(json.dumps(corpus.state(8 * until))))
    assert [g.tolist() for g in got] == [w.tolist() for w in whole]
    base = len(corpus.sources["base"])
    for e in range(3):
        of_epoch = np.concatenate(whole)[e * epoch : (e + 1) * epoch]
        assert sorted(of_epoch[of_epoch < base].tolist()) == list(range(base)), "an epoch that is not whole"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"overlap": 0.1}, "order"),
        ({"unicode_form": "NFKC"}, "cleaning"),
        ({"validation_share": 0.2}, "settings"),
        ({"seed": 1}, "settings and order"),
    ],
)
def test_resuming_with_other_settings_is_refused_with_both_fingerprints(corpus_of, change, part):
    saved = corpus_of({"a.jsonl": jsonl(MANY)}).state(400)
    other = corpus_of({"a.jsonl": jsonl(MANY)}, **change)
    with pytest.raises(DataError, match=f"with other {part} ") as raised:
        other.resume(saved)
    name = part.split()[0]
    assert saved["fingerprints"][name] in str(raised.value) and other.fingerprints[name] in str(raised.value)


def test_resuming_on_swapped_data_or_another_tokenizer_is_refused(corpus_of, tmp_path, tokenizer):
    saved = corpus_of({"a.jsonl": jsonl(MANY)}).state(400)
    swapped = corpus_of({"a.jsonl": jsonl(MANY[::-1])})  # the same size, other bytes
    with pytest.raises(DataError, match="with other data "):
        swapped.resume(saved)
    other = train_tokenizer(MANY, 300)
    with pytest.raises(DataError, match="with other tokenizer "):
        open_corpus(write_corpus(tmp_path, {"a.jsonl": jsonl(MANY)}), other, tmp_path / "data").resume(saved)


def test_tokens_made_in_the_dataset_are_those_of_the_store_to_the_bit(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY), "long.txt": "很长的文章，没有尽头😀。" * 60}, TASKS)
    steps = corpus.mixture.epoch_length // 8
    pairs = zip(corpus.batches(8, steps=steps), corpus.batches(8, steps=steps, tokenise="dataset"), strict=True)
    for stored, again in pairs:
        for name in COLUMNS:
            assert stored[name].dtype == again[name].dtype and np.array_equal(stored[name], again[name]), name
    with pytest.raises(SettingError, match="store or dataset"):
        next(corpus.batches(8, steps=1, tokenise="offline"))


def test_a_prepared_corpus_is_opened_by_its_folder(corpus_of, tokenizer, tmp_path):
    made = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    place = tmp_path / "data" / made.preparation.fingerprint
    for file in (tmp_path / "texts").iterdir():
        file.unlink()  # the folder stands alone
    config = replace(made.config, data=str(place), tasks="")
    opened = open_corpus(config, tokenizer, tmp_path / "elsewhere")
    assert opened.fingerprint == made.fingerprint and not (tmp_path / "elsewhere").exists()
    with pytest.raises(DataError, match="was made with other cleaning"):
        open_corpus(replace(config, fold_width=True), tokenizer, tmp_path / "elsewhere")


def test_a_sample_is_traced_back_to_its_file(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)}, TASKS)
    for position in range(5):
        for origin in corpus.origin(position):
            if origin["store"] == "base":
                line = Path(origin["source"]).read_text(encoding="utf-8").splitlines()[origin["line"] - 1]
                assert "".join(origin["parts"]).find(json.loads(line)["text"][:12]) >= 0


def test_a_batch_that_ranks_cannot_share_is_refused(corpus_of):
    corpus = corpus_of({"a.jsonl": jsonl(MANY)})
    with pytest.raises(SettingError, match="batch_size=6 is not a multiple of the 4 ranks"):
        next(corpus.batches(6, steps=1, ranks=4))


def test_a_single_book_gives_its_end_for_validation(corpus_of, tokenizer):
    book = "".join(f"Sentence number {i} of the book. " for i in range(300))
    corpus = corpus_of({"book.txt": book}, instruction_share=0.0)
    assert corpus.preparation.documents == {"base": 1, "validation": 1, "tasks": 0, "perturbed": 1}
    parts = [
        tokenizer.decode(s.store.tokens, skip_special_tokens=True) for s in (corpus.sources["base"], corpus.validation)
    ]
    assert "".join(parts) == book
    assert "Sentence number 299" not in parts[0]
    assert [s.name for s in corpus.mixture.sources] == ["base", "perturbed"]


def test_blank_space_at_the_end_of_a_book_is_not_lost(corpus_of, tokenizer):
    book = "One sentence of many. " * 40 + "\n" * 60
    store = corpus_of({"book.txt": book}, **PLAIN).sources["base"].store
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
        prepare(config, tokenizer, tmp_path / "data" / "x")
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match="gone.jsonl"):
        (tmp_path / "here.txt").write_text("x")
        prepare(
            replace(config, data=str(tmp_path / "here.txt"), tasks="gone.jsonl"), tokenizer, tmp_path / "data" / "x"
        )


def test_the_sample_corpus_fills_its_rows_and_keeps_its_shares(samples, tokenizer, tmp_path):
    config = DataConfig(data=str(samples / "corpus"), tasks=str(samples / "tasks.jsonl"))
    corpus = open_corpus(config, tokenizer, tmp_path)
    ledgers = {s.name: corpus.sources[s.name].ledger for s in corpus.mixture.sources}
    drawn = [(q / s.samples, ledgers[s.name]) for q, s in zip(corpus.mixture.counts, corpus.mixture.sources)]
    assert ledgers["base"].utilisation > 0.99
    assert 1 - sum(w * g.slots_padding for w, g in drawn) / sum(w * g.slots for w, g in drawn) > 0.99
    shares = np.bincount(corpus.mixture.locate(np.arange(corpus.mixture.epoch_length))[1]) / corpus.mixture.epoch_length
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.001)
