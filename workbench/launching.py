"""Processes on several ranks through ``msrun``: started, watched, and ended without a rest.

    launch("script.py", ["out.json"], workers=2)        or  launch("-m", ["workbench.train.communication", ...])

``msrun`` starts a scheduler and the workers, which all run the same program; the program joins them
by ``device.joined_ranks``. Added to it here: this Python and this package in every process, and an
end that reaches every process. Workers, and kernels that workers start, have sessions of their own
and outlive their parents, so each is known by a mark in its environment, not by whose child it is.

Costs the start of MindSpore in all of them, 10 to 20 s on 2 cores; ending reads the environment of
each process on the machine. Does not: restarts. ``workbench.rank_jobs`` runs notebooks with it.
"""

import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

import psutil

from workbench.errors import SettingError, unknown_name

MARK = "WORKBENCH_LAUNCH"  # in the environment of all that one launch started: "PID-RANDOM", the pid who launched
OPTIONS = ("bind_core", "bind_numa", "cluster_time_out", "rank_table_file")  # of msrun's, those left to the person
DEFAULT_PORT = 8118  # msrun's own
LAST_LINES = 12
_BEFORE = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(Path(__file__).parents[1])}
# What tells a process its place in a cluster; one started from inside another cluster must not inherit it.
_PLACE = ("MS_ROLE", "MS_WORKER_NUM", "MS_NODE_ID", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_TOPO_TIMEOUT", "RANK_ID")
_NOISE = ("[INFO]", "[WARNING]", "[MS_", "- C++ Call Stack", "----", "mindspore/ccsrc")
_ENDED_BADLY = re.compile(r"Worker process (\d+) exit with exception\. Error code: (-?\d+)")
_SILENT = re.compile(r"The node: (\d+) is timed out")


class LaunchFailed(RuntimeError):
    """A program on several ranks did not come to its end; the message holds the failing rank's last lines."""


@dataclass(frozen=True)
class Ranks:
    """How many ranks, on which machines: ``local_workers`` on each, this one being number ``node_rank``.

    ``local_workers`` 0 stands for all. A port of 0 is a free one here, and msrun's default on
    several machines, which must agree on it. ``options`` are ``name=value`` of msrun's own.
    Raises SettingError.
    """

    workers: int
    local_workers: int = 0
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.workers % self.local:
            raise SettingError(
                f"--local-workers {self.local} of --workers {self.workers}: every machine runs the same number; "
                "give a divisor"
            )
        if not 0 <= self.node_rank < self.nodes:
            raise SettingError(f"--node-rank {self.node_rank}: there are {self.nodes} machines, counted from 0")
        if self.nodes > 1 and self.master_addr in ("127.0.0.1", "localhost"):
            raise SettingError(f"{self.nodes} machines need --master-addr, the address of the one with --node-rank 0")
        for option in self.options:
            name, given, value = option.partition("=")
            if name not in OPTIONS:
                raise unknown_name("option of msrun", name, OPTIONS)
            if not given or not value:
                raise SettingError(f"--msrun {option}: expected {name}=VALUE")

    @property
    def local(self) -> int:
        return self.local_workers or self.workers

    @property
    def nodes(self) -> int:
        return self.workers // self.local

    @property
    def here(self) -> range:
        """The ranks of this machine."""
        return range(self.node_rank * self.local, (self.node_rank + 1) * self.local)

    def command(self, program: Sequence[str], logs: str | Path, number: int = 0) -> list[str]:
        """The command that runs ``python PROGRAM`` on every rank of this machine.

        Launch ``number`` of one command uses a port of its own: on several machines one may begin
        while another still ends the launch before.
        """
        fixed = self.master_port or (DEFAULT_PORT if self.nodes > 1 else 0)
        port = fixed + number if fixed else _free_port()
        command = [sys.executable, "-m", "mindspore.parallel.cluster.run"]
        command += [f"--worker_num={self.workers}", f"--local_worker_num={self.local}"]
        command += [f"--master_addr={self.master_addr}", f"--master_port={port}"]
        command += [f"--node_rank={self.node_rank}"] if self.nodes > 1 else []
        command += [f"--log_dir={logs}", "--join=True", *(f"--{option}" for option in self.options)]
        return [*command, "python", *program]


class Msrun:
    """``msrun`` and all that it starts; a context manager, at whose end none of it is left.

    What it says itself goes to ``logs/msrun_NODE.log``, what its processes say to ``worker_RANK.log``
    and, on machine 0 which alone has one, ``scheduler.log`` beside it. Several machines may share ``logs``.
    """

    def __init__(
        self, command: Sequence[str], logs: Path, environment: Mapping[str, str] | None = None, node: int = 0
    ) -> None:
        self.logs, self.mark = logs, f"{os.getpid()}-{secrets.token_hex(8)}"
        self.log = logs / f"msrun_{node}.log"
        self.scheduler_log = None if node else logs / "scheduler.log"
        if self.scheduler_log:
            self.scheduler_log.unlink(missing_ok=True)
        with self.log.open("w") as said:
            self.process = subprocess.Popen(
                command,
                env=_environment() | dict(environment or {}) | {MARK: self.mark},
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def __enter__(self) -> "Msrun":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ended_badly(self) -> dict[int, int]:
        """The exit code of each worker that failed, by process id (negative: the signal that ended it)."""
        return {int(pid): int(code) for pid, code in _ENDED_BADLY.findall(_read(self.log))}

    def scheduler_failed(self) -> bool:
        """Whether the scheduler has given up, which ends no rank: it lost one, or could not listen on its port."""
        return "Traceback (most recent call last)" in _read(self.scheduler_log)

    def silent_ranks(self) -> set[int]:
        """The ranks, on any machine, that the scheduler has not heard of for 30 s."""
        return {int(rank) for rank in _SILENT.findall(_read(self.scheduler_log))}

    def processes(self) -> list[psutil.Process]:
        """All that run of this launch, also those whose parents are gone."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue  # it has just ended, or is another user's
        return found

    def end(self) -> None:
        """Kill what runs of this launch; at once, and nothing when all has ended."""
        while left := self.processes():
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(left, timeout=1)
        self.process.wait()


def launch(
    program: str,
    arguments: Sequence[str] = (),
    workers: int = 2,
    timeout: float = 300,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Run ``program`` (a script, or "-m" and the module first in ``arguments``); what each rank printed, by rank.

    ``environment`` is added to this process's. When a rank fails the others are ended at once.
    Raises LaunchFailed when one does, or after ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        logs, until = Path(folder), time.monotonic() + timeout
        command = Ranks(workers).command([program, *arguments], logs)
        with Msrun(command, logs, environment) as msrun:
            # After a failure msrun waits for its scheduler, which waits for ranks that are gone.
            while msrun.process.poll() is None and not msrun.ended_badly() and time.monotonic() < until:
                time.sleep(0.1)
            late, failed = time.monotonic() >= until, bool(msrun.ended_badly())
        said = tuple(_read(logs / f"worker_{rank}.log") for rank in range(workers))
        if late:
            raise LaunchFailed(f"not finished after {timeout:g} s, all ranks ended\n{_last_words(said)}")
        if failed or msrun.process.returncode:
            raise LaunchFailed(f"a rank failed\n{_last_words(said)}")
        return said


def in_shell(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """``command`` with what a launch sets in its environment, for pasting into a shell."""
    unset = [f"-u {name}" for name in _PLACE if name in os.environ]
    before = [f'{name}={shlex.quote(value)}"${{{name}:+:${name}}}"' for name, value in _BEFORE.items()]
    given = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join(["env", *unset, *before, *given, shlex.join(command)])


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in (*_PLACE, MARK)}
    # msrun calls whichever ``python`` comes first.
    return own | {name: os.pathsep.join(filter(None, (new, own.get(name)))) for name, new in _BEFORE.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _read(path: Path | None) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path and path.exists() else ""


def last_lines(text: str, lines: int = LAST_LINES) -> list[str]:
    """The last lines of a log, without MindSpore's own."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith(_NOISE)][-lines:]


def _last_words(said: Sequence[str]) -> str:
    """The last lines of each rank that raised, or of all if none did."""
    raised = [rank for rank, text in enumerate(said) if "Traceback" in text]
    return "\n".join(f"rank {rank}: {line}" for rank in raised or range(len(said)) for line in last_lines(said[rank]))
