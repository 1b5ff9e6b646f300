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

from dataclasses import dataclass
from typing import Sequence

import mindspore as ms
from mindspore import nn, ops

from workbench.config import TrainConfig
from workbench.device import check_joined

MIB = 2**20


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients are one collective: ``indices`` are their places in the order of all parameters."""

    names: tuple[str, ...]
    indices: tuple[int, ...]
    elements: int
    bytes: int


def plan_buckets(
    sizes: Sequence[tuple[str, int]],
    bucket_by: str,
    bucket_bytes: float,
    size_groups: Sequence[int],
    itemsize: int = 4,
) -> tuple[Bucket, ...]:
    """The buckets for parameters of ``sizes`` (name, elements), each parameter in exactly one.

    ``bucket_bytes`` is the limit of ``bucket_by="bytes"``, ``size_groups`` the element counts of
    ``"size_groups"``; ``itemsize`` bytes an element.
    """
    groups: list[list[int]] = []
    backwards = range(len(sizes) - 1, -1, -1)
    if bucket_by == "size_groups":
        bounds = (*size_groups, float("inf"))
        for low, high in zip((-1, *size_groups), bounds):
            groups.append([i for i in backwards if low < sizes[i][1] <= high])
    elif bucket_by == "parameter":
        groups = [[i] for i in backwards]
    else:
        filled = float("inf")
        for i in backwards:
            size = sizes[i][1] * itemsize
            if filled + size > bucket_bytes:
                groups.append([])
                filled = 0
            groups[-1].append(i)
            filled += size
    made = []
    for group in filter(None, groups):
        elements = sum(sizes[i][1] for i in group)
        made.append(Bucket(tuple(sizes[i][0] for i in group), tuple(group), elements, elements * itemsize))
    return tuple(made)


def plan_of(parameters: Sequence[ms.Parameter], config: TrainConfig) -> tuple[Bucket, ...]:
    """The buckets of ``config`` for float32 gradients of ``parameters``."""
    sizes = [(p.name, p.size) for p in parameters]
    return plan_buckets(sizes, config.bucket_by, config.bucket_mb * MIB, config.bucket_size_groups)


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
