"""Benchmark of the whole training step: ours, stock and native, beside transformers' Llama on CPU torch.

    python -m tests.bench.train --out FILE.json
    python -m tests.bench.train --smoke --out FILE.json        a tiny model, two rounds, no torch.compile

Forward, backward, clip by global norm and AdamW (torch's fused one) in float32, from the same
weights on the same batches, in turn as ``rounds.py`` says. The result is refused where losses
differ by more than 1e-5 within the first 9 steps or 1e-3 at any: rounding grows from step to
step. Beside it: how much of a step of the real pipeline is waiting for data. FILE gets every raw
value; no time is asserted.

Costs: about six minutes on two cores and 5 GB of memory. Leave the machine alone meanwhile. Does
not do: half precision, several ranks, devices other than the CPU.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.errors import UserError

from .measure import machine
from .rounds import OURS, SHAPE, SWITCHES, TINY, Worker, arguments, largest_difference, run, without_compile, write

WORKER = "tests.bench.train_worker"
NATIVE = "ours, native kernels"
EARLY, EARLY_TOLERANCE, TOLERANCE = 9, 1e-5, 1e-3


def arms(compile_too: bool, native: bool = True) -> dict[str, tuple[str, dict[str, str]]]:
    """{name: (worker's arm, environment)}."""
    chosen = {OURS: ("stock", SWITCHES)}
    if native:
        chosen[NATIVE] = ("native", SWITCHES)
    chosen["torch eager"] = ("eager", {})
    if compile_too:
        chosen["torch compile"] = ("compile", {})
    return chosen


def data_wait(job: dict) -> dict[str, Any]:
    """Seconds waited and computed at each step of the real pipeline, and the share of waiting in their sum."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        told = Worker("data", WORKER, "data", {}, path, job["threads"]).ask()
    waited, computed = sum(told["wait_seconds"]), sum(told["compute_seconds"])
    return {"share": waited / (waited + computed), **told}


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmark, print a table, write the file."""
    from workbench.model.native import native_kernels

    given, about = arguments("tests.bench.train", __doc__.splitlines()[0], words), machine()
    job = {"shape": TINY if given.smoke else SHAPE, "rows": given.rows, "length": given.length}
    job |= {"threads": given.threads, "steps": given.steps}
    skipped, (kernels, said) = without_compile(given), native_kernels()
    if kernels is None:
        skipped[NATIVE] = said
    told = run(WORKER, arms("torch compile" not in skipped, kernels is not None), job, given.rounds, given.steps)
    early, worst = largest_difference(told, EARLY_TOLERANCE, EARLY), largest_difference(told, TOLERANCE)
    print(f"largest difference of losses {early:.1e} over the first {EARLY} steps, {worst:.1e} over all")
    waiting = data_wait(job)
    print(f"waiting for data: {waiting['share']:.2%} of a step of the real pipeline")
    differences = {"largest_difference_early": early, "largest_difference_of_losses": worst}
    write(given, about, job, told, skipped, native=said, data_wait=waiting, **differences)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
