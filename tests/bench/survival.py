"""What surviving costs: the training loop with logs, alarms, requests and checkpoints, and without.

    python -m tests.bench.survival --out runs/bench/survival.json        about four minutes on two cores

One process trains the demo of notebook 05. Blocks of ``BLOCK`` steps alternate: with everything that a
run does around a step, and bare (batch and step only). Once in ``save_steps`` steps of the full kind a
checkpoint is begun, whose writing falls into the same block. The difference of neighbouring blocks is the
cost; its interval resamples pairs. ``outside`` is what a clock around the step itself leaves over.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from workbench.alarm_config import AlarmConfig
from workbench.config import DataConfig, RunConfig, TrainConfig
from workbench.control import Control
from workbench.data.pipeline import open_corpus
from workbench.data.tokenizing import load_tokenizer
from workbench.device import use_device
from workbench.run_folder import RunFolder, write_json
from workbench.train.course import Course
from workbench.train.feeding import fed
from workbench.train.resuming import surroundings
from workbench.train.saving import CheckpointWriter
from workbench.train.starting import starting_model

BLOCK = 5  # short, since the machine's speed drifts


def measure(pairs: int, folder: Path) -> dict:
    """Seconds a step of each kind, by block, and the cost in percent with its 95 % interval."""
    samples = Path(__file__).parents[2] / "data_samples"
    config = RunConfig(
        data=DataConfig(
            data=str(samples / "corpus"), tasks=str(samples / "tasks.jsonl"), tokenizer=str(samples / "tokenizer")
        ),
        train=TrainConfig(steps=1 + 2 * BLOCK * pairs),
        # An alarm costs a forward pass over its samples, compiled at the first: not what a step costs.
        alarms=AlarmConfig(spike_nats=100.0, norm_factor=1e9),
    )
    tokenizer = load_tokenizer(config.data.tokenizer)
    run = RunFolder.at(folder)
    config, model = starting_model(config, tokenizer, use_device())
    corpus = open_corpus(config.data, tokenizer, folder / "data", config.model.num_tasks)
    course = Course(config, run, corpus, model, surroundings(1))
    every = config.train.save_steps // BLOCK  # blocks of the full kind to a checkpoint
    seconds: dict[str, list[float]] = {"full": [], "bare": []}
    outside, saves = 0.0, 0
    with (
        closing(fed(corpus, config, 0, config.train.steps)) as batches,
        Control(run) as control,
        CheckpointWriter(run, 2, course._written) as writer,
    ):
        course._one_step(batches, control)  # compiles
        for pair in range(pairs):
            for kind in ("full", "bare") if pair % 2 else ("bare", "full"):
                start, inside = time.perf_counter(), 0.0
                for number in range(BLOCK):
                    if kind == "full":
                        # What Course.go does in a step without an evaluation, which has a cost of its own.
                        _, alarms = course._one_step(batches, control)
                        inside += course._row["step_seconds"]
                        course._obey(alarms)
                        control.poll()
                        if number == 0 and pair % every == 0:
                            course._save(writer)
                            saves += 1
                    else:
                        _, after, batch = next(batches)
                        course.step(course.state, batch)
                        course.at, course.position = course.at + 1, after
                took = time.perf_counter() - start
                seconds[kind].append(took / BLOCK)
                outside += took - inside if kind == "full" else 0.0
    full, bare = np.asarray(seconds["full"]), np.asarray(seconds["bare"])
    draws = np.random.default_rng(0).integers(0, pairs, (2000, pairs))
    ratios = full[draws].sum(1) / bare[draws].sum(1) - 1
    return {
        "steps of each kind": pairs * BLOCK,
        "checkpoints": saves,
        "alarms": len(run.events("alarm")),
        "step_seconds": {kind: float(np.mean(values)) for kind, values in seconds.items()},
        "cost_percent": 100 * float(full.sum() / bare.sum() - 1),
        "interval_percent": [100 * float(v) for v in np.quantile(ratios, (0.025, 0.975))],
        "outside_percent": 100 * outside / float(full.sum() * BLOCK),
        "blocks": seconds,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.survival", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=160)
    parser.add_argument("--smoke", action="store_true", help="two pairs of blocks")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    os.environ["WORKBENCH_PROGRESS"] = "log"
    with tempfile.TemporaryDirectory(prefix="survival-") as place:
        told = measure(2 if given.smoke else given.pairs, Path(place))
    write_json(given.out, told)
    print(json.dumps({name: value for name, value in told.items() if name != "blocks"}, indent=1))
