"""Arms that live side by side, one process each, computing in turn; what they told, compared.

A worker is ``python -m MODULE ARM JOB.json``. It says one JSON line when it is built, answers each
"go STEPS" with the seconds and losses of its steps, and "end" with its peak memory. Rounds go
through all arms, each from another starting point. An arm's time is the median of its round
medians, a ratio the other's time over ours (above 1, ours is faster).

Costs the memory of all arms at once. Does not do: any judging of times.
"""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import DataError, SettingError

from .measure import TOP

SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 688,
    "vocab_size": 8192,
}
TINY = {name: value // 8 if value > 8 else value // 4 for name, value in SHAPE.items()}
TOLERANCE = 1e-4
OURS = "ours"
# MindSpore prints the allocator's peak as the process ends. The first switch is what the package sets.
SWITCHES = {"MS_DEV_RUNTIME_CONF": "graph_pipeline:False,memory_statistics:True"}


class Worker:
    """An arm's process: ``ask`` sends a line and waits for the answer."""

    def __init__(self, name: str, module: str, arm: str, environment: Mapping[str, str], job: Path, threads: int):
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")
        env = os.environ | {"OMP_NUM_THREADS": str(threads)} | dict(environment)
        command = [sys.executable, "-m", module, arm, str(job)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self.process = subprocess.Popen(command, cwd=TOP, env=env, text=True, **pipes)

    def ask(self, line: str = "") -> dict[str, Any]:
        """The next JSON line after ``line`` was sent. Raises DataError where the process ends instead."""
        if line:
            try:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass  # its last words follow below
        for said in self.process.stdout:
            if said.startswith("{"):
                return json.loads(said)
        self.process.wait()
        self._errors.seek(0)
        complaint = " ".join(self._errors.read().strip().splitlines()[-3:])[-600:]
        raise DataError(f"{self.name} ended with {self.process.returncode}: {complaint}")

    def end(self) -> dict[str, float]:
        """Peak memory in MB: resident, and of the allocator where it is known."""
        told = self.ask("end")
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.wait()
        peak = re.search(r"peak used mem:(\d+)M", rest)
        return told | ({"peak_allocator_mb": float(peak.group(1))} if peak else {})


def run(
    module: str, chosen: Mapping[str, tuple[str, Mapping[str, str]]], job: dict, rounds: int, steps: int
) -> dict[str, dict[str, Any]]:
    """Every arm's raw values: {name: {"rounds": [answers], "first_step_seconds": ..., peaks}}.

    ``chosen`` is {name: (worker's arm, environment)}.
    """
    told: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        workers: list[Worker] = []
        try:
            for name, (arm, environment) in chosen.items():
                start = time.perf_counter()
                workers.append(Worker(name, module, arm, environment, path, job["threads"]))
                built = workers[-1].ask()
                first = workers[-1].ask("go 1")
                told[name] = built | {
                    "first_step_seconds": first["seconds"][0],
                    "start_to_first_step_seconds": time.perf_counter() - start,
                    "losses": first["losses"],
                    "rounds": [],
                }
                told[name]["losses"] += workers[-1].ask("go 2")["losses"]  # torch.compile and allocators settle
                print(f"{name}: first step {first['seconds'][0]:.1f} s, loss {first['losses'][0]:.6f}", flush=True)
            for number in range(rounds):
                turn = number % len(workers)
                for worker in (*workers[turn:], *workers[:turn]):
                    told[worker.name]["rounds"].append(worker.ask(f"go {steps}"))
                print(f"round {number + 1}/{rounds} done", flush=True)
            for worker in workers:
                told[worker.name] |= worker.end()
        finally:
            for worker in workers:
                if worker.process.poll() is None:
                    worker.process.kill()
    return told


def largest_difference(
    told: Mapping[str, Mapping[str, Any]], tolerance: float = TOLERANCE, first: int | None = None
) -> float:
    """The largest difference of any two arms' losses at the same step, of all or the ``first`` so many steps.

    Raises DataError above ``tolerance``.
    """
    lists = {
        name: [*arm["losses"], *(x for r in arm["rounds"] for x in r["losses"])][:first] for name, arm in told.items()
    }
    worst = max(max(values) - min(values) for values in zip(*lists.values(), strict=True))
    if not (worst <= tolerance and all(map(math.isfinite, (x for values in lists.values() for x in values)))):
        firsts = "; ".join(f"{name}: {values[0]:.6f}" for name, values in lists.items())
        raise DataError(f"the losses differ by {worst:.2g}, more than {tolerance:g}: the arms differ ({firsts})")
    return worst


def medians(told: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """The median seconds of a step, a round each."""
    return {name: [statistics.median(r["seconds"]) for r in arm["rounds"]] for name, arm in told.items()}


def ratios(by_round: Mapping[str, Sequence[float]], own: str = OURS) -> dict[str, dict[str, Any]]:
    """Every other arm's time over that of ``own``: of the medians, and the spread of the rounds."""
    mine = by_round[own]
    result = {}
    for name, theirs in by_round.items():
        if name != own:
            each = sorted(other / one for other, one in zip(theirs, mine, strict=True))
            of_medians = statistics.median(theirs) / statistics.median(mine)
            spread = {"lowest": each[0], "median": statistics.median(each), "highest": each[-1]}
            result[name] = {key: round(value, 3) for key, value in {"of_medians": of_medians, **spread}.items()}
    return result


def arguments(prog: str, about: str, words: Sequence[str] | None, **flags: str) -> argparse.Namespace:
    """The command line, with ``flags`` ({name: help}) of a benchmark's own. Raises SettingError for counts below 1."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=about)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="steps of a round (default 10)")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads, and OpenMP's of all (default 2)")
    parser.add_argument("--rows", type=int, default=8, help="batch size (default 8)")
    parser.add_argument("--length", type=int, default=256, help="sequence length (default 256)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, two short rounds, no torch.compile")
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    given = parser.parse_args(words)
    if given.smoke:
        given.rounds, given.steps, given.rows, given.length = 2, 3, 2, 32
    for name in ("rounds", "steps", "threads", "rows", "length"):
        if getattr(given, name) < 1:
            raise SettingError(f"--{name} {getattr(given, name)} is not allowed: at least 1")
    return given


def without_compile(given: argparse.Namespace) -> dict[str, str]:
    """{"torch compile": why it is left out}, or nothing."""
    if given.no_compile or given.smoke:
        reason = "left out by --no-compile" if given.no_compile else "left out by --smoke, for speed"
    elif not shutil.which(os.environ.get("CXX", "g++")):
        reason = "torch.compile needs a C++ compiler, and there is no g++ here (or what CXX names)"
    else:
        return {}
    return {"torch compile": reason}


def write(given: argparse.Namespace, about: dict, job: dict, told: dict, skipped: dict, **more: Any) -> None:
    """Print a table of ``told`` and write everything to ``given.out``."""
    by_round = medians(told)
    compared = ratios(by_round)
    for name, times in by_round.items():
        seconds, arm = statistics.median(times), told[name]
        against = f"{compared[name]['of_medians']:.2f} x ours" if name in compared else ""
        allocator = f", allocator {arm['peak_allocator_mb']:.0f} MB" if "peak_allocator_mb" in arm else ""
        speed = given.rows * given.length / seconds
        spent = statistics.median(r["processor_seconds"] / len(r["seconds"]) for r in arm["rounds"])
        print(
            f"{name:30} {seconds * 1000:8.1f} ms {speed:9.0f} tok/s  {against:12} processors {spent * 1000:.0f} ms, "
            f"first step {arm['first_step_seconds']:.1f} s, resident {arm['peak_resident_mb']:.0f} MB{allocator}"
        )
    for name, reason in skipped.items():
        print(f"{name}: not measured: {reason}")
    result = {"machine": about, **job, "rounds": given.rounds, "steps": given.steps, "skipped": skipped, **more}
    result |= {"ratios_to_ours": compared}
    result |= {"median_seconds": {name: statistics.median(times) for name, times in by_round.items()}}
    result |= {"round_medians": by_round, "arms": told}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"written to {given.out}")
