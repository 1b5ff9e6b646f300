"""Steering a run: requests through its folder, and signals that are noted instead of obeyed at once.

    ask(run, "save")                    another process: stop, save, pause, continue or thaw

    with Control(run) as control:       the process that trains, opened before anything else
        asked = control.poll()          once a step
        control.done("save")            when it has been served

A request is a file in ``RUN/control/`` that tells who asked and when. ``stop``, ``save`` and ``thaw``
(let a frozen learning rate go on) are there until served, ``pause`` until ``continue``. Requests belong
to the run that is open: while none is, ``ask`` refuses, and opening or closing a run removes what is
left of another. So a run can be asked from the moment its ``Control`` is open, which is before data and
compilation, and no request outlives it.

Signals, in the main thread only (elsewhere none are handled): the first SIGTERM or SIGINT is noted, and
``poll`` tells it. The next one raises KeyboardInterrupt where the program is and gives both signals
their default effect, so that a third ends the process even inside C++. Two within ``SAME_SECONDS`` are
one request: a scheduler signals every process of a job, and ``workbench run`` passes the same on to its
kernel. (Which of the two it was is not certain: once MindSpore has compiled something, it takes SIGINT
and passes it on as SIGTERM.) Python delivers a signal between two of its instructions, so a call
into C++ that never returns hears none of them but SIGKILL.

Costs one listing of an empty folder a step (about 10 µs on a local disk). With several ranks the first
opens RUN and each other one ``run.of_rank(rank)``: one folder has one ``Control``.
"""

import getpass
import json
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from workbench.errors import SettingError
from workbench.run_folder import RunFolder, write_json

REQUESTS = ("stop", "save", "thaw", "pause", "continue")
SAME_SECONDS = 1.0  # signals so close are one request, sent twice
_OPEN = "open.json"  # which process has the run open
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Asked:
    """What is asked of the run now: ``stop`` is "" or who asked (SIGTERM, SIGINT, the run folder)."""

    stop: str = ""
    save: bool = False
    paused: bool = False
    thaw: bool = False


def ask(run: RunFolder, what: str) -> None:
    """Ask the run that is going on in ``run`` for one of ``REQUESTS``.

    Returns at once; the run obeys after the step it is in. Raises SettingError for another word, and
    when no process has the run open.
    """
    if what not in REQUESTS:
        raise SettingError(f"a run can be asked to {', '.join(REQUESTS[:-1])} or {REQUESTS[-1]}, not {what!r}")
    if opened_by(run) is None:
        raise SettingError(f"no run is going on in {run.path}: there is nothing to {what}")
    if what == "continue":
        (_folder(run) / "pause.json").unlink(missing_ok=True)
    else:
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        write_json(_folder(run) / f"{what}.json", {"asked": now, "by": f"{_person()}@{socket.gethostname()}"})


def requests(run: RunFolder) -> set[str]:
    """The requests that wait in ``run``: some of stop, save, thaw and pause."""
    try:
        names = os.listdir(_folder(run))
    except FileNotFoundError:
        return set()
    return {what for what in REQUESTS if f"{what}.json" in names}


def opened_by(run: RunFolder) -> dict[str, Any] | None:
    """The process that has ``run`` open, ``{"pid", "host", "started", "time"}``; None when there is none.

    One that died without closing counts as none when it was on this machine, which can be checked.
    """
    try:
        opened = json.loads((_folder(run) / _OPEN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return opened if opened["host"] != socket.gethostname() or _alive(opened) else None


class Control:
    """A run that listens, as a context manager.

    With ``noting`` false the first signal raises KeyboardInterrupt, until it is set to true: while data
    is prepared there is nothing to save. Opening raises SettingError when another living process of this
    machine has the run open.
    """

    def __init__(self, run: RunFolder, noting: bool = True) -> None:
        self.run, self.noting = run, noting
        self._stop, self._at, self._pid = "", 0.0, os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Control":
        other = opened_by(self.run)
        if other is not None and other["host"] == socket.gethostname() and other["pid"] != self._pid:
            raise SettingError(f"process {other['pid']} is training into {self.run.path}: stop it, or give another RUN")
        self._clear()
        own = {"pid": self._pid, "host": socket.gethostname(), "started": psutil.Process().create_time()}
        write_json(_folder(self.run) / _OPEN, {**own, "time": round(time.time(), 3)})
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._noted) for number in _SIGNALS}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, before in self._before.items():
            # None: a handler that was not set from Python and cannot be set again from it
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}
        self._clear()

    def poll(self) -> Asked:
        """What is asked now."""
        waiting = requests(self.run)
        return Asked(
            self._stop or ("the run folder" if "stop" in waiting else ""),
            "save" in waiting,
            "pause" in waiting,
            "thaw" in waiting,
        )

    def done(self, what: str) -> None:
        """``save``, ``stop`` or ``thaw`` has been served: forget it."""
        (_folder(self.run) / f"{what}.json").unlink(missing_ok=True)

    def wait_while_paused(self, tick: float = 0.2) -> Asked:
        """Sleep while the run is paused, in pieces of ``tick`` seconds, and return what is asked then.

        Returns as well when a stop or a save is asked for meanwhile; after a save, wait again.
        """
        while (asked := self.poll()).paused and not asked.stop and not asked.save:
            time.sleep(tick)
        return asked

    def _noted(self, number: int, frame: Any) -> None:
        name, now = signal.Signals(number).name, time.monotonic()
        if os.getpid() != self._pid:  # a fork, which did not ask for this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._stop and self.noting:
            self._stop, self._at = name, now
        elif now - self._at > SAME_SECONDS or not self.noting:
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)
            raise KeyboardInterrupt

    def _clear(self) -> None:
        for name in (_OPEN, *(f"{what}.json" for what in REQUESTS)):
            (_folder(self.run) / name).unlink(missing_ok=True)


def _folder(run: RunFolder) -> Path:
    return run.path / "control"


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _alive(opened: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(opened["pid"])
        # The number of a dead process is given out again.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - opened["started"]) < 2
    except psutil.NoSuchProcess:
        return False
