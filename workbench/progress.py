"""How far a run is: one live line on a terminal, a plain line now and then in a log.

While a notebook trains, the live line follows the run folder; a log gets a line when a notebook
starts and ends, and one every ``LOG_SECONDS`` while it trains. Costs the reading of what is new in the
run's logs, twice a second or once a line, in a thread of its own. Does not: print what cells print, or
show a number that this notebook did not write.
"""

import math
import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text
from tqdm.auto import tqdm

from workbench.following import RunWatch
from workbench.run_folder import RunFolder

LOG_SECONDS = 60.0  # between two lines in a log


class Progress:
    """Tells on ``stream`` (standard error) which notebook and cell runs and what the run of ``metrics`` does."""

    def __init__(self, metrics: Path, stream: TextIO | None = None, every: float = LOG_SECONDS) -> None:
        self.run, self.every = RunFolder(metrics.parent), every
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"

    @contextmanager
    def notebook(self, name: str, number: int, of: int) -> Iterator[Callable[[int, int], None]]:
        """Show notebook ``number`` ``of`` that many while the block runs; yields the ``on_cell`` to call."""
        start, watched = time.monotonic(), RunWatch(self.run, new_only=True)
        at = {"cell": 0, "cells": 0}

        def on_cell(cell: int, cells: int) -> None:
            at.update(cell=cell, cells=cells)

        def line(width: int | None = None) -> str:
            watched.read()
            facts = watched.facts() if watched.row else {"row": {}}
            return status_line(name, number, of, **at, seconds=time.monotonic() - start, **facts, width=width)

        def say(text: str) -> None:
            print(text, file=self.stream, flush=True)

        def say_now_and_then() -> None:
            told = None
            while not over.wait(self.every):
                text = line()
                if watched.row and watched.row != told:
                    told = watched.row
                    say(text)

        over, teller = threading.Event(), threading.Thread(target=say_now_and_then, daemon=True)
        if not self.live:
            say(f"{number}/{of} {name} started")
        try:
            if self.live:
                console = Console(file=self.stream)

                def drawn() -> Text:
                    return Text(line(console.width), no_wrap=True, overflow="ellipsis")

                with Live(console=console, get_renderable=drawn, refresh_per_second=2, transient=True):
                    yield on_cell
            else:
                teller.start()
                try:
                    yield on_cell
                finally:
                    over.set()
                    teller.join()
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


def status_line(
    name: str,
    number: int,
    of: int,
    cell: int,
    cells: int,
    seconds: float,
    row: Mapping[str, Any],
    width: int | None = None,
    **facts: Any,
) -> str:
    """The notebook and cell that run and for how long, then ``step_line``, as one line of at most ``width`` columns."""
    parts = [(0, f"{number}/{of} {name}"), (10, f"cell {cell}/{cells}" if cell else "kernel starts")]
    return _fitted([*parts, (1, clock(seconds)), *_step_parts(row, **facts)], width)


def step_line(
    row: Mapping[str, Any],
    perplexity: float | None = None,
    alarms: int = 0,
    state: str = "",
    width: int | None = None,
) -> str:
    """One dense line for people of ``row``, a line of metrics.jsonl: what is there is shown, nothing else.

    ``perplexity`` is the last one measured, ``alarms`` how many were raised, ``state`` a word such as paused.
    Where it is longer than ``width`` columns the least important parts are left out.
    """
    return _fitted(_step_parts(row, perplexity, alarms, state), width)


def _step_parts(
    row: Mapping[str, Any], perplexity: float | None = None, alarms: int = 0, state: str = ""
) -> list[tuple[int, str]]:
    """Parts in the order they are shown, each with its rank: the highest goes first when there is no room."""
    # float(): the log writes what is not finite as "nan" or "inf"
    there = {k: float(v) for k, v in row.items() if isinstance(v, (int, float, str)) and k in _SHOWN}
    parts = [(0, state)] if state else []
    if "step" in there:
        parts.append((0, f"step {there['step']:.0f}" + (f"/{there['steps']:.0f}" if "steps" in there else "")))
    if "loss" in there:
        parts.append((0, f"loss {there['loss']:.4g}"))
    if perplexity is not None:
        parts.append((7, f"ppl {perplexity:.4g}"))
    if "tokens_per_second" in there:
        parts.append((3, f"{there['tokens_per_second']:,.0f} tok/s"))
    if "loss_scale" in there:
        parts.append((5, f"scale {_power(there['loss_scale'])}"))
    if "grad_norm" in there:
        parts.append((4, f"norm {there['grad_norm']:.3g}"))
    if "learning_rate" in there:
        parts.append((8, f"lr {there['learning_rate']:.2g}"))
    if "rss_mb" in there:
        mb = there["rss_mb"]
        parts.append((6, f"{mb:.0f} MB" if mb < 10_000 else f"{mb / 1024:.0f} GB"))
    if alarms:
        parts.append((1, f"{alarms} alarm" + "s" * (alarms > 1)))
    if math.isfinite(there.get("seconds_left", math.nan)) and there["seconds_left"] > 0:
        parts.append((2, f"{clock(there['seconds_left'])} left"))
    return parts


_SHOWN = (
    *("step", "steps", "loss", "tokens_per_second", "loss_scale", "grad_norm", "learning_rate"),
    *("rss_mb", "seconds_left"),
)


def _power(scale: float) -> str:
    """A loss scale that is a power of two as such: ``2^16``."""
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{scale:g}"


def _fitted(parts: Sequence[tuple[int, str]], width: int | None) -> str:
    kept = list(parts)
    while width and len(" · ".join(text for _, text in kept)) > width and max(rank for rank, _ in kept) > 0:
        kept.remove(max(kept, key=lambda part: part[0]))
    return " · ".join(text for _, text in kept)


def clock(seconds: float) -> str:
    """``75`` as ``1:15``, ``3675`` as ``1:01:15``."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
