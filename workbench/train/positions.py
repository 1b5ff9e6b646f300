"""Which samples a step gets, when some of the data is skipped.

    for first, after, batch in batches_from(corpus, 16, position, steps, excluded=((320, 352),)): ...

Without exclusions step n gets the positions from n * batch_size on. After a rollback the suspected
positions are left out and each step gets the next ``batch_size`` that are not, in order: none twice,
none lost but those excluded. ``excluded`` are half-open ranges of positions, sorted, apart. A batch is
a function of (corpus, position, excluded), for any number of ranks.
"""

from typing import Iterator

import numpy as np

from workbench.data.pipeline import Corpus

Ranges = tuple[tuple[int, int], ...]


def merged(ranges: Ranges) -> Ranges:
    """The same positions as sorted ranges that neither overlap nor touch."""
    out: list[list[int]] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], stop)
        else:
            out.append([start, stop])
    return tuple((start, stop) for start, stop in out)


def next_positions(position: int, count: int, excluded: Ranges) -> np.ndarray:
    """int64 (count,): the first ``count`` positions from ``position`` on that no range excludes."""
    taken, left = [], count
    for start, stop in excluded:
        here = max(0, min(left, start - position))
        taken.append(np.arange(position, position + here))
        left -= here
        if position + here >= start:
            position = max(position + here, stop)
        else:
            position += here
    return np.concatenate((*taken, np.arange(position, position + left))).astype(np.int64)


def batches_from(
    corpus: Corpus, batch_size: int, position: int, steps: int, excluded: Ranges, rank: int = 0, ranks: int = 1
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """``steps`` times (position of the step's first sample, position after its last, this rank's rows of it)."""
    each = batch_size // ranks
    while steps:
        position = int(next_positions(position, 1, excluded)[0])
        ends = [start for start, _ in excluded if start > position]
        whole = min(steps, (ends[0] - position) // batch_size) if ends else steps
        for batch in corpus.batches(batch_size, position=position, steps=whole, rank=rank, ranks=ranks):
            yield position, position + batch_size, batch
            position += batch_size
        steps -= whole
        if steps and not whole:
            # The range begins inside of this step: its samples come from both sides.
            of_step = next_positions(position, batch_size, excluded)
            after = int(of_step[-1]) + 1
            yield position, after, corpus.samples(of_step[rank * each : (rank + 1) * each])
            position, steps = after, steps - 1
