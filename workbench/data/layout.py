"""The rows of one store at one sequence length: which tokens share which row.

Windows are cut, packed and widened in blocks of documents (``BLOCK`` tokens), so that memory does
not grow with the corpus, and the result is kept beside the store as memory maps: opening a
prepared corpus of any size reads next to nothing. The ledger of the blocks adds up to the ledger
of the store and is checked when it is made.

Costs about 20 microseconds a window, once for each (sequence_length, overlap).

Shapes: N tokens, P windows in row order, R rows, S = sequence_length.
"""

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterator

import numpy as np

from workbench.data.arrays import ArrayWriter, open_arrays
from workbench.data.ledger import Ledger, make_ledger
from workbench.data.packing import pack_rows, widen
from workbench.data.store import CUT, LOSS, TokenStore
from workbench.data.windows import cut_windows
from workbench.run_folder import write_json

BLOCK = 1 << 22  # tokens packed together: enough for full rows, little in memory
_ARRAYS = {"windows": "i8", "rows": "i8"}
_WIDTH = 4  # numbers a window: begin, length, context, document
_VERSION = 2  # raise it when the same store and settings give other rows than before


@dataclass(frozen=True)
class Layout:
    """P windows in the order of their rows, and R rows.

    Window p reads ``tokens[begin[p] : begin[p] + length[p]]`` of the store and belongs to
    ``document[p]``; its first ``context[p]`` targets are another window's. The four are the columns
    of ``windows`` (P, 4), side by side so that reading a window at random touches one place. Row r
    holds windows ``rows[r]`` to ``rows[r + 1] - 1``; ``rows`` is (R + 1,).
    """

    sequence_length: int
    overlap_loss: bool
    windows: np.ndarray
    rows: np.ndarray
    ledger: Ledger

    def __len__(self) -> int:
        return len(self.rows) - 1

    @property
    def begin(self) -> np.ndarray:
        return self.windows[:, 0]

    @property
    def length(self) -> np.ndarray:
        return self.windows[:, 1]

    @property
    def context(self) -> np.ndarray:
        return self.windows[:, 2]

    @property
    def document(self) -> np.ndarray:
        return self.windows[:, 3]


def make_layout(store: TokenStore, sequence_length: int, overlap: float, overlap_loss: bool = False) -> Layout:
    """The layout of ``store`` in memory. Raises SettingError as ``cut_windows``."""
    parts, ledger = [], Ledger()
    for arrays, part in _blocks(store, sequence_length, overlap, overlap_loss):
        parts.append(arrays)
        ledger += part
    windows, rows = (np.concatenate([np.empty(0, np.int64), *(p[name] for p in parts)]) for name in _ARRAYS)
    rows = np.concatenate([[0], rows]).astype(np.int64)
    return Layout(sequence_length, overlap_loss, windows.reshape(-1, _WIDTH), rows, ledger.check())


def open_layout(
    folder: Path, store: TokenStore, sequence_length: int, overlap: float, overlap_loss: bool = False
) -> Layout:
    """The layout kept in ``folder``, which is made first where it is not there."""
    if not (folder / "layout.json").is_file():
        _write(folder, store, sequence_length, overlap, overlap_loss)
    facts = json.loads((folder / "layout.json").read_text(encoding="utf-8"))
    found = open_arrays(folder, _ARRAYS)
    windows = found["windows"].reshape(-1, _WIDTH)
    return Layout(sequence_length, overlap_loss, windows, found["rows"], Ledger(**facts["ledger"]))


def layout_name(sequence_length: int, overlap: float, overlap_loss: bool) -> str:
    """A folder name that says what the layout is."""
    return f"{sequence_length}-overlap-{overlap:g}{'-loss' if overlap_loss else ''}-v{_VERSION}"


def _write(folder: Path, store: TokenStore, sequence_length: int, overlap: float, overlap_loss: bool) -> None:
    # Written beside and renamed: a layout that is there is whole, whoever else writes the same.
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        writer, ledger = ArrayWriter(beside, _ARRAYS), Ledger()
        writer.append(rows=np.zeros(1, np.int64))
        for arrays, part in _blocks(store, sequence_length, overlap, overlap_loss):
            writer.append(**arrays)
            ledger += part
        writer.close()
        write_json(beside / "layout.json", {"ledger": asdict(ledger.check())})
        beside.rename(folder)
    except OSError:
        if not (folder / "layout.json").is_file():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _blocks(
    store: TokenStore, sequence_length: int, overlap: float, overlap_loss: bool
) -> Iterator[tuple[dict[str, np.ndarray], Ledger]]:
    """The arrays (of ``rows`` the ends alone) and the ledger of one block of documents after the other."""
    offsets, first, windows_before = store.offsets, 0, 0
    while first < store.documents:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, side="right")) - 1
        last = max(first + 1, last)
        bounds = np.asarray(offsets[first : last + 1])
        flags = np.asarray(store.flags[bounds[0] : bounds[-1]])
        cuts = (flags & CUT).astype(bool)
        windows = cut_windows(np.diff(bounds), cuts, sequence_length, overlap)
        rows = pack_rows(windows.length, sequence_length)
        if overlap:
            windows = widen(windows, rows, sequence_length, cuts, bounds - bounds[0])
        ledger = make_ledger(bounds, (flags & LOSS).astype(bool), windows, rows, sequence_length, overlap_loss)
        at = rows.window
        columns = (
            bounds[windows.document[at]] + windows.start[at],
            windows.length[at],
            (windows.loss_from - windows.start - 1)[at],
            first + windows.document[at],
        )
        yield {"windows": np.stack(columns, axis=1).ravel(), "rows": windows_before + rows.first[1:]}, ledger
        windows_before += len(windows)
        first = last
