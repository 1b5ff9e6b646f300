"""Checkpoints in the background: the loop goes on while the one before is on its way to the disk.

    with CheckpointWriter(run, keep=2, on_written=log) as writer:
        ...
        writer.save(step, *state.arrays(), facts)

The loop pays for the copy that ``TrainState.arrays`` makes and, while the thread writes, for the part
of a core that this takes; both safetensors and SHA-256 let go of the interpreter. A second copy of
weights and moments is in host memory until it is written. At most one checkpoint is in flight: a
``save`` that comes before the last one is done waits for it. Call ``wait`` before ``arrays`` to never
hold two copies. Does not retry: what could not be written is raised by the next call, in one line.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Mapping

import numpy as np

from workbench.run_folder import RunFolder
from workbench.train.checkpoint import remove_old, write_checkpoint


class CheckpointWriter:
    """Writes the checkpoints of ``run`` and keeps the last ``keep`` and the best, in a thread of its own.

    ``on_written(step, path, seconds)`` is called in that thread once a checkpoint has its name and
    before older ones are removed. Used as a context manager, which ends when the last one is on disk.
    """

    def __init__(self, run: RunFolder, keep: int, on_written: Callable[[int, Path, float], None] | None = None) -> None:
        self._run, self._keep, self._on_written = run, keep, on_written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._flight: Future[Path] | None = None
        self._last: Path | None = None

    def save(
        self,
        step: int,
        weights: Mapping[str, np.ndarray],
        optimizer: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
    ) -> float:
        """Begin to write checkpoint ``step``; the seconds that the one before had to be waited for.

        The arrays and ``state`` are the writer's from here on: nobody may change them. Raises what
        writing the one before raised (StorageError, DataError); this one is not begun then.
        """
        start = time.perf_counter()
        self.wait()
        waited = time.perf_counter() - start
        self._flight = self._thread.submit(self._write, step, weights, optimizer, state)
        return waited

    def wait(self) -> Path | None:
        """Return when nothing is in flight: the last checkpoint written, None before the first.

        Raises what writing it raised, once.
        """
        flight = self._flight
        if flight is not None:
            try:
                self._last = flight.result()
            finally:
                # Not done when the waiting was interrupted: the next call waits on.
                if flight.done():
                    self._flight = None
        return self._last

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as second:
            if error is None:
                raise
            error.add_note(f"Besides, {second}")
        finally:
            # Without waiting a second time, should the wait have been interrupted.
            self._thread.shutdown(wait=False)

    def _write(self, step: int, *content: Mapping[str, Any]) -> Path:
        start = time.perf_counter()
        path = write_checkpoint(self._run, step, *content)
        if self._on_written is not None:
            self._on_written(step, path, time.perf_counter() - start)
        remove_old(self._run, self._keep)
        return path
