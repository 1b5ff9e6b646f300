"""AdamW with bias correction through MindSpore's fused kernel.

The kernel ``AdamWeightDecay`` updates parameter and both moments in one pass but lacks bias
correction. Decoupled AdamW (Loshchilov and Hutter 2019, algorithm 2) with correction

    p -= lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd * p)

is the kernel's  p -= lr_t * (m / (sqrt(v) + eps_t) + wd_t * p)  with

    lr_t = lr * sqrt(1 - b2^t) / (1 - b1^t)    eps_t = eps * sqrt(1 - b2^t)    wd_t = wd * lr / lr_t

so the exact optimizer costs no more than the kernel. Weight decay is for matrices only; norms
and the task embedding (rows of rare tasks would fade) have none.

Every optimizer of this package offers what ``AdamW`` does: ``reduced``, ``square_sum`` and a call,
all three inside the compiled step; ``moments``, ``load`` and ``resident_bytes`` outside of it. The
call returns what is left to do outside, () if it has done all; the other case is ``on_host`` and the
step hands it to ``apply`` (``offload.py``).
"""

from typing import Mapping

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import TrainConfig
from workbench.model.weights import set_weights
from workbench.train.reducing import Reducer


def decays(name: str, ndim: int) -> bool:
    """Whether weight decay applies to the parameter: matrices, but not the task embedding."""
    return ndim >= 2 and not name.startswith("task_embedding")


def sum_of_squares(arrays):
    """() sum of the squares of all elements of all ``arrays``."""
    total = 0.0
    for array in arrays:
        # Rows first: the kernel that reduces everything at once takes four times as long.
        total = total + ops.ReduceSum()(ops.ReduceSum()(ops.square(array), -1))
    return total


class Kernel(nn.Cell):
    """One fused AdamW update of a weight and its moments, all of one shape; or, with ``apply`` 0, none at all."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.beta1, self.beta2, self.epsilon = config.adam_beta1, config.adam_beta2, config.adam_epsilon
        self.adam = ops.AdamWeightDecay()

    def numbers(self, learning_rate, updates, apply):
        """What all parameters of a step share: () tensors, ``updates`` done before, ``apply`` 1.0 or 0.0."""
        t = updates + 1.0
        correction1, correction2 = 1.0 - ops.pow(self.beta1, t), ops.sqrt(1.0 - ops.pow(self.beta2, t))
        # Skipping without a branch (a branch and recompute together do not compile): with betas
        # of 1, a rate of 0 and gradients of 0 the kernel writes back what it read.
        kept1, kept2 = self.beta1 * apply + (1.0 - apply), self.beta2 * apply + (1.0 - apply)
        rate = learning_rate * apply * correction2 / correction1
        return rate, kept1, kept2, self.epsilon * correction2, correction1 / correction2, apply < 0.5

    def construct(self, weight, moment1, moment2, gradient, factor, decay, numbers):
        """``gradient`` is multiplied by ``factor`` () first; ``decay`` a float."""
        rate, kept1, kept2, epsilon, per_rate, skip = numbers
        gradient = ops.masked_fill(gradient * factor, skip, 0.0)
        return self.adam(weight, moment1, moment2, rate, kept1, kept2, epsilon, decay * per_rate, gradient)


class Replicated(nn.Cell):
    """What optimizers have in common in which every rank updates all ``weights``."""

    on_host = False

    def __init__(self, parameters: ms.ParameterTuple, config: TrainConfig, ranks: int = 1) -> None:
        super().__init__()
        self.weights = parameters
        self.decay = tuple(config.weight_decay if decays(p.name, p.ndim) else 0.0 for p in parameters)
        self.kernel, self.several = Kernel(config), ranks > 1
        if self.several:
            self.reducer = Reducer(parameters, config)

    def reduced(self, gradients):
        """The gradients summed over the ranks, in the order of the parameters."""
        return self.reducer(gradients) if self.several else gradients

    def square_sum(self, gradients):
        """() sum of the squares of all ``reduced`` gradients, the same on every rank."""
        return sum_of_squares(gradients)


class AdamW(Replicated):
    """The plain optimizer: every rank holds and updates everything."""

    def __init__(self, parameters: ms.ParameterTuple, config: TrainConfig, ranks: int = 1) -> None:
        super().__init__(parameters, config, ranks)
        self.moment1 = parameters.clone("moment1", init="zeros")
        self.moment2 = parameters.clone("moment2", init="zeros")

    def construct(self, gradients, factor, learning_rate, updates, apply):
        """Update in place from ``reduced`` gradients times ``factor``, where ``apply`` is 1.0; () tensors."""
        numbers = self.kernel.numbers(learning_rate, updates, apply)
        for i in range(len(gradients)):
            self.kernel(self.weights[i], self.moment1[i], self.moment2[i], gradients[i], factor, self.decay[i], numbers)
        return ()

    def moments(self) -> dict[str, np.ndarray]:
        """Both moments, whole, as ``moment1.NAME`` and ``moment2.NAME``; copies on the host."""
        return {p.name: p.asnumpy().copy() for p in (*self.moment1, *self.moment2)}

    def load(self, moments: Mapping[str, np.ndarray]) -> None:
        """Take over the moments of another state. Raises DataError for names or shapes that differ."""
        set_weights((*self.moment1, *self.moment2), moments)

    def resident_bytes(self) -> dict[str, int]:
        """Bytes of moments by where they are kept: ``device``, ``host``, ``disk``."""
        return {"device": sum(p.size * 4 for p in (*self.moment1, *self.moment2)), "host": 0, "disk": 0}
