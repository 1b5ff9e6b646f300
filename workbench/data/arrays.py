"""Arrays on disk that are written bit by bit and read as memory maps.

Each array is a raw file ``NAME.bin`` (``NAME``, where that has an ending) of its type's
little-endian bytes; what it is, is known to who wrote it. Written parts can be made durable (``sync``), and a writer opened with the sizes of
that moment cuts off whatever came after it, which is how an interrupted preparation continues.

Memory: what the caller holds; opening maps, it does not read.
"""

import os
from pathlib import Path
from typing import Mapping

import numpy as np


class ArrayWriter:
    """Appends to the arrays ``dtypes`` (name → NumPy type) of ``folder``, which is made.

    ``lengths`` (name → items) continues where ``sync`` said so; without it the files begin anew.
    """

    def __init__(self, folder: Path, dtypes: Mapping[str, str], lengths: Mapping[str, int] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._dtypes = {name: np.dtype(kind).newbyteorder("<") for name, kind in dtypes.items()}
        self._files = {}
        for name, kind in self._dtypes.items():
            file = _file(folder, name).open("wb" if lengths is None else "r+b")
            if lengths is not None:
                file.truncate(lengths[name] * kind.itemsize)
                file.seek(0, os.SEEK_END)
            self._files[name] = file

    def append(self, **arrays: np.ndarray) -> None:
        """Add one-dimensional arrays to the arrays of their names."""
        for name, array in arrays.items():
            self._files[name].write(np.ascontiguousarray(array, self._dtypes[name]).data)

    def lengths(self) -> dict[str, int]:
        """Items written so far, by name."""
        return {name: file.tell() // self._dtypes[name].itemsize for name, file in self._files.items()}

    def sync(self) -> dict[str, int]:
        """Make durable what was written; returns ``lengths``."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return self.lengths()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def open_arrays(folder: Path, dtypes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays of ``folder`` as read-only memory maps, by name."""
    found = {}
    for name, kind in dtypes.items():
        path, dtype = _file(folder, name), np.dtype(kind).newbyteorder("<")
        # A map of no bytes is not allowed. As plain arrays: each slice of a memmap costs a microsecond more.
        found[name] = np.memmap(path, dtype, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, dtype)
    return found


def _file(folder: Path, name: str) -> Path:
    return folder / (name if "." in name else f"{name}.bin")
