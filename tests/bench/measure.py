"""Runs commands in processes of their own, in turn, and says what each took; describes the machine.

An ``Entry`` names a command that prints one JSON object as its last line: the seconds of its
stages, its tokens, whatever it wants kept. ``measure`` adds wall seconds, processor seconds and
peak memory of the whole tree of processes. Rounds go through all entries before any is repeated,
each round from another starting point, so that a slow minute of the machine hits all alike.

Costs: the runs, and one look at ``/proc`` every ``POLL_SECONDS``. Does not do: averages that hide
anything: every raw value is returned. Memory is resident size summed over the tree, so pages that
processes share count once a process.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from workbench.errors import DataError, SettingError

TOP = Path(__file__).parents[2]
POLL_SECONDS = 0.05
PACKAGES = ("mindspore", "numpy", "tokenizers", "transformers", "datasets", "pyarrow", "psutil")


@dataclass(frozen=True)
class Entry:
    """One thing to measure: ``command`` gets a fresh empty folder for its files and gives the words to run."""

    name: str  # "datasets: num_proc=2"
    group: str  # "datasets": the best setting of a group stands for it
    command: Callable[[Path], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)  # added to this process's


@dataclass(frozen=True)
class Run:
    """One run. ``said`` is the object that the command printed; memory in bytes; processor time a lower bound."""

    wall_seconds: float
    processor_seconds: float
    peak_memory: int
    said: dict[str, Any]


def measure(entries: Sequence[Entry], repeats: int, folder: Path, *, note: Callable[[str], None] = print) -> dict:
    """Run every entry ``repeats`` times; {name: list of Run}, in the order of the rounds.

    Scratch folders are made in ``folder`` and removed after each run. Raises SettingError for
    repeats below 1 or a name used twice, and DataError where a command fails or prints no JSON.
    """
    if repeats < 1:
        raise SettingError(f"repeats={repeats} is not allowed: at least 1")
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise SettingError(f"entries {names} are not allowed: every name once")
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(repeats):
        first = number % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as scratch:
                run = run_once(entry.command(Path(scratch)), entry.environment)
            runs[entry.name].append(run)
            note(f"round {number + 1}/{repeats}  {entry.name}: {run.wall_seconds:.1f} s")
    return runs


def run_once(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Run ``command`` from the top of the tree and watch it until it ends. Raises DataError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        env = os.environ | dict(environment or {})
        child = psutil.Popen(list(command), cwd=TOP, env=env, stdout=out, stderr=err, text=True)
        peak, spent = 0, {}
        while True:
            memory, seconds = look(child)
            peak = max(peak, memory)
            spent |= seconds
            try:
                code = child.wait(timeout=POLL_SECONDS)
                break
            except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
                continue
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        out.seek(0), err.seek(0)
        said, complaint = out.read().strip(), err.read().strip()
    if code:
        raise DataError(f"{' '.join(command)} ended with {code}: {' '.join(complaint.splitlines()[-3:])[-600:]}")
    try:
        said = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise DataError(f"{' '.join(command)} printed no JSON object as its last line, but {said[-200:]!r}") from error
    # Each is too low: the system counts only processes that their parents waited for (a fork server's
    # children are not), a look misses what a process did after the last look.
    waited_for = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall, max(waited_for, sum(spent.values())), peak, said)


def look(process: psutil.Process) -> tuple[int, dict[int, float]]:
    """Resident bytes of ``process`` and all its descendants now, and {process id: processor seconds so far}.

    A process that ends meanwhile counts nothing.
    """
    memory, seconds = 0, {}
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, {}
    for one in tree:
        try:
            memory += one.memory_info().rss
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[one.pid] = times.user + times.system
    return memory, seconds


def summary(runs: Sequence[Run], seconds: str = "seconds") -> dict[str, Any]:
    """Medians over ``runs`` and all raw values: of ``said[seconds]``, wall and processor seconds, memory in MB."""
    raw = {
        "seconds": [run.said[seconds] for run in runs],
        "wall_seconds": [run.wall_seconds for run in runs],
        "processor_seconds": [run.processor_seconds for run in runs],
        "peak_memory_mb": [run.peak_memory / 1e6 for run in runs],
    }
    rounded = {name: [round(value, 3) for value in values] for name, values in raw.items()}
    return {
        **{name: round(statistics.median(values), 3) for name, values in raw.items()},
        "raw": rounded,
        "said": [run.said for run in runs],
    }


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory, load, system, versions and the date (UTC)."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = found[0] if found else model
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
