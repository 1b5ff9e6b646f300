"""Tensors in .safetensors files, one at a time, bfloat16 included.

The library's numpy reader does not know bfloat16, and its writer wants a whole file's tensors in
memory as bytes. The format is short (an 8-byte little-endian length, a JSON header, the data), so
files are read and written here tensor by tensor: the most that is held besides what the caller
holds is one tensor in the file's type.

``dtype`` names a type as config.json does: float32, float16 or bfloat16. Not here: quantised types.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Mapping

import numpy as np

from workbench.errors import DataError

CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
# What numpy reads each as; bfloat16 is the upper half of a float32.
_READ = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Stored:
    """Where the tensor ``name`` lies: its file, type code, shape, and first byte counted from the file's start."""

    name: str
    file: Path
    code: str
    shape: tuple[int, ...]
    offset: int

    def read(self) -> np.ndarray:
        """The tensor as float32. Raises DataError for a type that is not a floating-point one, and for NaN and Inf."""
        if self.code not in _READ:
            raise DataError(f"{self.file}: {self.name} is {self.code}, readable are {', '.join(_READ)}")
        values = np.fromfile(self.file, _READ[self.code], math.prod(self.shape), offset=self.offset)
        if self.code == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        with np.errstate(over="ignore"):
            values = values.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise DataError(f"{self.file}: {self.name} holds values that are not finite; it was damaged before")
        return values.reshape(self.shape)


def tensors_in(file: Path) -> dict[str, Stored]:
    """Every tensor of ``file`` by name; only the header is read. Raises DataError for a damaged file."""
    size = file.stat().st_size
    try:
        with file.open("rb") as data:
            length = int.from_bytes(data.read(8), "little")
            if length > size - 8:
                raise ValueError("shorter than its header says")
            header = json.loads(data.read(length))
        header.pop("__metadata__", None)
        found = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            if not 0 <= begin <= end <= size - 8 - length:
                raise ValueError("shorter than its header says")
            width = np.dtype(_READ.get(entry["dtype"], "u1")).itemsize
            if entry["dtype"] in _READ and end - begin != math.prod(shape) * width:
                raise ValueError(f"the size of {name} does not fit its shape")
            found[name] = Stored(name, file, entry["dtype"], shape, 8 + length + begin)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not a whole safetensors file ({error}); copy or download it again") from error
    return found


def narrowed(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """``array`` as the file holds it; bfloat16 as uint16, rounded to the nearest, ties to even.

    Raises DataError where a value is not finite, or is not any more in ``dtype``.
    """
    array = np.ascontiguousarray(array, "<f4")
    if dtype == "bfloat16":
        bits = array.view("<u4")
        stored = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        finite = (stored & 0x7F80) != 0x7F80
    else:
        with np.errstate(over="ignore"):
            stored = array.astype(_READ[CODES[dtype]])
        finite = np.isfinite(stored)
    if not (finite.all() and np.isfinite(array).all()):
        raise DataError(f"{name} holds values that are not finite in {dtype}; its largest is {np.abs(array).max():g}")
    return stored


def write_tensors(file: Path, shapes: Mapping[str, tuple[int, ...]], arrays: Iterable[np.ndarray], dtype: str) -> None:
    """Write ``arrays``, in the order of ``shapes``, as float32, float16 or bfloat16. Raises DataError as narrowed."""
    width, begin, header = np.dtype(_READ[CODES[dtype]]).itemsize, 0, {"__metadata__": {"format": "pt"}}
    for name, shape in shapes.items():
        end = begin + math.prod(shape) * width
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, array in zip(shapes, arrays, strict=True):
            narrowed(name, array, dtype).tofile(out)
