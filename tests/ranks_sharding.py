"""What each rank does for ``test_sharding_ranks.py``: the arms of it, their arrays and what else is to be known."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from optimizer_arms import CONFIG, OVERFLOW, STEPS, STOP, Arm, differing
from ranks_step import TRAIN, batch_of, rows_of
from tiny_model import TINY

from workbench.device import joined_ranks, use_device


def trained(sharding: str, rank: int, world: int):
    """Twenty steps of the whole compiled step; rank 1 overflows in the fourth."""
    from workbench.model.transformer import Transformer
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    config = replace(TRAIN, optimizer_sharding=sharding)
    model = Transformer(TINY, seed=0)
    state, step, losses = TrainState.fresh(model, config), TrainStep(model, config), []
    for i in range(20):
        extra = {"loss_factor": np.inf} if i == 3 and rank == 1 else {}
        state, metrics = step(state, rows_of(batch_of(i), rank, world) | extra)
        losses.append((metrics["loss"], metrics["overflow"]))
    weights, optimizer = state.arrays()
    return weights | optimizer, losses


def main(out: Path) -> None:
    use_device("CPU")
    with joined_ranks() as (rank, world):
        told = {}

        def tell(name, arm):
            np.savez(out / f"{name}-{rank}.npz", **arm.arrays())
            told[name] = {"bytes": arm.optimizer.resident_bytes(), "norms": arm.norms, "updates": arm.updates}

        for by in ("bytes", "size_groups", "parameter"):
            arm = Arm(rank=rank, world=world, optimizer_sharding="zero1", bucket_by=by).run(0, STOP)
            np.savez(out / f"zero1-stopped-{rank}.npz", **arm.arrays())
            tell(f"zero1-{by}", arm.run(STOP))
        clipped = replace(CONFIG, max_grad_norm=0.5)
        tell("plain", Arm(rank=rank, world=world).run())
        tell("plain-clipped", Arm(clipped, rank, world).run())
        tell("offloaded", Arm(rank=rank, world=world, optimizer_offload="host").run())
        sharded = Arm(clipped, rank, world, optimizer_sharding="zero1")
        before = sharded.run(0, OVERFLOW).arrays()
        told["changed by an overflow"] = differing(before, sharded.run(OVERFLOW, OVERFLOW + 1).arrays())
        tell("zero1-clipped", sharded.run(OVERFLOW + 1))
        resumed = Arm(rank=rank, world=world, optimizer_sharding="zero1")
        tell("zero1-from-one", resumed.load(dict(np.load(out / "one.npz")), STOP - 1.0).run(STOP, STEPS))
        for sharding in ("none", "zero1"):
            arrays, told[f"losses-{sharding}"] = trained(sharding, rank, world)
            np.savez(out / f"step-{sharding}-{rank}.npz", **arrays)
        (out / f"told-{rank}.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
