"""How far a run is: one live line on a terminal, two plain lines a notebook in a log.

While a notebook trains, the live line follows the last line of ``RUN/metrics.jsonl``. Costs one
stat and one short read of that file a refresh (twice a second), in a thread of its own. Does not:
print what cells print, or show a number that this notebook did not write.
"""

import json
import math
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text
from tqdm.auto import tqdm

_SHOWN = ("step", "steps", "loss", "tokens_per_second", "seconds_left")


class Progress:
    """Tells on ``stream`` (standard error) which notebook and cell runs and what ``metrics`` says."""

    def __init__(self, metrics: Path, stream: TextIO | None = None) -> None:
        self.metrics = metrics
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"

    @contextmanager
    def notebook(self, name: str, number: int, of: int) -> Iterator[Callable[[int, int], None]]:
        """Show notebook ``number`` ``of`` that many while the block runs; yields the ``on_cell`` to call."""
        start, before = time.monotonic(), _identity(self.metrics)
        at = {"cell": 0, "cells": 0}

        def on_cell(cell: int, cells: int) -> None:
            at.update(cell=cell, cells=cells)

        def line() -> Text:
            row = last_row(self.metrics) if _identity(self.metrics) != before else {}
            seconds = time.monotonic() - start
            return Text(
                status_line(name, number, of, **at, seconds=seconds, row=row), no_wrap=True, overflow="ellipsis"
            )

        def say(text: str) -> None:
            print(text, file=self.stream, flush=True)

        if not self.live:
            say(f"{number}/{of} {name} started")
        try:
            if self.live:
                console = Console(file=self.stream)
                with Live(console=console, get_renderable=line, refresh_per_second=2, transient=True):
                    yield on_cell
            else:
                yield on_cell
        except BaseException:
            say(f"{number}/{of} {name} stopped in cell {at['cell']} after {time.monotonic() - start:.1f} s")
            raise
        say(f"{number}/{of} {name} done in {time.monotonic() - start:.1f} s")


def quiet() -> bool:
    """Whether progress bars are not to be drawn: the output is a log, or compared with a stored one."""
    return os.environ.get("WORKBENCH_PROGRESS") == "log"


@contextmanager
def preparing() -> Iterator[Callable[[int, int, int, int], None]]:
    """A bar for the preparation of a corpus; yields the ``watch`` that ``open_corpus`` takes."""
    with tqdm(unit="B", unit_scale=True, desc="preparing", disable=quiet(), leave=False) as bar:

        def watch(done: int, size: int, documents: int, tokens: int) -> None:
            bar.total = size
            bar.set_postfix(documents=f"{documents:,}", tokens=f"{tokens:,}", refresh=False)
            bar.update(done - bar.n)

        yield watch


def status_line(name: str, number: int, of: int, cell: int, cells: int, seconds: float, row: dict[str, Any]) -> str:
    """One line for people; of ``row`` (a line of metrics.jsonl) what is there is shown."""
    parts = [f"{number}/{of} {name}", f"cell {cell}/{cells}" if cell else "kernel starts", clock(seconds)]
    # float(): the log writes what is not finite as "nan" or "inf"
    there = {k: float(v) for k, v in row.items() if k in _SHOWN and v is not None}
    if "step" in there:
        parts.append(f"step {there['step']:.0f}" + (f"/{there['steps']:.0f}" if "steps" in there else ""))
    if "loss" in there:
        parts.append(f"loss {there['loss']:.4g}")
    if "tokens_per_second" in there:
        parts.append(f"{there['tokens_per_second']:,.0f} tokens/s")
    if math.isfinite(there.get("seconds_left", math.nan)):
        parts.append(f"{clock(there['seconds_left'])} left")
    return " · ".join(parts)


def clock(seconds: float) -> str:
    """``75`` as ``1:15``, ``3675`` as ``1:01:15``."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def last_row(file: Path) -> dict[str, Any]:
    """The last whole line of a .jsonl log ({} when there is none), read from its end."""
    try:
        log = file.open("rb")
    except FileNotFoundError:
        return {}
    with log:
        size, span = os.fstat(log.fileno()).st_size, 4096
        while True:
            log.seek(max(0, size - span))
            lines = log.read().split(b"\n")  # the last item is empty or not finished yet
            if len(lines) >= 3 or span >= size:
                return json.loads(lines[-2]) if len(lines) >= 2 else {}
            span *= 2


def _identity(file: Path) -> tuple[int, int] | None:
    """Changes when the log grows, and when a new run set the old one aside."""
    try:
        seen = file.stat()
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_size
