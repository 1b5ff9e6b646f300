"""A run killed many times beside the same run left alone: the same bits at the end?

    python -m tests.kills --kills 50 --out runs/kills          22 minutes on two cores beside another job

Two runs of one configuration: float16 with a growing loss scale, layer and task dropout, two batches of
noise that are rolled back from. One is never stopped. The other is killed with SIGKILL at random moments, in
turn of each kind in ``killed_run.MOMENTS``, started again after each, and at last left to finish.
Then everything is compared that should be equal: each number of each step that is not a time, the
evaluations, the rollbacks, and every byte of weights and optimizer in the last checkpoint. The result is
``kills.json`` in the folder.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Sequence

import numpy as np
from tqdm import tqdm

from tests.killed_run import MOMENTS
from workbench.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from workbench.alarm_config import AlarmConfig
from workbench.run_folder import RunFolder, write_json
from workbench.train.checkpoint import Checkpoint, latest_checkpoint
from workbench.train.rollback import Excluded

ROOT = Path(__file__).parents[1]
# What a step's row has besides numbers that must repeat: times, and what the machine says.
NOT_COMPARED = {
    *("step_seconds", "data_seconds", "tokens_per_second", "seconds_left", "rss_mb", "cpu_percent"),
    *("disk_free_mb", "checkpoint_mb"),
}


def configuration(steps: int, layers: int = 2) -> RunConfig:
    """A run with everything in it that a resume could lose."""
    samples = ROOT / "data_samples"
    return RunConfig(
        data=DataConfig(
            data=str(samples / "corpus"),
            tasks=str(samples / "tasks.jsonl"),
            tokenizer=str(samples / "tokenizer"),
            sequence_length=64,
        ),
        model=ModelConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            task_dropout=0.2,
            layer_dropout=0.1,
        ),
        train=TrainConfig(
            steps=steps,
            batch_size=8,
            warmup_steps=10,
            precision="float16",
            init_loss_scale=2.0**10,
            loss_scale_window=7,
            eval_steps=7,
            save_steps=5,
            save_total_limit=2,
        ),
        alarms=AlarmConfig.from_text("loss_spike=rollback, spike_deviations=6, max_rollbacks=9"),
    )


def live(config: Path, folder: Path, moment: str, seed: int) -> int:
    """One process of the run; its exit code, -9 when it was killed."""
    command = [sys.executable, "-m", "tests.killed_run", str(config), str(folder), moment, str(seed)]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, "WORKBENCH_PROGRESS": "log"}, capture_output=True
    )
    if done.returncode not in (0, -9):
        raise RuntimeError(f"{moment}, seed {seed}: exit code {done.returncode}\n{done.stderr.decode()[-2000:]}")
    return done.returncode


def compare(whole: RunFolder, killed: RunFolder) -> dict[str, bool]:
    """What must be equal, by name, and whether it is."""
    rows = [[{k: v for k, v in r.items() if k not in NOT_COMPARED} for r in run.metrics()] for run in (whole, killed)]
    told = [
        [
            {k: v for k, v in e.items() if k != "time"}
            for e in run.events()
            if e["kind"] in ("evaluation", "rollback", "overflow", "skipped")
        ]
        for run in (whole, killed)
    ]
    last = [latest_checkpoint(run) for run in (whole, killed)]
    arrays = [{**c.weights, **{f"optimizer {k}": v for k, v in c.optimizer.items()}} for c in last]
    return {
        "every step once, in order": [r["step"] for r in rows[1]] == list(range(1, rows[1][-1]["steps"] + 1)),
        "every sample once": _samples_once(killed, rows[1]),
        "numbers of every step": json.dumps(rows[0]) == json.dumps(rows[1]),
        "evaluations, rollbacks, overflows": json.dumps(told[0]) == json.dumps(told[1]),
        "bytes of weights and optimizer": arrays[0].keys() == arrays[1].keys()
        and all(np.array_equal(arrays[0][k].view(np.uint8), arrays[1][k].view(np.uint8)) for k in arrays[0]),
        "what the alarms remember": _remembered(last[0]) == _remembered(last[1]),
    }


def _remembered(checkpoint: Checkpoint) -> str:
    """The state of the alarms that watch the training, not the machine."""
    memory = checkpoint.state["alarms"]["memory"]
    return json.dumps({kind: memory[kind] for kind in memory if kind not in ("throughput", "memory", "disk")})


def _samples_once(run: RunFolder, rows: list[dict]) -> bool:
    """The steps' positions follow each other without gap or overlap, but for what is excluded."""
    excluded = {p for start, stop in Excluded.of(run).ranges for p in range(start, stop)}
    size, before = run.config()["train"]["batch_size"], 0
    for row in rows:
        if sum(p not in excluded for p in range(before, row["position"])) != size:
            return False
        before = row["position"]
    return True


def kill_often(
    folder: Path, kills: int, seed: int = 1, steps: int | None = None, layers: int = 2, moments: Sequence[str] = MOMENTS
) -> dict:
    """Kill a run ``kills`` times and compare it with one that was left alone; the result, also in ``kills.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    write_json(config, configuration(steps or max(60, 5 * kills), layers).as_dict())
    whole, killed = RunFolder.at(folder / "whole"), RunFolder.at(folder / "killed")
    chance, counted, start = random.Random(seed), Counter(), time.time()
    if live(config, whole.path, "never", 0):
        raise RuntimeError("the run that is left alone was killed")
    with tqdm(total=kills, unit="kill", disable=not sys.stderr.isatty()) as bar:
        while counted.total() < kills:
            moment = moments[counted.total() % len(moments)]
            if moment == "preparing":  # what was prepared is gone too, and is made again
                shutil.rmtree(killed.path / "data", ignore_errors=True)
            if live(config, killed.path, moment, chance.randrange(10**9)) == 0:
                raise RuntimeError(f"the run came to its end after {counted.total()} kills: give more steps")
            counted[moment] += 1
            bar.update()
    live(config, killed.path, "never", 0)
    result = {
        "kills": counted.total(),
        "by moment": dict(counted),
        "resumes": len(killed.events("resume")),
        "steps": whole.config()["train"]["steps"],
        "steps computed again": len((killed.path / "earlier" / "redone-metrics.jsonl").read_text().splitlines())
        if (killed.path / "earlier" / "redone-metrics.jsonl").exists()
        else 0,
        "rollbacks": len(Excluded.of(whole).rollbacks),
        "seconds": round(time.time() - start),
        "equal": compare(whole, killed),
    }
    write_json(folder / "kills.json", result)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/kills"), help="a new folder")
    given = parser.parse_args()
    told = kill_often(given.out.resolve(), given.kills, given.seed)
    print(json.dumps(told, indent=1))
    sys.exit(0 if all(told["equal"].values()) else 1)
