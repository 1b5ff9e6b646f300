"""Checkpoints: whole or not there, any damage named, the last and the best kept, the rest removed."""

import math
import os
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from workbench.errors import DataError
from workbench.run_folder import RunFolder
from workbench.train.checkpoint import (
    best_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
    set_aside,
)
from workbench.train.checkpoint_folder import FILES, SUMS

WEIGHTS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([-0.0, np.inf], np.float32)}
MOMENTS = {"moment1.a": np.ones(3, np.float32)}
ALL = [*FILES, SUMS]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = RunFolder.at(tmp_path_factory.mktemp("saved"))
    for step in (1, 2, 3):
        save(run, step)
    return run.path


@pytest.fixture
def run(saved, tmp_path):
    return RunFolder.at(shutil.copytree(saved, tmp_path / "run"))


def save(run, step, perplexity=None, keep=2):
    return save_checkpoint(run, step, WEIGHTS, MOMENTS, {"position": 16 * step, "perplexity": perplexity}, keep)


def names(run):
    return sorted(p.name for p in run.checkpoints.iterdir())


def same(mine, theirs):
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert mine[name].dtype == theirs[name].dtype and mine[name].shape == theirs[name].shape
        assert mine[name].tobytes() == theirs[name].tobytes()


def test_what_is_saved_is_loaded_to_the_bit(run):
    got = latest_checkpoint(run)
    assert got.state == {"step": 3, "position": 48, "perplexity": None}
    same(WEIGHTS, got.weights)
    same(MOMENTS, got.optimizer)


@settings(max_examples=25, deadline=None)
@given(
    array=nps.arrays(
        st.sampled_from([np.float32, np.float16, np.int64, ">f4"]), nps.array_shapes(min_dims=0, max_dims=3, min_side=0)
    )
)
def test_any_array_comes_back_to_the_bit_with_gaps_or_without(array, tmp_path_factory):
    run = RunFolder.at(tmp_path_factory.mktemp("run"))
    arrays = {"plain": array, "turned": array.T, "thinned": array[..., ::2] if array.ndim else array}
    got = load_checkpoint(save_checkpoint(run, 1, arrays, {}, {}, keep=1)).weights
    same(
        {
            name: np.ascontiguousarray(a).reshape(a.shape).astype(a.dtype.newbyteorder("<"))
            for name, a in arrays.items()
        },
        got,
    )


def test_the_checksums_are_in_the_form_of_sha256sum(run):
    folder = run.checkpoints / "step_000003"
    told = subprocess.run(["sha256sum", "--strict", "-c", SUMS], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.splitlines() == [f"{name}: OK" for name in FILES]


def test_files_have_the_permissions_of_any_other_file(run, tmp_path):
    (tmp_path / "plain").touch()
    files = [f for f in (run.checkpoints / "step_000003").iterdir()]
    assert {f.stat().st_mode for f in files} == {(tmp_path / "plain").stat().st_mode}


def test_all_is_on_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    run, done, flush, rename = RunFolder.at(tmp_path), [], os.fsync, os.rename
    run.log_metrics({"step": 1})
    run.log_event("start")
    monkeypatch.setattr(os, "fsync", lambda d: (flush(d), done.append(os.fstat(d).st_ino)))
    monkeypatch.setattr(os, "rename", lambda a, b: (done.append("renamed"), rename(a, b)))
    path = save(run, 1)
    files = [path / name for name in ALL] + [tmp_path / name for name in ("metrics.jsonl", "events.jsonl")]
    at = done.index("renamed")
    assert {p.stat().st_ino for p in (*files, path, tmp_path)} == set(done[:at])
    assert done[at + 1 :] == [run.checkpoints.stat().st_ino]


def test_only_the_newest_are_kept_and_nothing_half_written(run):
    assert names(run) == ["step_000002", "step_000003"]


def test_the_step_that_is_there_already_is_refused_and_stays(run):
    before = (run.checkpoints / "step_000003" / FILES[0]).read_bytes()
    with pytest.raises(DataError, match="step_000003 is there already and is not replaced"):
        save_checkpoint(run, 3, {"b": np.zeros(1, np.float32)}, MOMENTS, {}, keep=2)
    assert (run.checkpoints / "step_000003" / FILES[0]).read_bytes() == before
    assert names(run) == ["step_000002", "step_000003"]


@settings(max_examples=12, deadline=None)
@given(
    measured=st.lists(st.none() | st.sampled_from([3.0, 2.5, math.nan, math.inf, 1e30]), min_size=1, max_size=7),
    keep=st.integers(1, 3),
)
def test_the_last_and_the_best_are_kept(measured, keep, tmp_path_factory):
    run = RunFolder.at(tmp_path_factory.mktemp("run"))
    for step, perplexity in enumerate(measured, 1):
        save(run, step, perplexity, keep)
        # Of all so far, since the best so far is always kept.
        counted = [(p, -s) for s, p in enumerate(measured[:step], 1) if p is not None and math.isfinite(p)]
        best = -min(counted)[1] if counted else None
        expected = {*range(max(1, step - keep + 1), step + 1), *([best] if best else [])}
        assert names(run) == [f"step_{s:06d}" for s in sorted(expected)]
        found = best_checkpoint(run)
        assert found == (run.checkpoints / f"step_{best:06d}" if best else None)


def test_a_damaged_state_is_never_the_best(tmp_path):
    run = RunFolder.at(tmp_path)
    save(run, 1, 2.0), save(run, 2, 3.0)
    file = run.checkpoints / "step_000001" / "state.json"
    file.write_text(file.read_text().replace("2.0", "1.0"))
    assert best_checkpoint(run).name == "step_000002"


def test_a_flipped_byte_or_a_cut_anywhere_is_refused_and_named(tmp_path):
    folder = save(RunFolder.at(tmp_path), 3)
    for name in ALL:
        file, content = folder / name, (folder / name).read_bytes()
        for at in range(len(content)):
            flipped = bytearray(content)
            flipped[at] ^= 1 + at % 255
            for damaged in (bytes(flipped), content[:at]):
                file.write_bytes(damaged)
                with pytest.raises(DataError, match=rf"^checkpoint .*step_000003: .*{name}[^\n]*$"):
                    load_checkpoint(folder)
        file.write_bytes(content + b"\0")
        with pytest.raises(DataError, match=name):
            load_checkpoint(folder)
        file.write_bytes(content)
    load_checkpoint(folder)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("what", ["missing", "folder", "link", "pipe"])
def test_what_is_no_regular_file_is_refused_and_named(run, name, what):
    file = run.checkpoints / "step_000003" / name
    moved = file.rename(run.path / name)
    if what == "folder":
        file.mkdir()
    elif what == "link":
        file.symlink_to(moved)
    elif what == "pipe":
        os.mkfifo(file)
    said = "is missing" if what == "missing" else "is not a regular file"
    with pytest.raises(DataError, match=f"step_000003: {name} {said}"):
        load_checkpoint(file.parent)


ODD = [
    lambda lines: lines + [lines[0]],
    lambda lines: lines + ["0" * 64 + "  more.bin\n"],
    lambda lines: lines[:2],
    lambda lines: [lines[1], lines[0], lines[2]],
    lambda lines: [line.upper() for line in lines],
    lambda lines: [line.replace("  ", " *") for line in lines],
    lambda lines: [line.replace("\n", "\r\n") for line in lines],
    lambda lines: [lines[0].replace("model", "../step_000002/model"), *lines[1:]],
]


@pytest.mark.parametrize("change", ODD)
def test_odd_checksum_files_are_refused(run, change):
    file = run.checkpoints / "step_000003" / SUMS
    file.write_text("".join(change(file.read_text().splitlines(keepends=True))), newline="")
    with pytest.raises(DataError, match="SHA256SUMS is damaged: it has to hold"):
        load_checkpoint(file.parent)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"{}", b'{"step": 2}', b"\xff"])
def test_contents_that_are_wrong_under_a_right_checksum_are_named(run, name, content):
    folder = run.checkpoints / "step_000003"
    (folder / name).write_bytes(content)
    sums = subprocess.run(["sha256sum", *FILES], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / SUMS).write_text(sums)
    with pytest.raises(DataError, match=rf"step_000003: {name} [^\n]*$"):
        load_checkpoint(folder)


def test_the_earlier_form_is_told(run):
    (run.checkpoints / "step_000003" / SUMS).unlink()
    with pytest.raises(DataError, match="checkpoints of an earlier form have none and are not supported"):
        load_checkpoint(run.checkpoints / "step_000003")


def test_damaged_ones_are_passed_over_and_told_once(run):
    (run.checkpoints / "step_000003" / FILES[0]).write_bytes(b"")
    for _ in range(3):
        assert latest_checkpoint(run).state["step"] == 2
    (event,) = run.events("damaged checkpoint")
    assert event["path"] == "step_000003" and "model.safetensors is damaged" in event["reason"]
    set_aside(run.checkpoints / "step_000003", "damaged")
    (save(run, 3) / FILES[0]).write_bytes(b"")
    os.utime(run.checkpoints / "step_000003", (1, 1))
    latest_checkpoint(run)
    assert len(run.events("damaged checkpoint")) == 2, "another one of that name was not told"
    shutil.rmtree(run.checkpoints / "step_000002")
    with pytest.raises(DataError, match="no usable checkpoint in .*: all 1 are damaged, see events.jsonl"):
        latest_checkpoint(run)


def test_the_newest_before_a_step(run):
    assert latest_checkpoint(run, before=3).state["step"] == 2
    assert latest_checkpoint(run, before=1000).state["step"] == 3
    with pytest.raises(DataError, match="no usable checkpoint in .* before step 2: run 05_pretrain"):
        latest_checkpoint(run, before=2)


def test_one_that_the_training_process_removes_meanwhile_is_no_damage(run, monkeypatch):
    from workbench.train import checkpoint as module

    def removed_first(path):
        monkeypatch.undo()
        save(run, 4, keep=1)
        return load_checkpoint(path)

    monkeypatch.setattr(module, "load_checkpoint", removed_first)
    assert latest_checkpoint(run).state["step"] == 4
    assert not run.events("damaged checkpoint")


def test_steps_are_sorted_as_numbers_and_foreign_names_left_alone(tmp_path):
    run = RunFolder.at(tmp_path)
    foreign = [
        "step_x",
        "step_",
        "step_12",
        "step_0000003",
        "step_٠٠٠٠٠٣",
        "lost+found",
        ".step_000009.1",
        "hand-step_000008",
    ]
    for name in foreign:
        (run.checkpoints / name).mkdir(parents=True)
    (run.checkpoints / ".DS_Store").touch()
    (run.checkpoints / "step_000007").touch()
    for step in (999_999, 1_000_000, 2):
        save(run, step, keep=3)
    (run.checkpoints / "step_000006").symlink_to(run.checkpoints / "step_000002")
    assert [p.name for p in list_checkpoints(run)] == ["step_000002", "step_999999", "step_1000000"]
    assert latest_checkpoint(run).state["step"] == 1_000_000
    save(run, 1_000_001, keep=1)
    assert names(run) == sorted([*foreign, ".DS_Store", "step_000006", "step_000007", "step_1000001"])


def test_set_aside_is_kept_and_not_found_again(run):
    path = run.checkpoints / "step_000003"
    content = (path / FILES[0]).read_bytes()
    aside = set_aside(path, "Rolled back: too late")
    assert aside.name == "rolled-back-too-late-step_000003" and (aside / FILES[0]).read_bytes() == content
    assert latest_checkpoint(run).state["step"] == 2
    assert set_aside(save(run, 3), "rolled back too late").name == "rolled-back-too-late-2-step_000003"
    for step in (4, 5, 6):
        save(run, step)
    assert aside.is_dir()
    with pytest.raises(ValueError, match="step_000077 could not be renamed"):
        set_aside(run.checkpoints / "step_000077", "damaged")


def test_no_checkpoint_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="run 05_pretrain"):
        latest_checkpoint(RunFolder.at(tmp_path))
    assert best_checkpoint(RunFolder.at(tmp_path)) is None
