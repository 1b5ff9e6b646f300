"""What each process under ``msrun`` does with a notebook: a rank executes it, the scheduler waits for the ranks.

    python -m workbench.rank_worker NOTEBOOK RUN --logs FOLDER [-p NAME=VALUE ...]        run by msrun

A rank keeps ``rank_R.json`` in the logs' folder: its process, the cell it is at, and how it ended.
That file and not the exit code is its result, for msrun kills all other ranks the moment one ends
with an error. So one that failed first waits, until it is ended or the others have had their time.
When who launched all this is gone, the rank stops as for SIGTERM.

Costs a Python process of 140 MB beside each kernel (resident, 2026-11-30). Does not: tell mistakes in what was given;
those are told before.
"""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from workbench.device import join_ranks, ranks, use_device
from workbench.job_kernel import SAVE_SECONDS, Rank
from workbench.jobs import Job, JobFailed, JobStopped, device_of, execute, plan
from workbench.launching import MARK
from workbench.parameters import parse_assignments
from workbench.run_folder import RunFolder, write_json

FAILED_SECONDS = 10.0  # that the others get after a rank failed, before msrun ends them


def state_file(logs: Path, rank: int) -> Path:
    return logs / f"rank_{rank}.json"


def job_of_rank(job: Job, root: RunFolder, rank: int) -> Job:
    """``job`` as ``rank`` runs it: the first in the run folder ``root``, others in ``ranks/R`` of it."""
    folder = root.of_rank(rank)
    values = {name: str(folder.path) if name == "RUN" else value for name, value in job.values.items()}
    return Job(job.source, folder.notebooks / job.source.name, values)


def run_rank(job: Job, logs: Path, rank: Rank, timeout: float | None) -> int:
    """Execute ``job`` as ``rank``, keeping its state file; the exit code."""
    state: dict[str, Any] = {"pid": os.getpid(), "status": "running", "cell": 1, "cells": 0, "problem": ""}

    def tell(**changes: Any) -> None:
        state.update(changes)
        write_json(state_file(logs, rank.number), {**state, "time": time.time()})

    def on_cell(cell: int, cells: int) -> None:
        tell(cell=cell, cells=cells)

    tell()
    job.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        execute(job, on_cell, timeout, rank)
    except JobFailed as failure:
        tell(
            status="stopped" if isinstance(failure, JobStopped) else "failed",
            cell=failure.cell,
            problem=failure.problem,
        )
        time.sleep(FAILED_SECONDS)
        return 1
    except KeyboardInterrupt:
        tell(status="interrupted", problem="stopped by a signal")
        time.sleep(SAVE_SECONDS)
        return 143
    tell(status="done")
    return 0


def _stop(number: int, frame: Any) -> None:
    # Once: a scheduler signals every process and the launcher passes it on, and a second one would break off
    # the saving. Who wants it to end at once has the launcher kill it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stop_without(launcher: int) -> None:
    while psutil.pid_exists(launcher):
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("run", type=Path, help="the run folder")
    parser.add_argument("-p", dest="given", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    parser.add_argument("--logs", type=Path, required=True, help="the folder that msrun's logs go to")
    parser.add_argument("--timeout", type=float, help="seconds a cell may take")
    given = parser.parse_args()
    rank = ranks()[0]
    folder = RunFolder.at(given.run).of_rank(rank)
    (job,) = plan([given.notebook], parse_assignments(given.given), folder.path, Path.cwd())
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        use_device(device_of(job))
        join_ranks()  # ends this process with the job
    signal.signal(signal.SIGTERM, _stop)
    if MARK in os.environ:
        launcher = int(os.environ[MARK].split("-")[0])
        threading.Thread(target=_stop_without, args=(launcher,), daemon=True).start()
    return run_rank(job, given.logs, Rank(rank, device_of(job)), given.timeout)


if __name__ == "__main__":
    sys.exit(main())
