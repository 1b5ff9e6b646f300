"""Preparing a corpus: interrupted, repeated, side by side, in several processes; always the same bytes."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from corpus_files import MANY, PLAIN, TASKS, contents, jsonl, write_corpus

from workbench.data import building, prepare as module
from workbench.data.documents import Document
from workbench.data.prepare import open_prepared, prepare
from workbench.data.selection import content_hash
from workbench.data.stages import StageSpec, instruction_salt
from workbench.data.templates import PLAIN as PLAIN_TEMPLATES
from workbench.data.tokenizing import load_tokenizer, spec_of
from workbench.data.workers import WorkerDied, stage_runner
from workbench.errors import DataError

FILES = {
    "a.jsonl": jsonl(MANY) + "\n{broken\n",
    "b.txt": "第一段。\n第二段。",
    "c.jsonl": jsonl(t + "!" for t in MANY),
    "d.txt": b"\xff",
}


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_DOCUMENTS", 64)
    monkeypatch.setattr(building, "_SECONDS", 0.0)
    return write_corpus(tmp_path, FILES, TASKS)


@pytest.fixture
def whole(config, tokenizer, tmp_path):
    prepare(config, tokenizer, tmp_path / "whole")
    return contents(tmp_path / "whole")


class Stop(BaseException):
    """As Ctrl-C: not an error of the data."""


def test_interrupted_anywhere_it_continues_to_the_same_bytes(config, tokenizer, tmp_path, whole):
    blocks = 0

    def stop_at(number):
        def watch(done, size, documents, tokens):
            nonlocal blocks
            blocks += 1
            if blocks == number:
                raise Stop

        return watch

    out = tmp_path / "out"
    for number in (1, 2, 1, 3, 1):  # five interruptions, each after some more blocks
        blocks = 0
        with pytest.raises(Stop):
            prepare(config, tokenizer, out, watch=stop_at(number))
        assert open_prepared(out) is None
    before = json.loads((out / "journal.json").read_text())["counts"]["read"]
    prepare(config, tokenizer, out)
    assert 8 * 64 <= before < 801
    assert contents(out) == whole


@pytest.mark.parametrize("call", [1, 2, 3, 11, 14])
def test_interrupted_between_the_arrays_of_a_block_it_continues_to_the_same_bytes(
    config, tokenizer, tmp_path, whole, monkeypatch, call
):
    add, calls = building.StoreWriter.add, 0

    def interrupted(self, *given):
        nonlocal calls
        calls += 1
        add(self, *given)
        if calls == call:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(building.StoreWriter, "add", interrupted)
        with pytest.raises(Stop):
            prepare(config, tokenizer, tmp_path / "out")
    prepare(config, tokenizer, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def test_killed_it_continues_to_the_same_bytes(config, tokenizer, tmp_path, whole, samples):
    out = tmp_path / "out"
    program = (
        "import sys, os, json\n"
        "from pathlib import Path\n"
        "from workbench.config import DataConfig\n"
        "from workbench.data import building, prepare\n"
        "from workbench.data.tokenizing import load_tokenizer\n"
        "building._SECONDS, prepare._DOCUMENTS = 0.0, 64\n"
        "def watch(done, size, documents, tokens):\n"
        "    if documents >= 300: os.kill(os.getpid(), 9)\n"
        "config = DataConfig(**json.loads(sys.argv[1]))\n"
        "prepare.prepare(config, load_tokenizer(sys.argv[2]), Path(sys.argv[3]), watch=watch)\n"
    )
    given = json.dumps(asdict(config))
    done = subprocess.run(
        [sys.executable, "-c", program, given, str(samples / "tokenizer"), str(out)], capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert (out / "journal.json").is_file() and not (out / "prepared.json").exists()
    with (out / "base" / "tokens.bin").open("ab") as torn:
        torn.write(b"half of a number")
    prepare(config, tokenizer, out)
    assert contents(out) == whole


def test_run_twice_does_nothing(config, tokenizer, tmp_path):
    out = tmp_path / "out"
    first = prepare(config, tokenizer, out)[1]
    times = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.name != ".lock"}
    assert prepare(config, tokenizer, out)[1] == first
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.name != ".lock"} == times


def test_two_at_once_do_not_corrupt_it(config, tokenizer, tmp_path, samples, monkeypatch):
    """Two command lines into one folder: both succeed, and the folder is as one alone makes it."""
    monkeypatch.undo()
    prepare(config, tokenizer, tmp_path / "whole")
    whole, out = contents(tmp_path / "whole"), tmp_path / "out"
    command = [sys.executable, "-m", "workbench.cli", "prepare", config.data, "--tasks", config.tasks]
    command += ["--tokenizer", str(samples / "tokenizer"), "--out", str(out), "-p", "sequence_length=32"]
    quiet = {**os.environ, "WORKBENCH_PROGRESS": "log"}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=quiet) for _ in range(2)]
    outputs = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    assert [out_.decode() for out_, _ in outputs] == [f"{out / 'ledger.json'}\n"] * 2
    made = contents(out)
    assert {name: made[name] for name in whole} == whole
    ledger = json.loads(made["ledger.json"])
    assert ledger["documents"]["read"] == 801 and ledger["documents"]["rejected"] == {
        "broken JSON": 1,
        "invalid UTF-8": 1,
    }


def test_processes_give_the_same_bytes(config, tokenizer, tmp_path, whole):
    prepare(config, tokenizer, tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == whole


def test_a_dead_worker_is_one_line_and_keeps_what_was_done(config, tokenizer):
    class Bomb:
        def __reduce__(self):
            return (os._exit, (9,))

    spec = StageSpec(config, spec_of(tokenizer), PLAIN_TEMPLATES, small=False)
    with pytest.raises(WorkerDied, match="set workers to a smaller number"):
        with stage_runner(spec, 2) as run:
            list(run("documents", [([Document("text", "a", 1, {"x": Bomb()})], None)]))


def test_other_data_in_the_same_folder_is_refused_with_both_fingerprints(config, tokenizer, tmp_path):
    out = tmp_path / "out"
    saved = prepare(config, tokenizer, out)[1].fingerprints
    (tmp_path / "texts" / "b.txt").write_text("other")
    with pytest.raises(DataError, match="was made with other data") as raised:
        prepare(config, tokenizer, out)
    assert saved["data"] in str(raised.value) and str(raised.value).count("now") >= 1 and "\n" not in str(raised.value)
    with pytest.raises(DataError, match="other data and settings"):
        prepare(replace(config, validation_share=0.1), tokenizer, out)


def test_an_unfinished_preparation_of_other_data_is_not_continued(config, tokenizer, tmp_path):
    def watch(*_):
        raise Stop

    with pytest.raises(Stop):
        prepare(config, tokenizer, tmp_path / "out", watch=watch)
    with pytest.raises(DataError, match="unfinished preparation of other data or settings"):
        prepare(replace(config, seed=1), tokenizer, tmp_path / "out")


def test_a_folder_with_other_things_in_it_is_left_alone(config, tokenizer, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(DataError, match="holds other things .thesis.txt."):
        prepare(config, tokenizer, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_task_ids_start_at_one_and_too_many_types_are_refused(tokenizer, tmp_path):
    tasks = [{"task_type": kind, "question": "q?", "answer": "a"} for kind in ("b", "a", "b")]
    config = write_corpus(tmp_path, {"a.jsonl": jsonl(MANY)}, tasks, instruction_share=0.0)
    stores, facts = prepare(config, tokenizer, tmp_path / "out", num_tasks=3)
    assert facts.task_ids == {"b": 1, "a": 2} and stores["tasks"].task_ids.tolist() == [1, 2, 1]
    with pytest.raises(DataError, match="raise num_tasks"):
        prepare(config, tokenizer, tmp_path / "few", num_tasks=2)


def test_the_quarantine_keeps_chinese_whole(tokenizer, tmp_path):
    lines = '{"text": "fine"}\n{"名字": "x"}\nnope\n'
    config = write_corpus(tmp_path, {"坏.jsonl": lines, "a.jsonl": jsonl(MANY)})
    prepare(config, tokenizer, tmp_path / "out")
    rows = (tmp_path / "out" / "quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["line"] for row in rows] == [2, 3] and "名字" in rows[0] and "坏" in rows[0]


def test_what_cannot_be_read_is_in_the_quarantine_and_strict_refuses_it(config, tokenizer, tmp_path):
    prepare(config, tokenizer, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    assert [(q["source"].rsplit("/", 1)[-1], q["line"]) for q in lines] == [("a.jsonl", 401), ("d.txt", 0)]
    with pytest.raises(DataError, match="a.jsonl:401: broken JSON"):
        prepare(replace(config, strict=True), tokenizer, tmp_path / "strict")
    # Once the data is mended, the same folder can be used.
    (tmp_path / "texts" / "a.jsonl").write_text(jsonl(MANY))
    (tmp_path / "texts" / "d.txt").unlink()
    assert prepare(replace(config, strict=True), tokenizer, tmp_path / "strict")[1].documents_read == 801


@pytest.mark.parametrize("share", [0.0, 0.001, 0.15, 0.999, 1.0])
def test_exactly_the_asked_share_becomes_instructions(config, tokenizer, tmp_path, share):
    stores, facts = prepare(replace(config, instruction_share=share), tokenizer, tmp_path / "out")
    kept = [stores["base"].record(d) for d in range(stores["base"].documents)]
    asked = [r.get("task_type") == "instruction" for r in kept]
    assert facts.instructions == sum(asked) == int(round(share * 1000) * len(kept) // 1000)
    assert (np.asarray(stores["base"].task_ids) > 0).sum() == sum(asked)
    if share == 0.15:
        assert facts.instructions > 100


def test_instructions_are_those_with_the_smallest_hashes_of_their_block(tokenizer, tmp_path):
    config = write_corpus(tmp_path, {"a.jsonl": jsonl(MANY[:250])}, validation_share=0.0, perturbed_share=0.0,
                          base_share=1.0, task_share=0.0)  # fmt: skip
    stores, _ = prepare(config, tokenizer, tmp_path / "out")
    ranked = sorted(range(250), key=lambda i: (content_hash(MANY[i], instruction_salt(config.seed)), i))
    asked = {d for d in range(250) if stores["base"].record(d).get("task_type") == "instruction"}
    assert asked == set(ranked[:37])


def test_the_clean_text_is_kept_with_where_it_came_from(config, tokenizer, tmp_path):
    stores, _ = prepare(replace(config, **PLAIN), tokenizer, tmp_path / "out")
    record = stores["base"].record(0)
    assert record["parts"] == [MANY[0]] and record["line"] == 1 and record["source"].endswith("a.jsonl")
    offsets = stores["base"].offsets
    for d in range(0, stores["base"].documents, 97):
        tokens = stores["base"].tokens[offsets[d] + 1 : offsets[d + 1] - 1]
        assert tokenizer.decode(tokens) == "".join(stores["base"].record(d)["parts"])


def test_nothing_is_hashed_again_when_a_prepared_corpus_is_opened(config, tokenizer, tmp_path, monkeypatch):
    prepare(config, tokenizer, tmp_path / "out")
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("a file was read again"))
    assert prepare(config, tokenizer, tmp_path / "out")[1].documents_read == 801
