"""Which gradients travel together: a plan from names and sizes alone, for ``reducing.py`` and the memory budget.

    plan_for([("embed.weight", 131072), ...], config)      the buckets of the settings

Costs a pass over the sizes and no MindSpore. What each way of bucketing means stands in ``reducing.py``.
"""

from dataclasses import dataclass
from typing import Sequence

from workbench.config import TrainConfig

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


def plan_for(sizes: Sequence[tuple[str, int]], config: TrainConfig) -> tuple[Bucket, ...]:
    """The buckets of ``config`` for float32 gradients of ``sizes`` (name, elements)."""
    return plan_buckets(sizes, config.bucket_by, config.bucket_mb * MIB, config.bucket_size_groups)
