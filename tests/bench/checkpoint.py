"""What a checkpoint costs the loop that goes on meanwhile.

    python -m tests.bench.checkpoint --parameters 636000 --rounds 10

A step is stood in for by products of matrices on all cores. A round is so many steps without a
checkpoint and as many during which one is written in the background, in turn; ``lost`` is the
difference of their sums and the snapshot, over the time between two checkpoints. Prints one JSON
object. Does not train: ``pretrain`` with checkpoints and without is the notebooks' to compare.
"""

import argparse
import json
import statistics
import tempfile
import time

import numpy as np

from workbench.run_folder import RunFolder
from workbench.train.checkpoint import write_checkpoint
from workbench.train.saving import CheckpointWriter


def arrays(parameters: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights and both moments of ``parameters`` numbers in 20 arrays each."""
    rng = np.random.default_rng(0)
    made = {f"{kind}.{i}": rng.random(parameters // 20, np.float32) for kind in ("w", "m1", "m2") for i in range(20)}
    return {n: a for n, a in made.items() if n[0] == "w"}, {n: a for n, a in made.items() if n[0] == "m"}


def measure(run: RunFolder, parameters: int, rounds: int, steps: int, step: float, between: float) -> dict[str, float]:
    """Medians over ``rounds``, in seconds; ``lost`` is a share of ``between``, the time between two checkpoints."""
    weights, moments = arrays(parameters)
    matrix = np.ones((512, 512), np.float32)
    start = time.perf_counter()
    for _ in range(50):
        matrix @ matrix
    products = max(1, round(step / ((time.perf_counter() - start) / 50)))

    def busy() -> float:
        start = time.perf_counter()
        for _ in range(steps * products):
            matrix @ matrix
        return time.perf_counter() - start

    start = time.perf_counter()
    write_checkpoint(run, 999_999, weights, moments, {})
    told = {"write_alone": [time.perf_counter() - start], "snapshot": [], "write": [], "slower": []}
    with CheckpointWriter(run, 1, lambda at, path, seconds: told["write"].append(seconds)) as writer:
        for at in range(1_000_000, 1_000_000 + rounds):
            plain = busy()
            start = time.perf_counter()
            copies = [{n: a.copy() for n, a in kind.items()} for kind in (weights, moments)]
            told["snapshot"].append(time.perf_counter() - start)
            writer.save(at, *copies, {})
            del copies
            told["slower"].append(busy() - plain)
            writer.wait()
    medians = {name: statistics.median(values) for name, values in told.items()}
    return medians | {"lost": (medians["snapshot"] + medians["slower"]) / between, "megabytes": parameters * 12 / 1e6}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--parameters", type=int, default=636_000)
    asked.add_argument("--rounds", type=int, default=10)
    asked.add_argument("--steps", type=int, default=10, help="steps in each half of a round; longer than one write")
    asked.add_argument("--step", type=float, default=0.14, help="seconds of a step")
    asked.add_argument("--between", type=float, default=28.0, help="seconds between two checkpoints")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        told = measure(RunFolder.at(folder), *vars(given).values())
    print(json.dumps({name: round(value, 5) for name, value in told.items()}))


if __name__ == "__main__":
    main()
