"""The checkpoints of a run: written whole or not at all, the newest good one found, the oldest removed.

    path = save_checkpoint(run, step, weights, optimizer, state, keep=2)
    checkpoint = latest_checkpoint(run)

A checkpoint (its files: ``checkpoint_folder.py``) is written into a folder beside, flushed to disk with
the run's logs and renamed, so a folder with the final name is whole and no log is behind it. The last
``save_total_limit`` and the one of the lowest perplexity stay; others are removed once the new one is
whole, so the disk has to hold two more than the limit.

Costs: writing, a SHA-256 of every byte and the flush; in the background with ``saving.py``. Does not
compress, nor spread a checkpoint over ranks. A float in ``state`` that is not finite comes back as the
word that stands for it in JSON ("nan", "inf"). Files that are not its own are left alone.
"""

import math
import os
import platform
import re
import shutil
import time
from pathlib import Path
from typing import Any, Mapping

import numpy as np
import psutil
from safetensors import SafetensorError
from safetensors.numpy import save_file

from workbench.errors import DataError, StorageError
from workbench.run_folder import RunFolder, write_json
from workbench.train.checkpoint_folder import (
    ARRAYS,
    FILES,
    STATE,
    SUMS,
    Checkpoint,
    checksum,
    load_checkpoint,
    read_state,
    step_of,
    verify_checkpoint,
)

_BESIDE_FORM = re.compile(r"\.(?:old-)?step_[0-9]{6,}\.(.*)\.([0-9]+)\.([0-9]+)")
SILENT_SECONDS = 3600  # a folder that another host has not written to for so long is a dead process's


def save_checkpoint(
    run: RunFolder,
    step: int,
    weights: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write checkpoint ``step`` and remove what is neither among the last ``keep`` nor the best; its folder.

    ``state["perplexity"]`` is what was measured at this very step, or None. Errors as in
    ``write_checkpoint`` and ``remove_old``.
    """
    path = write_checkpoint(run, step, weights, optimizer, state)
    remove_old(run, keep)
    return path


def write_checkpoint(
    run: RunFolder,
    step: int,
    weights: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
) -> Path:
    """Write checkpoint ``step``; its folder. Raises DataError where there is one already.

    Raises StorageError where it cannot be written; every other checkpoint is as it was then, and the
    room that the half-written one took is free again.
    """
    final = run.checkpoints / f"step_{step:06d}"
    if os.path.lexists(final):
        raise DataError(
            f"checkpoint {final} is there already and is not replaced: does another run write into this RUN? "
            f"Give this one a RUN of its own, or move {final.name} away"
        )
    beside = _beside(final)
    try:
        beside.mkdir(parents=True)
        for name, arrays in zip(ARRAYS, (weights, optimizer)):
            # save_file would write the memory of an array with gaps as if it had none.
            save_file({n: a if a.flags.c_contiguous else a.copy() for n, a in arrays.items()}, beside / name)
            # It makes its files private to the user, whatever the umask.
            (beside / name).chmod(beside.stat().st_mode & 0o666)
        write_json(beside / STATE, {**state, "step": step})
        (beside / SUMS).write_text("".join(f"{checksum(beside / name)}  {name}\n" for name in FILES))
        logs = [run.path / name for name in ("metrics.jsonl", "events.jsonl")]
        _flush(*beside.iterdir(), beside, *filter(Path.exists, logs), run.path)
        beside.rename(final)
        _flush(run.checkpoints)
    except BaseException as error:
        # What cannot be removed now, clear_half_written of the next process removes.
        shutil.rmtree(beside, ignore_errors=True)
        reason = _reason(error)
        if reason is None:
            raise
        needed = sum(a.nbytes for arrays in (weights, optimizer) for a in arrays.values())
        raise StorageError(
            f"checkpoint {final.name} could not be written to {run.checkpoints}: {reason} "
            f"({_megabytes(needed)} needed, {_free(run.path)} free); {_newest_told(run, step)}; mend this "
            "(free space, for example) and run the same command again"
        ) from error
    return final


def remove_old(run: RunFolder, keep: int) -> None:
    """Remove the checkpoints that are neither among the last ``keep`` nor the best.

    None is ever seen in part: it loses its name first. Raises StorageError where that cannot be done.
    """
    paths = list_checkpoints(run)
    old = set(paths[:-keep]) - {best_checkpoint(run)} if len(paths) > keep else ()
    try:
        renamed = [path.rename(_beside(path, "old-")) for path in sorted(old)]
        if renamed:
            _flush(run.checkpoints)
        for path in renamed:
            shutil.rmtree(path)
    except OSError as error:
        raise StorageError(
            f"old checkpoints could not be removed from {run.checkpoints}: {_reason(error)}; {paths[-1].name} is "
            "written; make the folder writable or raise save_total_limit, and run the same command again"
        ) from error


def list_checkpoints(run: RunFolder) -> list[Path]:
    """The checkpoints of a run by step, oldest first, not verified."""
    found = run.checkpoints.iterdir() if run.checkpoints.is_dir() else ()
    return sorted((p for p in found if step_of(p) is not None and p.is_dir() and not p.is_symlink()), key=step_of)


def best_checkpoint(run: RunFolder) -> Path | None:
    """The checkpoint of the lowest perplexity, the newest of equals; None where none was measured.

    Only ``state.json`` is verified; a checkpoint where that is damaged does not count.
    """
    measured = []
    for path in list_checkpoints(run):
        try:
            perplexity = read_state(path).get("perplexity")
        except DataError:
            continue  # told by latest_checkpoint
        if isinstance(perplexity, (int, float)) and math.isfinite(perplexity):
            measured.append((perplexity, -step_of(path), path))
    return min(measured)[-1] if measured else None


def latest_checkpoint(run: RunFolder, before: int | None = None) -> Checkpoint:
    """The newest whole checkpoint (of a step less than ``before``).

    Damaged ones are passed over and told in ``events.jsonl``, each once. Raises DataError where
    there is none that can be used.
    """
    damaged = 0
    for path in _newest_first(run, before):
        try:
            return load_checkpoint(path)
        except DataError as error:
            if not path.exists():  # a process that trains has just replaced it by a newer one
                return latest_checkpoint(run, before)
            damaged += 1
            told = {"path": path.name, "written": round(path.stat().st_mtime, 3), "reason": str(error)}
            if not any(told.items() <= event.items() for event in run.events("damaged checkpoint")):
                run.log_event("damaged checkpoint", **told)
    where = f"{run.checkpoints}" + ("" if before is None else f" before step {before}")
    how = f"all {damaged} are damaged, see events.jsonl" if damaged else "run 05_pretrain with this RUN first"
    raise DataError(f"no usable checkpoint in {where}: {how}")


def set_aside(path: Path, why: str) -> Path:
    """Rename a checkpoint so that it is kept but never found again; ``why`` (a word or two) begins its new name.

    Raises StorageError where that cannot be done.
    """
    word = re.sub(r"[^a-z0-9]+", "-", why.lower()).strip("-")
    target, count = path.with_name(f"{word}-{path.name}"), 1
    while os.path.lexists(target):
        count += 1
        target = path.with_name(f"{word}-{count}-{path.name}")
    try:
        path.rename(target)
        _flush(path.parent)
    except OSError as error:
        raise StorageError(f"checkpoint {path} could not be renamed to {target.name}: {_reason(error)}") from error
    return target


def clear_half_written(run: RunFolder) -> list[str]:
    """Remove what processes that died while they wrote or removed a checkpoint have left; the names of it.

    What belongs to a process that lives stays. Whether one on another host lives cannot be known: what
    it has not touched for an hour is removed.
    """
    found = sorted(p for p in run.checkpoints.iterdir() if p.is_dir()) if run.checkpoints.is_dir() else []
    owners = [(path, _BESIDE_FORM.fullmatch(path.name)) for path in found]
    dead = [path for path, owner in owners if owner and not _alive(path, *owner.groups())]
    for path in dead:
        shutil.rmtree(path)
    return [path.name for path in dead]


def _beside(final: Path, kind: str = "") -> Path:
    # With the start of the process, since its number may be another's by the time somebody looks.
    process = psutil.Process()
    return final.with_name(f".{kind}{final.name}.{platform.node()}.{process.pid}.{int(process.create_time())}")


def _alive(path: Path, host: str, pid: str, started: str) -> bool:
    if host != platform.node():
        return time.time() - max(p.stat().st_mtime for p in (path, *path.iterdir())) < SILENT_SECONDS
    try:
        process = psutil.Process(int(pid))
        # The start is counted from the boot, whose time is corrected now and then.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - int(started)) < 5
    except psutil.NoSuchProcess:
        return False


def _newest_first(run: RunFolder, before: int | None) -> list[Path]:
    return [path for path in reversed(list_checkpoints(run)) if before is None or step_of(path) < before]


def _flush(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: BaseException) -> str | None:
    """What the system said; None where the error is not the system's."""
    if isinstance(error, SafetensorError):  # has the number of the system's error in its text only
        number = re.search(r"\(os error (\d+)\)", str(error))
        return os.strerror(int(number[1])) if number else None
    return (error.strerror or str(error)) if isinstance(error, OSError) else None


def _newest_told(run: RunFolder, step: int) -> str:
    for path in _newest_first(run, step):
        try:
            verify_checkpoint(path)
            return f"{path.name} is whole"
        except DataError:
            continue  # told by latest_checkpoint
    return "there is no earlier one"


def _free(folder: Path) -> str:
    return _megabytes(shutil.disk_usage(folder).free) if folder.is_dir() else "nothing"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
