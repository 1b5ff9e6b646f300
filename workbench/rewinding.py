"""Logs taken back to a step, so that a run that goes on from there has each step once.

    rewind_logs(run, step=40)        what was logged later is in earlier/redone-*.jsonl

A run that died at step 57 goes on from its checkpoint of step 40: steps 41 to 57 are computed again,
and their first lines would be doubles. Lines without a step stay, and so do ``HISTORY``: that a run was
resumed or rolled back does not become untrue. A line that is not whole or not
JSON is taken out too.
Costs one reading of both logs.
"""

import json
import os
from pathlib import Path

from workbench.run_folder import RunFolder, told_as_storage

LOGS = ("metrics.jsonl", "events.jsonl")
HISTORY = ("resume", "rollback")  # kinds of events


def rewind_logs(run: RunFolder, step: int) -> int:
    """Take everything later than ``step`` out of the logs of ``run``; the number of metric lines that were.

    Being stopped in the middle leaves a log as it was, or done; what was taken out may then be in
    ``earlier/`` twice.
    """
    return [_rewind(run.path / name, run.path / "earlier" / f"redone-{name}", step) for name in LOGS][0]


def _rewind(log: Path, aside: Path, step: int) -> int:
    lines = log.read_bytes().splitlines(keepends=True) if log.is_file() else []
    later = [_is_later(line, step) for line in lines]
    if not any(later):
        return 0
    with told_as_storage(log):
        _write_both(log, aside, lines, later)
    return sum(later)


def _write_both(log: Path, aside: Path, lines: list[bytes], later: list[bool]) -> None:
    aside.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("ab") as out:
        out.writelines(line if line.endswith(b"\n") else line + b"\n" for line, out_of in zip(lines, later) if out_of)
    beside = log.with_name(f".{log.name}.{os.getpid()}")
    with beside.open("wb") as out:
        out.writelines(line for line, out_of in zip(lines, later) if not out_of)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(log)


def _is_later(line: bytes, step: int) -> bool:
    if not line.endswith(b"\n"):
        return True
    try:
        row = json.loads(line)
    except ValueError:  # after a power cut a log may end in zeros
        return True
    return row.get("step", 0) > step and row.get("kind") not in HISTORY
