"""Benchmark of the model: forward and backward of one float32 decoder, ours beside transformers' Llama on CPU torch.

    python -m tests.bench.model --out FILE.json
    python -m tests.bench.model --smoke --out FILE.json        a tiny model, two rounds, no torch.compile

The arms take turns as ``rounds.py`` says. The result is refused where losses differ by more than
1e-4. FILE gets every raw value; no time is asserted.

Costs: about three minutes on two cores and 4 GB of memory. Leave the machine alone meanwhile.
Does not do: the optimizer (``train.py``), half precision, devices other than the CPU.
"""

import sys
from collections.abc import Sequence

from workbench.errors import UserError

from .measure import machine
from .rounds import OURS, SHAPE, SWITCHES, TINY, arguments, largest_difference, run, without_compile, write

WORKER = "tests.bench.model_worker"


def arms(switch: bool, compile_too: bool) -> dict[str, tuple[str, dict[str, str]]]:
    """{name: (worker's arm, environment)}."""
    chosen = {OURS: ("ours", SWITCHES)}
    if switch:
        chosen["ours, graph_pipeline left on"] = ("ours", {"MS_DEV_RUNTIME_CONF": "memory_statistics:True"})
    chosen["torch eager"] = ("eager", {})
    if compile_too:
        chosen["torch compile"] = ("compile", {})
    return chosen


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmark, print a table, write the file."""
    switch = "also ours without the package's graph_pipeline:False"
    given, about = arguments("tests.bench.model", __doc__.splitlines()[0], words, switch=switch), machine()
    shape = TINY if given.smoke else SHAPE
    job = {"shape": shape, "rows": given.rows, "length": given.length, "threads": given.threads}
    skipped = without_compile(given)
    told = run(WORKER, arms(given.switch, not skipped), job, given.rounds, given.steps)
    worst = largest_difference(told)
    print(f"largest difference of losses {worst:.1e}")
    write(given, about, job, told, skipped, largest_difference_of_losses=worst)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
