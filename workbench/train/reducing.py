"""Gradients summed over the ranks, a bucket at a time."""

import mindspore as ms
from mindspore import nn, ops

from workbench.config import TrainConfig


class Reducer(nn.Cell):
    """Sums gradients, given in the order of ``parameters``, over all ranks. Needs a joined cluster (``device.py``)."""

    def __init__(self, parameters: ms.ParameterTuple, config: TrainConfig) -> None:
        super().__init__()
        self.all_reduce = ops.AllReduce()

    def construct(self, gradients):
        summed = ()
        for gradient in gradients:
            summed += (self.all_reduce(gradient),)
        return summed
