"""Checkpoints: complete, verified, atomic, and nothing in them executes when loaded.

    checkpoints/step_000600/
        model.safetensors       weights, named as in Hugging Face's Llama
        optimizer.safetensors   both moments, updates done, loss scale, counters
        state.json              step, data position, fingerprints, config, checksums of both files

A checkpoint is written into a folder beside, flushed to disk and renamed, so a folder with the
final name is whole. Loading checks every checksum; a damaged one is named and never used. The
oldest are removed once there are more than ``save_total_limit``.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

import numpy as np
from safetensors.numpy import load_file, save_file

from workbench.errors import DataError
from workbench.run_folder import RunFolder, write_json

_FILES = ("model.safetensors", "optimizer.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: weights and optimizer arrays by name, and ``state.json``."""

    path: Path
    weights: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray]
    state: dict[str, Any]


def save_checkpoint(
    run: RunFolder,
    step: int,
    weights: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write checkpoint ``step`` and remove the oldest beyond ``keep``; returns its folder."""
    final = run.checkpoints / f"step_{step:06d}"
    beside = run.checkpoints / f".{final.name}.{os.getpid()}"
    beside.mkdir(parents=True)
    for name, arrays in zip(_FILES, (weights, optimizer)):
        save_file(dict(arrays), beside / name)
    checksums = {name: _checksum(beside / name) for name in _FILES}
    write_json(beside / "state.json", {"step": step, **state, "checksums": checksums})
    for file in (*beside.iterdir(), beside):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    if final.exists():
        shutil.rmtree(final)
    beside.rename(final)
    for old in list_checkpoints(run)[:-keep]:
        shutil.rmtree(old)
    return final


def list_checkpoints(run: RunFolder) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    return sorted(run.checkpoints.glob("step_*"))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify one checkpoint. Raises DataError, naming the file, when it is damaged."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        checksums = dict(state["checksums"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"checkpoint {path}: state.json cannot be read ({type(error).__name__}); use another one"
        ) from error
    for name in _FILES:
        file = path / name
        if not file.is_file() or _checksum(file) != checksums.get(name):
            raise DataError(f"checkpoint {path}: {name} is missing or damaged (its checksum differs); use another one")
    return Checkpoint(path, load_file(path / _FILES[0]), load_file(path / _FILES[1]), state)


def latest_checkpoint(run: RunFolder) -> Checkpoint:
    """The newest whole checkpoint; damaged ones are passed over and told in ``events.jsonl``.

    Raises DataError where there is none that can be used.
    """
    for path in reversed(list_checkpoints(run)):
        try:
            return load_checkpoint(path)
        except DataError as error:
            run.log_event("damaged checkpoint", path=path.name, reason=str(error))
    raise DataError(f"no usable checkpoint in {run.checkpoints}: run 05_pretrain with this RUN first")


def _checksum(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
