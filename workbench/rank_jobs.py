"""A notebook on several ranks: each executes it in a kernel of its own, under one ``msrun``.

    jobs.run(planned, folder, progress, timeout, how=OnRanks(planned, Ranks(workers=2), root))

The first rank's executed notebook is the result and lies where that of a single kernel would; rank
R's lies in ``RUN/ranks/R/notebooks`` and has that folder as its ``RUN``. Logs are in
``RUN/ranks/logs/NOTEBOOK``. However it ends, no process of it is left and each rank's notebook says
how it ended:

- a rank fails or its process dies: the others get GRACE seconds to say the same, then their kernels
  are killed, and GRACE seconds later all that is left. The message names the rank that began it.
- SIGINT or SIGTERM: all ranks are interrupted and get STOP seconds to save; at a second signal, none.
- the scheduler misses a rank for 30 s (it hangs, or its machine is gone) or gives up: as when a rank fails.

Costs the start of MindSpore in every rank and the scheduler, for each notebook anew. Does not: end a
rank that computes for ever, without ``timeout``; restart; learn what happens on other machines, but
through the scheduler.
"""

import json
import shlex
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import psutil

from workbench.job_kernel import SAVE_SECONDS
from workbench.jobs import Job, JobFailed, JobStopped, OnCell, device_of, say_ended
from workbench.launching import Msrun, Ranks, in_shell, last_lines
from workbench.rank_worker import job_of_rank, state_file
from workbench.run_folder import RunFolder

GRACE = 3.0
STOP = SAVE_SECONDS + 5
END = 15.0  # that msrun gets to end after all ranks are done
_POLL = 0.2
# As long as msrun waits for ranks; CANN's 120 s start at a rank's first collective. Not run on Ascend.
_ASCEND = {"HCCL_CONNECT_TIMEOUT": "600"}


@dataclass(frozen=True)
class OnRanks:
    """Runs one of ``jobs`` on ``ranks`` whose run folder is ``root``; give it to ``jobs.run`` as ``how``."""

    jobs: Sequence[Job]
    ranks: Ranks
    root: RunFolder

    def __call__(self, job: Job, on_cell: OnCell, timeout: float | None = None) -> None:
        """Run ``job``. Raises JobFailed and KeyboardInterrupt."""
        logs = self.logs(job)
        logs.mkdir(parents=True, exist_ok=True)
        jobs = {rank: job_of_rank(job, self.root, rank) for rank in self.ranks.here}
        stale = [state_file(logs, rank) for rank in jobs] + [each.output for each in jobs.values()]
        for file in stale:
            file.unlink(missing_ok=True)
        with Msrun(self.command(job, timeout), logs, self.environment(job), self.ranks.node_rank) as msrun:
            watch = _Watch(jobs, msrun)
            try:
                watch.until_done(on_cell)
                watch.until_ended(END if self.ranks.nodes == 1 else None)
            except JobFailed as failure:
                msrun.end()
                watch.complete("stopped", f"stopped because {failure.problem}", ("done",))
                raise
            except KeyboardInterrupt:
                msrun.end()
                watch.complete("interrupted", "stopped by a signal", ("done", "failed", "interrupted"))
                raise

    def logs(self, job: Job) -> Path:
        """Where msrun's logs of ``job`` and the ranks' states go."""
        return self.root.path / "ranks" / "logs" / job.source.stem

    def command(self, job: Job, timeout: float | None = None) -> list[str]:
        """The msrun command that runs ``job`` on the ranks of this machine."""
        program = ["-m", "workbench.rank_worker", str(job.source), str(self.root.path)]
        program += ["--logs", str(self.logs(job)), *_given(job)]
        program += [f"--timeout={timeout:g}"] if timeout else []
        return self.ranks.command(program, self.logs(job), self.jobs.index(job))

    def environment(self, job: Job) -> Mapping[str, str]:
        """What ``job`` needs in the environment besides this Python and this package."""
        return _ASCEND if device_of(job) == "Ascend" else {}


class _Watch:
    """The ranks of this machine while they run ``jobs`` (by rank) under ``msrun``."""

    def __init__(self, jobs: Mapping[int, Job], msrun: Msrun) -> None:
        self.jobs, self.msrun = jobs, msrun
        self.failures: dict[int, str] = {}  # of the ranks that failed of themselves

    def states(self) -> dict[int, dict[str, Any]]:
        """What each rank last wrote of itself; ``{"status": "starting"}`` before that."""
        files = {rank: state_file(self.msrun.logs, rank) for rank in self.jobs}
        return {
            rank: json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"status": "starting"}
            for rank, file in files.items()
        }

    def until_done(self, on_cell: OnCell) -> None:
        """Return when every rank is done. Raises JobFailed and KeyboardInterrupt, after the ranks had their time."""
        told = None
        try:
            while (states := self.states()) and any(state["status"] != "done" for state in states.values()):
                first = states[min(states)]
                if (at := (first.get("cell"), first.get("cells"))) != told and at[1]:
                    on_cell(*at)
                    told = at
                if self.msrun.process.poll() is not None or self.failed_ranks(states) or self.msrun.scheduler_failed():
                    raise self.failure()
                time.sleep(_POLL)
        except KeyboardInterrupt:
            self.stop()
            raise

    def until_ended(self, seconds: float | None) -> None:
        """Let msrun and its scheduler end; what is left after ``seconds`` has no work to lose and is killed."""
        until = time.monotonic() + seconds if seconds else float("inf")
        while self.msrun.process.poll() is None and time.monotonic() < until:
            time.sleep(_POLL)

    def failed_ranks(self, states: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[bool, float, str]]:
        """The ranks that failed, as (raised, when, problem); the one that began it has the least.

        A rank that died or hangs comes before one that raised: its end is noticed within a second or
        thirty, that of the connection to it sooner.
        """
        bad, found = self.msrun.ended_badly(), {}
        for rank, state in states.items():
            problem = state.get("problem", "")
            if state["status"] in ("failed", "interrupted", "stopped"):
                found[rank] = (not problem.startswith("the kernel died"), state["time"], problem)
            elif state["status"] == "running" and state["pid"] in bad:
                found[rank] = (False, time.time(), f"its process {_ending(bad[state['pid']])}")
            elif state["status"] == "starting" and set(bad) - {s.get("pid") for s in states.values()}:
                said = last_lines(_text(self.msrun.logs / f"worker_{rank}.log"), 1)
                found[rank] = (not said, time.time(), f"did not start: {said[0] if said else 'it said nothing'}")
        for rank in sorted(self.msrun.silent_ranks() - set(found)):
            where = "" if rank in states else ", on another machine"
            found[rank] = (False, 0.0, f"not heard of for 30 s{where}: it hangs, or its machine or network does")
        return found

    def failure(self) -> JobFailed:
        """Give the others time to say the same, end their kernels, and name the rank that began it."""
        self.wait(GRACE)
        states = self.states()
        failed = self.failed_ranks(states)
        for process in self.msrun.processes():  # so that their notebooks are saved with all they showed
            try:
                if "ipykernel_launcher" in process.cmdline():
                    process.kill()
            except psutil.NoSuchProcess:
                continue
        self.wait(GRACE)
        after = self.failed_ranks(self.states()).items()
        failed |= {rank: why for rank, why in after if rank not in failed and "the kernel died" not in why[2]}
        self.failures = {rank: problem for rank, (_, _, problem) in failed.items()}
        if failed:
            rank = min(failed, key=lambda each: failed[each][:2])
            problem = f"rank {rank}: {self.failures[rank]}"
        else:
            rank = min(self.jobs)
            who, log = "msrun", self.msrun.log
            if self.msrun.scheduler_failed():
                who, log = "the scheduler", self.msrun.scheduler_log
            said = last_lines(_text(log), 1)
            problem = f"{who} gave up: {said[0] if said else 'it said nothing'}, see {log}"
        if not self.msrun.scheduler_log:
            problem += "; a rank of another machine may have failed before it, see machine 0"
        shown = rank if rank in self.jobs else min(self.jobs)
        stopped = failed and {states[each]["status"] for each in failed if each in states} == {"stopped"}
        return (JobStopped if stopped else JobFailed)(self.jobs[shown], states[shown].get("cell", 1), problem)

    def stop(self) -> None:
        """Interrupt all ranks and give them time to save."""
        for process in self.running():
            process.terminate()
        self.wait(STOP)

    def running(self) -> list[psutil.Process]:
        """The processes of the ranks that have not said how they ended."""
        pids = {state["pid"] for state in self.states().values() if state["status"] == "running"}
        return [process for process in self.msrun.processes() if process.pid in pids]

    def wait(self, seconds: float) -> None:
        """Until no rank runs any more, but no longer than ``seconds``."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.running():
            time.sleep(_POLL)

    def complete(self, status: str, problem: str, spoke: Sequence[str]) -> None:
        """Have the notebooks say how they ended whose ranks did not come to one of the states ``spoke``.

        For when no rank runs any more.
        """
        for rank, state in self.states().items():
            if state["status"] not in spoke:
                at = {name: state[name] for name in ("cell", "cells") if name in state}
                ended = "stopped" if state["status"] == "stopped" else "failed"
                own = (ended, self.failures[rank]) if rank in self.failures else (status, problem)
                say_ended(self.jobs[rank], *own, at)


def in_shells(jobs: Sequence[Job], ranks: Ranks, root: RunFolder, timeout: float | None) -> str:
    """What would be run on each machine, for its shell; nothing is started."""
    lines = []
    for node in range(ranks.nodes):
        on = OnRanks(jobs, replace(ranks, node_rank=node), root)
        here = on.ranks.here
        told = f"# machine {node} of {ranks.nodes}: ranks {here[0]} to {here[-1]} of {ranks.workers}"
        lines.append(told if node else f"{told}; it has the address {ranks.master_addr}, and the result in {root.path}")
        if any(device_of(job) == "Ascend" for job in jobs):
            lines.append("# Ascend (not tried): source CANN's set_env.sh in this shell first")
        lines += [in_shell(on.command(job, timeout), on.environment(job)) for job in jobs]
        report = [sys.executable, "-m", "workbench.cli", "report", str(root.of_rank(here[0]).path)]
        lines += [shlex.join(report), ""]
    return "\n".join(lines).rstrip()


def in_shell_alone(jobs: Sequence[Job], root: RunFolder, timeout: float | None) -> str:
    """The command that runs ``jobs`` with one kernel, from any folder."""
    command = [sys.executable, "-m", "workbench.cli", "run", *(str(job.source) for job in jobs)]
    command += list(dict.fromkeys(part for job in jobs for part in _given(job)))
    command += ["--out", str(root.path), *([f"--timeout={timeout:g}"] if timeout else [])]
    return shlex.join(command)


def _given(job: Job) -> list[str]:
    """The values of ``job`` as ``run`` takes them; paths are absolute by now."""
    return [f"-p{name}={value}" for name, value in job.values.items() if name != "RUN"]


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was ended by {name}" + (": killed, or out of memory" if name == "SIGKILL" else "")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
