"""The line of ``metrics.jsonl`` that each step leaves.

    records = Records(run, config.train)
    row = records.row(at, position, metrics, seconds, waited)

What the step told, with what the clock and the machine say: speed, waiting for data, resident memory,
free space on the disk every ``DISK_EVERY`` steps. The first row of a process has no times, since
compiling is in them. Costs 0.07 to 0.09 ms a step, and as much to append it (2026-11-30, 2 cores).
"""

import shutil
import time
from typing import Any, Mapping

import psutil

from workbench.config import TrainConfig
from workbench.run_folder import RunFolder

DISK_EVERY = 20


class Records:
    """Rows of one process; see the top of the file."""

    def __init__(self, run: RunFolder, train: TrainConfig) -> None:
        self.run, self.train = run, train
        self.checkpoint_mb: float | None = None
        self._began: float | None = None
        self._rows = 0  # since then; steps are counted back in a rollback
        self._process = psutil.Process()
        self._process.cpu_percent()

    @property
    def started(self) -> bool:
        """Whether a row was made, and with it the first step, which compiles."""
        return self._began is not None

    def row(self, at: int, position: int, metrics: Mapping[str, Any], seconds: float, waited: float) -> dict[str, Any]:
        """The row of step ``at``, which took ``seconds``, ``waited`` of them for its batch."""
        now = time.perf_counter()
        timed = self.started
        if timed:
            self._rows += 1
        else:
            self._began = now
        row = {
            "step": at,
            "steps": self.train.steps,
            **metrics,
            "step_seconds": round(seconds, 5) if timed else None,
            "data_seconds": round(waited, 6) if timed else None,
            "tokens_per_second": round(metrics["tokens"] / seconds, 1) if timed else None,
            "seconds_left": round((now - self._began) / self._rows * (self.train.steps - at), 1) if timed else None,
            "rss_mb": round(self._process.memory_info().rss / 2**20, 1),
            "cpu_percent": self._process.cpu_percent(),
            "position": position,
        }
        if at % DISK_EVERY == 0:
            row["disk_free_mb"] = round(shutil.disk_usage(self.run.path).free / 2**20, 1)
            row["checkpoint_mb"] = self.checkpoint_mb
        return row
