"""The training data as one object: sources, their mixture, and batches from any position on.

    corpus = open_corpus(config, tokenizer, folder)
    for batch in corpus.batches(batch_size=16, position=0, steps=600): ...

The data position is one integer, the samples consumed so far over all ranks. A batch is a pure
function of (corpus, seed, position), so resuming costs nothing, and any number of ranks sees
the same global order: rank r of n takes the r-th n-th of each global batch.

Batches are made whole inside one GeneratorDataset with one worker: collating single rows with
``.batch`` costs about 85 microseconds a row, and more workers are slower here (measured on two
cores), because each row then crosses a process or fights for the interpreter lock.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Iterator

import numpy as np

from workbench.config import DataConfig, fingerprint
from workbench.data.mixture import Mixture, Source
from workbench.data.prepare import Preparation, prepare
from workbench.data.store import SampleSource
from workbench.data.tokenizing import padding_id
from workbench.errors import DataError, SettingError

COLUMNS = (
    "input_ids",
    "labels",
    "segment_ids",
    "position_ids",
    "task_ids",
    "instruction_labels",
    "fact_targets",
    "sample_ids",
)


@dataclass(frozen=True)
class Corpus:
    """Prepared sources cut to one sequence length, and the order in which they are drawn."""

    config: DataConfig
    preparation: Preparation
    sources: dict[str, SampleSource]  # base, tasks, perturbed (those that have samples)
    validation: SampleSource
    mixture: Mixture

    @cached_property
    def fingerprint(self) -> str:
        """Names everything that decides which sample comes at which position."""
        c = self.config
        shares = (c.sequence_length, c.overlap, c.base_share, c.task_share, c.perturbed_share, c.seed)
        return fingerprint(self.preparation.fingerprint, shares)

    def samples(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """The samples at ``positions`` (B,), see ``SampleSource.batch`` for names and shapes.

        ``sample_ids`` number the rows of all sources one after the other.
        """
        _, source, row = self.mixture.locate(positions)
        names = [s.name for s in self.mixture.sources]
        first = np.concatenate([[0], np.cumsum([s.samples for s in self.mixture.sources])])
        parts, where = [], []
        for s in np.unique(source).tolist():
            here = np.flatnonzero(source == s)
            parts.append(self.sources[names[s]].batch(row[here], first[s] + row[here]))
            where.append(here)
        back = np.argsort(np.concatenate(where))
        return {name: np.concatenate([p[name] for p in parts])[back] for name in COLUMNS}

    def batches(
        self, batch_size: int, *, position: int = 0, steps: int, rank: int = 0, ranks: int = 1
    ) -> Iterator[dict[str, np.ndarray]]:
        """``steps`` batches from ``position`` on, through ``mindspore.dataset``.

        ``batch_size`` counts samples over all ranks; each batch holds this rank's
        ``batch_size / ranks``. Raises SettingError where that is not whole.
        """
        import mindspore.dataset as ds

        if batch_size % ranks:
            raise SettingError(f"batch_size={batch_size} is not a multiple of the {ranks} ranks")
        each = batch_size // ranks

        def rows() -> Iterator[tuple[np.ndarray, ...]]:
            for step in range(steps):
                start = position + step * batch_size + rank * each
                batch = self.samples(np.arange(start, start + each))
                yield tuple(batch[name] for name in COLUMNS)

        pipeline = ds.GeneratorDataset(
            rows, list(COLUMNS), shuffle=False, num_parallel_workers=1, python_multiprocessing=False
        )
        yield from pipeline.create_dict_iterator(output_numpy=True, num_epochs=1)


def open_corpus(config: DataConfig, tokenizer, folder: Path, num_tasks: int = 16) -> Corpus:
    """Prepare (or reuse) the stores under ``folder``, cut them, check every ledger, fix the order.

    Raises DataError where no sample can be made of the base documents.
    """
    stores, preparation = prepare(config, tokenizer, folder, num_tasks)
    padding = padding_id(tokenizer)
    cut = {
        name: SampleSource.cut(name, store, config.sequence_length, config.overlap, padding)
        for name, store in stores.items()
    }
    for source in cut.values():
        source.ledger  # raises where a token is unaccounted for
    if not len(cut["base"]):
        raise DataError(f"data={config.data!r}: all of its text went to validation, nothing is left to train on")
    shares = {"base": config.base_share, "tasks": config.task_share, "perturbed": config.perturbed_share}
    mixture = Mixture.without_empty([Source(n, len(cut[n]), s) for n, s in shares.items()], config.seed)
    drawn = {s.name: cut[s.name] for s in mixture.sources}
    return Corpus(config, preparation, drawn, cut["validation"], mixture)
