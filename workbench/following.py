"""A run that another process writes, read as it grows: what it is doing, and its curves at a size that can be drawn.

    watched = RunWatch(run)
    for event in watched.read(): ...        once a second, say
    watched.state(), watched.row, watched.curves["loss"].points()

Only bytes that are new are read, in pieces of ``_MOST``, so that a long log delays nobody; a log that was
rewound or replaced (a resumed run, a new one in the same folder) is read again from its start. Costs
memory that does not grow with the run: a curve keeps at most ``POINTS`` points, the lowest and the
highest of each stretch, so no spike is lost. Does not: write anything, or read checkpoints.
"""

import json
import math
import os
import socket
import time
from collections import deque
from pathlib import Path
from typing import Any

from workbench.control import opened_by, requests
from workbench.run_folder import RunFolder

POINTS = 1000  # most points of a curve
SILENT_SECONDS = 600  # after which a run on another machine is said to be silent
# Curves of metrics.jsonl by their fields; "perplexity" comes from the evaluations.
FIELDS = {"loss": "loss", "scale": "loss_scale", "throughput": "tokens_per_second", "memory": "rss_mb"}
_MOST = 4 << 20
_SAME = 256  # bytes before the place reached that must still be there; they hold times, which do not repeat
_ENDS = ("finish", "stop")


class Tail:
    """The new lines of a .jsonl log; ``new_only`` leaves out those that are there now."""

    def __init__(self, file: Path, new_only: bool = False) -> None:
        self.file, self.at, self._inode, self._last = file, 0, 0, b""
        self.unread = True  # as far as known
        if new_only and file.is_file():
            self._skip()

    def _skip(self) -> None:
        with self.file.open("rb") as log:
            seen = os.fstat(log.fileno())
            log.seek(max(0, seen.st_size - _MOST))
            data = log.read()
            data = data[: data.rfind(b"\n") + 1]
            if not data:  # nothing but a piece of a line
                return
            self.at, self._inode = max(0, seen.st_size - _MOST) + len(data), seen.st_ino
            self._last = data[-_SAME:]

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """(whether the log begins anew with these rows, whole lines since the last call)."""
        try:
            log = self.file.open("rb")
        except FileNotFoundError:
            again = self.at > 0
            self.at, self._last, self.unread = 0, b"", False
            return again, []
        with log:
            seen = os.fstat(log.fileno())
            log.seek(max(0, self.at - len(self._last)))
            again = self.at > 0 and (seen.st_ino != self._inode or log.read(len(self._last)) != self._last)
            if again:
                self.at, self._last = 0, b""
            self._inode = seen.st_ino
            log.seek(self.at)
            data = log.read(_MOST)
            if not data.endswith(b"\n"):
                data += log.readline()
        self.unread = len(data) >= _MOST
        data = data[: data.rfind(b"\n") + 1]  # what is behind it is still being written
        self.at += len(data)
        self._last = (self._last + data)[-_SAME:]
        return again, [json.loads(line) for line in data.splitlines()]


class Curve:
    """Points of a curve as they come, thinned to ``most`` by keeping the extremes of equal stretches."""

    def __init__(self, most: int = POINTS) -> None:
        self._stretches: list[list[tuple[float, float]]] = []  # each of at most two points
        self._size, self._filled, self._most = 1, 1, most // 4 * 2
        self._newest: tuple[float, float] | None = None

    def add(self, x: float, y: Any) -> None:
        """Append a point; one that is not finite is left out, one that goes back replaces what is after it."""
        if y is None or not math.isfinite(float(y)):
            return
        point = self._newest = (x, float(y))
        while self._stretches and self._stretches[-1][-1][0] >= x:
            kept = [p for p in self._stretches.pop() if p[0] < x]
            if kept:
                self._stretches.append(kept)
        if self._filled < self._size and self._stretches:
            self._stretches[-1] = _extremes(self._stretches[-1] + [point])
            self._filled += 1
            return
        if len(self._stretches) == self._most:
            both = zip(self._stretches[::2], self._stretches[1::2])
            self._stretches = [_extremes(a + b) for a, b in both]
            self._size *= 2
        self._stretches.append([point])
        self._filled = 1

    def points(self) -> tuple[list[float], list[float]]:
        """(x, y), the newest point always among them."""
        out = [p for stretch in self._stretches for p in stretch]
        if self._newest is not None and out[-1] != self._newest:
            out.append(self._newest)
        return [x for x, _ in out], [y for _, y in out]


class RunWatch:
    """What is known of ``run``; ``read`` brings it up to date. ``new_only``: forget what is in the logs now.

    ``row`` is the last line of metrics.jsonl, ``events`` the last few, ``curves`` by name (``FIELDS``, perplexity).
    """

    def __init__(self, run: RunFolder, new_only: bool = False) -> None:
        self.run = run
        self._metrics = Tail(run.path / "metrics.jsonl", new_only)
        self._events = Tail(run.path / "events.jsonl", new_only)
        self._told = 0.0  # the time of the newest event
        self.opened: dict[str, Any] | None = None  # the process that had it open at the last ``read``
        self._no_rows()
        self._no_events()

    def _no_rows(self) -> None:
        self.row: dict[str, Any] = {}
        self.curves = {name: Curve() for name in FIELDS}

    def _no_events(self) -> None:
        self.events: deque[dict[str, Any]] = deque(maxlen=50)
        self.start: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None  # of this run: what came after its start
        self.perplexity: float | None = None
        self.perplexities = Curve()
        self.alarms = 0
        self.checkpoint = ""

    def read(self, whole: bool = True) -> list[dict[str, Any]]:
        """Read what is new; returns the events that were not returned before, not even before a rewind.

        Not ``whole``: a piece of it, so that it does not take long; ``unread`` tells whether there is more.
        """
        # Before the logs: a run closes after its last event, so one that is closed has told how it ended.
        self.opened = opened_by(self.run)
        new = self._piece()
        while whole and self.unread:
            new += self._piece()
        return new

    def _piece(self) -> list[dict[str, Any]]:
        again, rows = self._metrics.read()
        if again:
            self._no_rows()
        for row in rows:
            for name, field in FIELDS.items():
                self.curves[name].add(row["step"], row.get(field))
        self.row = rows[-1] if rows else self.row
        again, events = self._events.read()
        if again:
            self._no_events()
        for event in events:
            self._note(event)
        new = [event for event in events if event["time"] > self._told]
        self._told = max([self._told, *(event["time"] for event in new)])
        return new

    def _note(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        self.events.append(event)
        if kind in ("start", "resume"):
            self.start, self.end = event, None
        elif kind in _ENDS:
            self.end = event
        elif kind == "evaluation":
            self.perplexity = float(event["perplexity"])
            self.perplexities.add(event["step"], event["perplexity"])
        elif kind == "checkpoint":
            self.checkpoint = event["path"]
        elif kind in ("alarm", "rollback"):  # the alarm's own event is rolled back with its step
            self.alarms += 1

    @property
    def unread(self) -> bool:
        """Whether one more ``read`` is needed to know all that is in the logs."""
        return self._metrics.unread or self._events.unread

    def state(self, now: float | None = None) -> tuple[str, str]:
        """(a word, a sentence) as of the last ``read``.

        The words: no run, starting, training, paused, stopping, finished, stopped, died, silent.
        """
        now = time.time() if now is None else now
        opened = self.opened
        if opened is not None and (self.start is None or self.start["time"] < opened["time"]):
            return "starting", f"process {opened['pid']} on {opened['host']} prepares data and model"
        if self.start is None:
            return "no run", f"no run in {self.run.path} yet: waiting for notebook 05 with this RUN"
        if self.end is not None:
            word = "finished" if self.end["kind"] == "finish" else "stopped"
            by = f" by {self.end['by']}" if "by" in self.end else ""
            return word, f"{word} at step {self.end.get('step', 0):,}{by}"
        step = f"step {self.row.get('step', 0):,}"
        if opened is None:
            where = f"process {self.start.get('pid', '?')} on {self.start.get('host', '?')}"
            again = "the same command starts it again" + (f" from {self.checkpoint}" if self.checkpoint else "")
            return "died", f"{where} failed or was killed after {step}: {again}"
        asked = requests(self.run)
        if "stop" in asked:
            return "stopping", f"stops after {step}"
        if "pause" in asked:
            return "paused", f"paused after {step}"
        quiet = now - self._written()
        if opened["host"] != socket.gethostname() and quiet > SILENT_SECONDS:
            return "silent", (
                f"nothing written for {quiet / 60:.0f} minutes after {step}: "
                f"look on {opened['host']} whether process {opened['pid']} lives"
            )
        return "training", f"training, {step}"

    def _written(self) -> float:
        logs = (self._metrics.file, self._events.file)
        return max(log.stat().st_mtime for log in logs if log.exists())

    def facts(self) -> dict[str, Any]:
        """What ``progress.step_line`` shows."""
        word = self.state()[0]
        shown = word if word in ("paused", "stopping", "silent") else ""
        return {"row": self.row, "perplexity": self.perplexity, "alarms": self.alarms, "state": shown}


def event_text(event: dict[str, Any]) -> str:
    """An event in one line for people: its time of day, what happened, and at which step."""
    kind, rest = event["kind"], {k: v for k, v in event.items() if k not in ("time", "kind", "step")}
    if kind == "evaluation":
        told = f"validation perplexity {float(event['perplexity']):.4g}"
    elif kind == "checkpoint":
        told = f"checkpoint {event['path']}"
    elif kind == "alarm":
        told = "alarm: " + str(rest.get("message") or rest.get("alarm"))
    elif kind == "rollback":
        told = f"rolled back from step {event.get('from_step', '?')}: {rest.get('alarm_message') or rest.get('alarm')}"
    elif kind in ("overflow", "skipped"):
        told = f"{kind}, loss scale now {float(event['loss_scale']):g}"
    else:
        plain = (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in rest.items() if _short(v))
        told = ", ".join([kind, *plain])
    at = f"step {event['step']:,}: " if "step" in event else ""
    return f"{time.strftime('%H:%M:%S', time.localtime(event['time']))} {at}{told}"


def _short(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and len(str(value)) <= 60


def _extremes(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    low, high = min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])
    return [low] if low == high else sorted((low, high))
