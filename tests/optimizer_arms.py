"""An optimizer of the package driven by given gradients, compiled as in the step, without a model around it."""

from dataclasses import replace

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.config import TrainConfig
from workbench.train.optimizers import make_optimizer

# Odd sizes, so that slices cross parameters and buckets have to be filled up; one shape three times.
SHAPES = {
    "embed.weight": (13, 5),
    "layers.0.weight": (6, 7),
    "layers.1.weight": (6, 7),
    "layers.2.weight": (6, 7),
    "norm.weight": (5,),
    "task_embedding.weight": (3, 5),
}
CONFIG = TrainConfig(max_grad_norm=1e9, bucket_mb=400 / 2**20, bucket_size_groups=(20, 50))
STEPS, STOP, OVERFLOW = 24, 9, 5  # steps of an arm, after which of them it is saved, which of them overflows


def gradients_of(step: int, rank: int) -> list[np.ndarray]:
    """A rank's gradients: five decades, exact zeros, and on rank 1 an infinity in step ``OVERFLOW``."""
    rng = np.random.default_rng([step, rank])
    size = 10.0 ** rng.uniform(-4, 1)
    made = [(rng.normal(0, size, s) * (rng.random(s) < 0.9)).astype(np.float32) for s in SHAPES.values()]
    if step == OVERFLOW and rank == 1:
        made[-1][0, 0] = np.inf
    return made


class Arm:
    """Fresh weights and an optimizer on them; ``run`` takes steps, ``arrays`` tells what has become of them."""

    def __init__(self, config: TrainConfig = CONFIG, rank: int = 0, world: int = 1, folder=None, **changed) -> None:
        config = replace(config, **changed)
        rng = np.random.default_rng(7)
        made = [
            ms.Parameter(ms.Tensor(rng.normal(0, 0.3, shape).astype(np.float32)), name=name)
            for name, shape in SHAPES.items()
        ]
        self.optimizer = make_optimizer(ms.ParameterTuple(made), config, rank, world, folder)
        self.weights, self.rank, self.world, self.updates = made, rank, world, 0.0
        self.norms: list[float] = []
        self.update = ms.jit(_update(self.optimizer, config.max_grad_norm))

    def run(self, first: int = 0, end: int = STEPS) -> "Arm":
        for step in range(first, end):
            if self.world > 1:
                gradients = gradients_of(step, self.rank)
            else:
                gradients = [a + b for a, b in zip(gradients_of(step, 0), gradients_of(step, 1))]
            rate = 1e-2 / (1 + step)
            norm, finite, *left = self.update(
                *map(ms.Tensor, gradients), ms.Tensor(rate, ms.float32), ms.Tensor(self.updates, ms.float32)
            )
            if self.optimizer.on_host:
                self.optimizer.apply(left)
            self.norms.append(float(norm.asnumpy()))
            self.updates += float(finite.asnumpy())
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        return {p.name: p.asnumpy().copy() for p in self.weights} | self.optimizer.moments()

    def load(self, arrays: dict[str, np.ndarray], updates: float) -> "Arm":
        for parameter in self.weights:
            ops.assign(parameter, ms.Tensor(arrays[parameter.name]))
        self.optimizer.load({name: values for name, values in arrays.items() if name.startswith("moment")})
        self.updates = updates
        return self


def _update(optimizer, max_norm):
    def update(a, b, c, d, e, f, rate, updates):
        gradients = optimizer.reduced((a, b, c, d, e, f))
        norm = ops.sqrt(optimizer.square_sum(gradients))
        finite = ops.cast(ops.isfinite(norm), ms.float32)
        factor = max_norm / ops.maximum(norm, max_norm)
        return (norm, finite) + optimizer(gradients, factor, rate, updates, finite)

    return update


def differing(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Names whose arrays are not the same to the bit; both must have the same names in the same order."""
    assert list(one) == list(other)
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def furthest(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of any two weights (moments left out)."""
    return max(float(np.abs(one[n] - other[n]).max()) for n in one if not n.startswith("moment"))
