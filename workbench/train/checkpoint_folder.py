"""One checkpoint's folder, read: its four files, every byte of them verified.

    step_000600/
        model.safetensors       weights, named as in Hugging Face's Llama
        optimizer.safetensors   both moments, updates done, loss scale, counters
        state.json              step, perplexity measured at it, data position, fingerprints, config
        SHA256SUMS              of the three; ``sha256sum -c SHA256SUMS`` reads it

Nothing in it executes when loaded. Damage is told with the file's name and nothing of the checkpoint
is used. Costs a SHA-256 of every byte, then reading it again. Does not repair, knows no earlier form
of itself, and never reads another file that lies in the folder.
"""

import hashlib
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from workbench.errors import DataError

ARRAYS = ("model.safetensors", "optimizer.safetensors")
STATE, SUMS = "state.json", "SHA256SUMS"
FILES = (*ARRAYS, STATE)
_SUMS_FORM = re.compile("".join(rf"([0-9a-f]{{64}})  {re.escape(name)}\n" for name in FILES).encode())


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: weights and optimizer arrays by name, and ``state.json``."""

    path: Path
    weights: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray]
    state: dict[str, Any]


def step_of(path: Path) -> int | None:
    """The step that the folder's name tells; None where it is no checkpoint's name."""
    number = path.name.removeprefix("step_")
    plain = number.isascii() and number.isdigit() and path.name == f"step_{int(number):06d}"
    return int(number) if plain else None


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Check every byte of a checkpoint; its ``state.json``. Raises DataError, naming the file, when it is damaged."""
    state, sums = read_state(path), _sums(path)
    for name in ARRAYS:
        _compare(path / name, sums[name])
    return state


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify one checkpoint. Raises DataError, naming the file, when it is damaged."""
    state, loaded = verify_checkpoint(path), []
    for name in ARRAYS:
        try:
            loaded.append(load_file(path / name))
        except (OSError, SafetensorError) as error:
            raise _damaged(path / name, f"cannot be read ({error})") from error
    return Checkpoint(path, *loaded, state)


def read_state(path: Path) -> dict[str, Any]:
    """``state.json``, itself verified and nothing else. Raises DataError, naming the file, when it is damaged."""
    file = path / STATE
    _compare(file, _sums(path)[STATE])
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        step = state["step"]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(file, f"is not the state of a run ({type(error).__name__})") from error
    if step_of(path) not in (None, step):
        raise _damaged(file, f"is of step {step}, which is not the folder's")
    return state


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _sums(path: Path) -> dict[str, str]:
    file = path / SUMS
    sums = _SUMS_FORM.fullmatch(_regular(file, Path.read_bytes))
    if not sums:
        raise _damaged(file, f"is damaged: it has to hold the checksums of {', '.join(FILES)} in this order")
    return {name: found.decode() for name, found in zip(FILES, sums.groups())}


def _compare(file: Path, told: str) -> None:
    if _regular(file, checksum) != told:
        raise _damaged(file, f"is damaged: its checksum is not the one in {SUMS}")


def _regular(file: Path, read: Callable[[Path], Any]) -> Any:
    """What ``read`` gives. Raises DataError for what is not a readable, regular file."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise _damaged(file, "is not a regular file")
        return read(file)
    except FileNotFoundError as error:
        earlier = " (checkpoints of an earlier form have none and are not supported)" if file.name == SUMS else ""
        raise _damaged(file, f"is missing{earlier}") from error
    except OSError as error:
        raise _damaged(file, f"cannot be read ({error.strerror})") from error


def _damaged(file: Path, what: str) -> DataError:
    return DataError(f"checkpoint {file.parent}: {file.name} {what}; use another one")
