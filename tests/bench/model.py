"""Benchmark of the model: forward and backward of one float32 decoder, ours beside transformers' Llama on CPU torch.

    python -m tests.bench.model --out FILE.json
    python -m tests.bench.model --smoke --out FILE.json        a tiny model, two rounds, no torch.compile

Each arm is a process that lives through the whole run and computes only in its turn; rounds go
through all arms, each from another starting point. An arm's time is the median of its round
medians, a ratio the other's time over ours (above 1, ours is faster). The result is refused where
losses differ by more than 1e-4. FILE gets every raw value; no time is asserted.

Costs: about three minutes on two cores and 4 GB of memory. Leave the machine alone meanwhile.
Does not do: the optimizer, half precision, devices other than the CPU.
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

from workbench.errors import DataError, SettingError, UserError

from .measure import TOP, machine

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
# MindSpore prints the allocator's peak as the process ends. The first line is what the package sets.
SWITCHES = {
    OURS: "graph_pipeline:False,memory_statistics:True",
    "ours, graph_pipeline left on": "memory_statistics:True",
}


def arms(switch: bool, compile_too: bool) -> dict[str, tuple[str, dict[str, str]]]:
    """{name: (worker's arm, environment)}."""
    chosen = {
        name: ("ours", {"MS_DEV_RUNTIME_CONF": conf}) for name, conf in SWITCHES.items() if switch or name == OURS
    }
    chosen["torch eager"] = ("eager", {})
    if compile_too:
        chosen["torch compile"] = ("compile", {})
    return chosen


class Worker:
    """An arm's process: ``ask`` sends a line and waits for the answer."""

    def __init__(self, name: str, arm: str, environment: Mapping[str, str], job: Path, threads: int) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")
        env = os.environ | {"OMP_NUM_THREADS": str(threads)} | dict(environment)
        command = [sys.executable, "-m", "tests.bench.model_worker", arm, str(job)]
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
        """Peak memory in MB: resident, and of MindSpore's allocator where it told."""
        told = self.ask("end")
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.wait()
        peak = re.search(r"peak used mem:(\d+)M", rest)
        return told | ({"peak_allocator_mb": float(peak.group(1))} if peak else {})


def run(chosen: Mapping, job: dict, rounds: int, steps: int) -> dict[str, dict[str, Any]]:
    """Every arm's raw values: {name: {"rounds": [answers], "first_step_seconds": ..., peaks}}."""
    told: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        workers: list[Worker] = []
        try:
            for name, (arm, environment) in chosen.items():
                start = time.perf_counter()
                workers.append(Worker(name, arm, environment, path, job["threads"]))
                built = workers[-1].ask()["built_seconds"]
                first = workers[-1].ask("go 1")
                told[name] = {
                    "built_seconds": built,
                    "first_step_seconds": first["seconds"][0],
                    "start_to_first_step_seconds": time.perf_counter() - start,
                    "losses": first["losses"],
                    "rounds": [],
                }
                workers[-1].ask("go 2")  # torch.compile and allocators settle
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


def largest_difference(told: Mapping[str, Mapping[str, Any]]) -> float:
    """The largest difference of any two arms' losses at the same step. Raises DataError above ``TOLERANCE``."""
    lists = {name: [*arm["losses"], *(x for r in arm["rounds"] for x in r["losses"])] for name, arm in told.items()}
    worst = max(max(values) - min(values) for values in zip(*lists.values(), strict=True))
    if not (worst <= TOLERANCE and all(map(math.isfinite, (x for values in lists.values() for x in values)))):
        firsts = "; ".join(f"{name}: {values[0]:.6f}" for name, values in lists.items())
        raise DataError(f"the losses differ by {worst:.2g}, more than {TOLERANCE:g}: the arms differ ({firsts})")
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


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Raises SettingError for counts below 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.model", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="steps of a round (default 10)")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads, and OpenMP's of all (default 2)")
    parser.add_argument("--rows", type=int, default=8, help="batch size (default 8)")
    parser.add_argument("--length", type=int, default=256, help="sequence length (default 256)")
    parser.add_argument("--switch", action="store_true", help="also ours without the package's graph_pipeline:False")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, two rounds of two steps, no torch.compile")
    given = parser.parse_args(words)
    if given.smoke:
        given.rounds, given.steps, given.rows, given.length = 2, 2, 2, 32
    for name in ("rounds", "steps", "threads", "rows", "length"):
        if getattr(given, name) < 1:
            raise SettingError(f"--{name} {getattr(given, name)} is not allowed: at least 1")
    return given


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmark, print a table, write the file."""
    given, about = arguments(words), machine()
    shape = TINY if given.smoke else SHAPE
    job = {"shape": shape, "rows": given.rows, "length": given.length, "threads": given.threads}
    skipped = {}
    if given.no_compile or given.smoke:
        skipped["torch compile"] = "left out by --no-compile" if given.no_compile else "left out by --smoke, for speed"
    elif not shutil.which(os.environ.get("CXX", "g++")):
        skipped["torch compile"] = "torch.compile needs a C++ compiler, and there is no g++ here (or what CXX names)"
    told = run(arms(given.switch, not skipped), job, given.rounds, given.steps)
    worst, by_round = largest_difference(told), medians(told)
    compared = ratios(by_round)
    print(f"largest difference of losses {worst:.1e}")
    for name, times in by_round.items():
        seconds, arm = statistics.median(times), told[name]
        against = f"{compared[name]['of_medians']:.2f} x ours" if name in compared else ""
        allocator = f", allocator {arm['peak_allocator_mb']:.0f} MB" if "peak_allocator_mb" in arm else ""
        speed = given.rows * given.length / seconds
        print(
            f"{name:30} {seconds * 1000:8.1f} ms {speed:9.0f} tok/s  {against:12} "
            f"first step {arm['first_step_seconds']:.1f} s, resident {arm['peak_resident_mb']:.0f} MB{allocator}"
        )
    for name, reason in skipped.items():
        print(f"{name}: not measured: {reason}")
    result = {"machine": about, **job, "rounds": given.rounds, "steps": given.steps, "skipped": skipped}
    result |= {"largest_difference_of_losses": worst, "ratios_to_ours": compared}
    result |= {"median_seconds": {name: statistics.median(times) for name, times in by_round.items()}}
    result |= {"round_medians": by_round, "arms": told}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
