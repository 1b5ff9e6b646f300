"""Measuring: a process's memory, order of rounds, refusals, and what is concluded from known numbers."""

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from workbench.errors import DataError, SettingError

from . import compare, data, ours, peer_datasets, peer_datatrove
from .job import Job
from .measure import Entry, Run, machine, measure, run_once, summary


def python(code):
    return [sys.executable, "-c", code]


def run(seconds, tokens=10, **said):
    return Run(seconds + 1, seconds, 5, {"seconds": seconds, "tokens": tokens, "sum_of_ids": 7, "documents": 2, **said})


BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"


def test_memory_and_processor_time_are_of_the_whole_tree_and_the_last_line_is_the_result():
    child = "x = b'1' * 150_000_000; " + BUSY.format(0.4)
    code = f"import subprocess, sys; print('noise'); subprocess.run([sys.executable, '-c', {child!r}]); print('[1]')"
    got = run_once(python(code))
    assert got.said == [1]
    assert 150_000_000 < got.peak_memory < 400_000_000
    assert got.processor_seconds > 0.4 < got.wall_seconds


def test_processes_that_nobody_waits_for_count_too():
    # The process in the middle leaves its child's times to the system, as a fork server does.
    code = (
        f"import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {BUSY.format(1)!r}])\n"
        "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT); print('{}', flush=True); os._exit(0)"
    )
    assert run_once(python(code)).processor_seconds > 0.8


@pytest.mark.parametrize(
    "code, told", [("raise SystemExit('no such text')", "no such text"), ("print('hello')", "hello")]
)
def test_a_command_that_fails_or_says_nothing_is_refused(code, told):
    with pytest.raises(DataError, match=told):
        run_once(python(code))


def test_rounds_go_through_all_entries_from_another_start_and_folders_are_fresh(tmp_path):
    code = "import sys, json, os; f = sys.argv[1]; open(f + '/x', 'x'); print(json.dumps(os.environ['WHICH']))"
    entries = [Entry(n, "g", lambda folder: [*python(code), str(folder)], {"WHICH": n}) for n in ("a", "b", "c")]
    order = []
    runs = measure(entries, 2, tmp_path, note=order.append)
    assert [line.split("  ")[1][0] for line in order] == list("abcbca")
    assert {name: [r.said for r in several] for name, several in runs.items()} == {n: [n, n] for n in "abc"}
    assert not list(tmp_path.iterdir())


def test_no_rounds_and_equal_names_are_refused(tmp_path):
    entry = Entry("a", "g", lambda folder: python("print('{}')"))
    with pytest.raises(SettingError, match="repeats=0"):
        measure([entry], 0, tmp_path)
    with pytest.raises(SettingError, match="every name once"):
        measure([entry, entry], 1, tmp_path)


def test_conclusions_from_known_numbers():
    runs = {"p1": [run(6), run(4), run(9)], "p2": [run(5), run(5), run(5)], "o": [run(2), run(2), run(3)]}
    entries = [Entry(n, "ours" if n == "o" else "peer", lambda folder: []) for n in runs]
    best = {group: several[0] for group, several in compare.fastest(entries, runs).items()}
    assert {group: entry.name for group, entry in best.items()} == {"peer": "p2", "ours": "o"}
    assert [e.name for e in compare.fastest(entries, runs, 2)["peer"]] == ["p2", "p1"]
    assert compare.ratios(best, runs) == {
        "peer": {"of_medians": 2.5, "of_wall_medians": 2.0, "by_round": [2.5, 2.5, 1.667]}
    }
    assert compare.ratios({"peer": best["peer"]}, runs) == {}
    told = compare.report(runs, 12_000_000)
    assert told["p1"]["seconds"] == 6 and told["p1"]["mb_per_second"] == 2
    assert told["p1"]["raw"]["seconds"] == [6, 4, 9]
    assert [line.split()[0] for line in compare.table(told).splitlines()[1:]] == ["o", "p2", "p1"]
    assert json.loads(json.dumps(summary(runs["o"])))["seconds"] == 2


def test_runs_that_saw_other_tokens_are_not_compared():
    assert compare.same_work({"a": [run(1), run(2)], "b": [run(3)]}) == {"tokens": 10, "sum_of_ids": 7, "documents": 2}
    for wrong in (run(1, tokens=11), run(1, sum_of_ids=8), run(1, documents=3)):
        with pytest.raises(DataError, match="same work"):
            compare.same_work({"a": [run(1), run(2)], "b": [wrong]})


def test_the_machine_can_be_written_down():
    about = json.loads(json.dumps(machine()))
    assert about["cores"] >= 1 and about["memory_gb"] > 0 and about["versions"]["numpy"].startswith("1.")


def test_the_command_line_is_checked():
    given = data.arguments(["--out", "x.json", "--ours", "1,2", "--peers", "datasets", "--tokenizers", "qwen"])
    assert (given.ours, given.peers, given.tokenizers, given.megabytes) == ([1, 2], ["datasets"], ["qwen"], 50)
    smoke = data.arguments(["--out", "x.json", "--smoke"])
    assert (smoke.megabytes, smoke.repeats, smoke.peers) == (2, 1, ["datasets"])
    for words, told in (
        ("--peers datatrov", "datatrove"),
        ("--tokenizers gpt", "unknown tokenizer"),
        ("--ours two", "worker counts"),
        ("--ours 0", "worker counts"),
        ("--peers= --ours=", "nothing to measure"),
    ):
        with pytest.raises(SettingError, match=told):
            data.arguments(["--out", "x.json", *words.split()])


def test_names_of_all_settings_differ(tmp_path):
    job = tmp_path / "job.json"
    entries = peer_datasets.entries(job, "python") + peer_datatrove.entries(job, "python") + ours.entries(job, [1, 2])
    assert len({e.name for e in entries}) == len(entries) > 12
    assert len({(*e.command(tmp_path), *e.environment.values()) for e in entries}) == len(entries)


@pytest.fixture
def job(tmp_path, samples):
    """Ten short documents in two files and the bundled tokenizer."""
    texts = [f"文档 {n}：价格<100元。 if a<{n}: pass\n" * (n + 1) for n in range(10)]
    for part in (0, 1):
        lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts[part::2]]
        (tmp_path / f"part-{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    files = tuple(str(tmp_path / f"part-{part}.jsonl") for part in (0, 1))
    shape = {"sequence_length": 16, "batch_size": 4}
    return Job(files, sum(len(t.encode()) for t in texts), 10, str(samples / "tokenizer"), "<eos>", 2, **shape), texts


def test_a_job_survives_its_file(job, tmp_path):
    assert Job.load(job[0].save(tmp_path / "job.json")) == job[0]


def expected(job, texts):
    tokenizer = Tokenizer.from_file(f"{job.tokenizer}/tokenizer.json")
    ids = [i for text in texts for i in [*tokenizer.encode(text, add_special_tokens=False).ids, 2]]
    return {
        "tokens": len(ids),
        "sum_of_ids": sum(ids),
        "documents": len(texts),
        "tokens_in_batches": len(ids) // job.sequence_length * job.sequence_length,
    }


@pytest.mark.parametrize("direct, run_clm", [(False, False), (True, False), (False, True)])
def test_the_datasets_peer_sees_every_token(job, tmp_path, direct, run_clm):
    job, texts = job
    how = {"num_proc": None, "map_batch": 1000, "writer_batch": 1000, "run_clm": run_clm, "direct": direct}
    said = peer_datasets.run(job, tmp_path, **how)
    assert expected(job, texts).items() <= said.items()
    assert said["seconds"] == pytest.approx(sum(said["stages"].values()), abs=0.001)


def test_the_datasets_peer_is_measured_as_a_command(job, tmp_path):
    job, texts = job
    (entry,) = peer_datasets.entries(job.save(tmp_path / "job.json"), sys.executable, ["num_proc=2"])
    (got,) = measure([entry], 1, tmp_path)[entry.name]
    want = expected(job, texts)
    # Each of the two processes drops the remainder of its own batch.
    assert got.said["tokens_in_batches"] in (want["tokens_in_batches"], want.pop("tokens_in_batches") - 16)
    assert want.items() <= got.said.items()
    assert 0 < got.said["seconds"] < got.wall_seconds


def test_the_datatrove_script_starts_without_the_workbench():
    # In its own environment neither the workbench nor psutil exists.
    script = peer_datatrove.__file__
    done = subprocess.run([sys.executable, "-S", script, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "--unshuffled" in done.stdout, done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_ours_sees_every_token_that_the_peers_see(job, tmp_path, workers):
    job, texts = job
    said = ours.ours(job, tmp_path, workers)
    want = expected(job, texts)
    want.pop("tokens_in_batches")  # nothing is cut off at the end of a batch
    assert want.items() <= said.items()
    assert said["tokens_in_batches"] >= said["tokens"] and said["seconds"] > 0
