"""Ascend's own means of sharding and offload. NOT RUN ON ASCEND: nothing in the package calls this file.

    network = sharded_by_the_engine(network)          in place of optimizer_sharding="zero1"
    moments = kept_on_the_host(parameters, "moment1") in place of optimizer_offload="host"
    loader = pinned_loader(batches)                   in place of the article's ``dataset.to_device()``

What is checked on the CPU is that MindSpore 2.10 has these names, takes these arguments and holds
them; the CPU ignores all three (its AutoParallel refuses to run, host parameters and pinning have no
effect). The article has ``AdamWeightDecay(offload_param=True)`` and ``to_device()`` here, which do not
exist, and calls the first ZeRO-1, which is sharding.
"""

from typing import Iterable

import mindspore as ms
from mindspore import nn
from mindspore.common.initializer import initializer
from mindspore.dataset.dataloader import DataLoader, Dataset
from mindspore.parallel.auto_parallel import AutoParallel


def sharded_by_the_engine(network: nn.Cell, shard_size: int = -1, threshold_kb: int = 64) -> AutoParallel:
    """The whole training step as a Cell whose moments (and weights) the engine spreads over the data-parallel ranks.

    ``shard_size`` ranks share one copy, -1 for all; parameters below ``threshold_kb`` KB stay whole.
    ``level1`` is the least that the engine offers: ZeRO-1 and the weights besides. Join the ranks first.
    """
    sharded = AutoParallel(network, parallel_mode="semi_auto")
    sharded.hsdp(shard_size=shard_size, threshold=threshold_kb, optimizer_level="level1")
    return sharded


def kept_on_the_host(parameters: Iterable[ms.Parameter], kind: str) -> ms.ParameterTuple:
    """Moments of zero, named ``kind.NAME``, which the engine keeps on the host and loads when a kernel needs them.

    Without effect after ``mindspore.runtime.set_memory(optimize_level="O1")``, says its documentation.
    """
    made = []
    for parameter in parameters:
        zeros = initializer("zeros", parameter.shape, ms.float32)
        made.append(ms.Parameter(zeros, name=f"{kind}.{parameter.name}", requires_grad=False, device="CPU"))
    return ms.ParameterTuple(made)


def pinned_loader(batches: Dataset) -> DataLoader:
    """An iterator over ready batches in page-locked memory, from which a copy to the device need not be waited for."""
    return DataLoader(batches, batch_size=None, pin_memory=True)
