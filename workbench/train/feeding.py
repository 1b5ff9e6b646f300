"""The batches that training gets: excluded data left out, dropout drawn, made ahead in a thread.

with closing(fed(corpus, config, position, steps, excluded)) as batches:
    first, after, batch = next(batches)
"""

from typing import Callable, Iterator

import numpy as np

from workbench.config import RunConfig
from workbench.data.pipeline import Corpus
from workbench.train.dropping import drop
from workbench.train.positions import Ranges, batches_from
from workbench.train.prefetching import prefetched

Batch = dict[str, np.ndarray]
Drill = Callable[[int, Batch], Batch]


def fed(
    corpus: Corpus,
    config: RunConfig,
    position: int,
    steps: int,
    excluded: Ranges = (),
    place: tuple[int, int] = (0, 1),
    drill: Drill | None = None,
) -> Iterator[tuple[int, int, Batch]]:
    """``steps`` times (position of the first sample, position after the last, the batch of rank ``place[0]``).

    ``place``: (rank, number of ranks). ``drill`` is a function from (position of the first sample, batch) to
    the batch that is trained on in its place, to try what a run does about a fault. Close it when not
    all is taken, or the thread stays.
    """
    (rank, world), train = place, config.train
    own = rank * (train.batch_size // world)
    made = batches_from(corpus, train.batch_size, position, steps, excluded, rank, world)

    def ready(first: int, after: int, batch: Batch) -> tuple[int, int, Batch]:
        batch = drop(batch, config.model, train.seed, first, own)
        return first, after, batch if drill is None else drill(first, batch)

    return prefetched(ready(*one) for one in made)
