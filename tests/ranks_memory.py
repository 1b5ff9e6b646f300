"""What each rank does for ``test_sharding_memory.py``: two updates of six matrices of 8 MiB, nothing else."""

import sys

import mindspore as ms
import numpy as np
from optimizer_arms import _update

from workbench.config import TrainConfig
from workbench.device import joined_ranks, use_device
from workbench.train.optimizers import make_optimizer


def main(sharding: str) -> None:
    use_device("CPU")
    with joined_ranks() as (rank, world):
        shape = (1024, 2048)
        made = [ms.Parameter(ms.Tensor(np.ones(shape, np.float32)), name=f"layers.{i}.weight") for i in range(6)]
        config = TrainConfig(optimizer_sharding=sharding, bucket_mb=8)
        optimizer = make_optimizer(ms.ParameterTuple(made), config, rank, world)
        # Made from host arrays, they would be outside of the allocator.
        for moment in (*optimizer.moment1, *optimizer.moment2, *getattr(optimizer, "slices", ())):
            moment.set_data(ms.ops.zeros(moment.shape, ms.float32))
        update = ms.jit(_update(optimizer, 1.0))
        gradients = [ms.Tensor(np.ones(shape, np.float32)) for _ in made]
        for step in range(2):
            update(*gradients, ms.Tensor(1e-3, ms.float32), ms.Tensor(float(step), ms.float32))
        made[0].asnumpy()
        print("moments", optimizer.resident_bytes()["device"])


if __name__ == "__main__":
    main(sys.argv[1])
