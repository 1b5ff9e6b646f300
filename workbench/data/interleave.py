"""Several sources drawn from evenly, position by position, without a table.

Of q draws of a source in an epoch, the j-th sits at time (j + 1/2)/q; draws of all sources come in
the order of their times (the first source first where they are equal). So the share of every
stretch is as close to the target as whole samples allow, without any random numbers, and the
draw at a position is computed: for each source only a few j can have that rank, and the rank of
one draw is a sum of exact integer divisions.

Costs O(sources squared) a position, whatever the position and the length of the epoch. Exact
while 4 * q * q stays below 2**63 (q up to a billion and a half).
"""

from typing import Sequence

import numpy as np

_FEW = 4  # positions up to which plain integers are quicker than arrays


def draw_at(positions: np.ndarray, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(source, draw) int64 at each of ``positions`` (n,), 0 to sum(counts) - 1, of an epoch."""
    if len(positions) <= _FEW:
        pairs = [draw_at_one(int(p), counts) for p in positions]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]
    source, draw = np.full(len(positions), -1, np.int64), np.zeros(len(positions), np.int64)
    total = sum(counts)
    for s, count in enumerate(counts):
        if not count:
            continue
        near = ((2 * positions + 1) * count // total - 1) // 2  # the draw whose time is that of the position
        for step in range(-len(counts), len(counts) + 1):
            candidate = near + step
            inside = (candidate >= 0) & (candidate < count)
            found = inside & (_rank(candidate, s, counts) == positions)
            source[found], draw[found] = s, candidate[found]
    return source, draw


def draw_at_one(position: int, counts: Sequence[int]) -> tuple[int, int]:
    """``draw_at`` of one position, in plain integers."""
    total = sum(counts)
    for s, count in enumerate(counts):
        if not count:
            continue
        near = ((2 * position + 1) * count // total - 1) // 2
        for candidate in range(max(0, near - len(counts)), min(count, near + len(counts) + 1)):
            if _rank(candidate, s, counts) == position:
                return s, candidate
    raise AssertionError(f"no draw at position {position} of {list(counts)}")


def _rank(draw, source: int, counts: Sequence[int]):
    """How many draws come before draw ``draw`` of ``source``; for an integer or an array of them."""
    rank = draw
    for other, count in enumerate(counts):
        if other == source or not count:
            continue
        # Draws i of the other source with (2i + 1) / count < (2 draw + 1) / counts[source], or <=.
        x = (2 * draw + 1) * count
        last_odd = x // counts[source] if other < source else (x - 1) // counts[source]
        rank = rank + (last_odd + 1) // 2
    return rank
