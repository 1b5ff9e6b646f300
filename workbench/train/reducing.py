"""Gradients summed over the ranks, a bucket at a time.

    plan = plan_of(parameters, config)     which gradients travel together
    print(bucket_table(plan))
    Reducer(parameters, config)            the same inside the compiled step

A collective costs a fixed time and one that grows with its bytes; many small gradients pay mostly
the first. ``bucket_by`` chooses:

    bytes        in the order in which the backward pass makes them (the last parameter first), as
                 many as fit into ``bucket_mb``; a larger parameter has a bucket of its own
    size_groups  by elements, as the article does: each parameter with those of the smallest group
                 that holds it; the article drops what is larger than the last, here they are one more
    parameter    one by one

Costs a copy of each bucket of two or more gradients on the way in and another on the way out. Asks
for no overlap with the backward pass; what one could give is simulated in ``timeline.py``.
"""

from typing import Sequence

import mindspore as ms
from mindspore import nn, ops

from workbench.config import TrainConfig
from workbench.device import check_joined
from workbench.train.buckets import Bucket, plan_for


def plan_of(parameters: Sequence[ms.Parameter], config: TrainConfig) -> tuple[Bucket, ...]:
    """The buckets of ``config`` for float32 gradients of ``parameters``."""
    return plan_for([(p.name, p.size) for p in parameters], config)


def bucket_table(plan: Sequence[Bucket]) -> str:
    """The plan as text, a line a bucket and one for the sum."""
    rows = [(str(i), b) for i, b in enumerate(plan, 1)]
    lines = ["bucket  parameters     elements          bytes"]
    for i, b in rows:
        names = b.names[0] if len(b.names) == 1 else f"{b.names[0]} … {b.names[-1]}"
        lines.append(f"{i:>6}  {len(b.names):>10}  {b.elements:>11,}  {b.bytes:>13,}  {names}")
    count, elements, size = (sum(x) for x in zip(*((len(b.names), b.elements, b.bytes) for b in plan)))
    return "\n".join([*lines, f"   all  {count:>10}  {elements:>11,}  {size:>13,}"])


class Reducer(nn.Cell):
    """Sums gradients, given in the order of ``parameters``, over all ranks, which must have joined (``device.py``)."""

    def __init__(self, parameters: ms.ParameterTuple, config: TrainConfig) -> None:
        super().__init__()
        check_joined()
        self.plan = plan_of(parameters, config)
        self.groups = tuple(b.indices for b in self.plan)
        # Where each gradient is found again: in the results of all buckets, one after the other.
        order = [i for b in self.plan for i in b.indices]
        self.places = tuple(order.index(i) for i in range(len(order)))
        self.all_reduce = ops.AllReduce()

    def construct(self, gradients):
        found = ()
        for group in self.groups:
            if len(group) == 1:
                found += (self.all_reduce(gradients[group[0]]),)
            else:
                found += self.together([gradients[i] for i in group])
        return tuple([found[place] for place in self.places])

    def together(self, gradients):
        summed = self.all_reduce(ops.concat([ops.reshape(g, (-1,)) for g in gradients]))
        parts, start = (), 0
        for g in gradients:
            parts += (ops.reshape(summed[start : start + g.size], g.shape),)
            start += g.size
        return parts
