"""Ranks that wait for each other, and make sure that they mean the same.

    meet(world)                 nobody goes on before everybody is here
    agree(step, world, "...")   and everybody has the same number

One small AllReduce each; with one rank nothing. Every rank has to call it.
"""

import mindspore as ms
from mindspore import ops

from workbench.errors import DataError


def meet(world: int) -> None:
    """Return when all ranks have called it."""
    if world > 1:
        ops.AllReduce()(ms.Tensor([1.0], ms.float32)).asnumpy()


def agree(number: int, world: int, what: str) -> None:
    """Raise DataError, on one rank at least, where not all have the same ``number`` (whole, below 2^24 / ``world``)."""
    if world > 1:
        total = float(ops.AllReduce()(ms.Tensor([number], ms.float32)).asnumpy()[0])
        if total != number * world:
            raise DataError(f"the ranks do not agree on {what}: this one has {number}; do they share one file system?")
