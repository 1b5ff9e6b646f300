"""The training data as one object: sources, their mixture, and batches from any position on.

    corpus = open_corpus(config, tokenizer, folder)
    for batch in corpus.batches(batch_size=16, position=0, steps=600): ...

The data position is one integer, the samples consumed so far over all ranks. A batch is a pure
function of (corpus, seed, position), so resuming costs nothing, and any number of ranks sees
the same global order: rank r of n takes the r-th n-th of each global batch. ``state`` is what a
checkpoint keeps of it; ``resume`` gives the position back, or refuses where anything differs.

Tokens come from the prepared stores, or, with ``tokenise="dataset"``, are made again from the
clean text inside the ``mindspore.dataset`` pipeline; the batches are the same to the bit.

A batch is made whole, in the thread that asks for it. Going through ``mindspore.dataset`` costs
more than it saves here: 11 to 12 million positions a second against 19 to 31 (sequence 256, 32 rows,
three rounds in one process, 2 cores, 2026-11-30), since both threads want the interpreter. It is
there for the dataset's own tokenising and for pipelines that need one.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from workbench.config import DataConfig, fingerprint
from workbench.data.fingerprints import names_of, order_fingerprint, require_same, token_fingerprints
from workbench.data.layout import layout_name, open_layout
from workbench.data.mixture import Mixture, Source
from workbench.data.prepare import Preparation, Watch, open_prepared, prepare
from workbench.data.retokenise import Retokeniser
from workbench.data.sources import SampleSource, as_batch
from workbench.data.tokenizing import padding_id, spec_of
from workbench.errors import DataError, SettingError

_AHEAD = 4096  # positions located at once


@dataclass(frozen=True)
class Corpus:
    """Prepared sources cut to one sequence length, and the order in which they are drawn."""

    config: DataConfig
    preparation: Preparation
    sources: dict[str, SampleSource]  # base, tasks, perturbed (those that have samples)
    validation: SampleSource
    mixture: Mixture
    tokenizer: Any

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """The parts of ``fingerprint``: data, tokenizer, cleaning, settings, order."""
        return {**self.preparation.fingerprints, "order": order_fingerprint(self.config)}

    @cached_property
    def fingerprint(self) -> str:
        """Names everything that decides which sample comes at which position."""
        return fingerprint(self.fingerprints)

    def state(self, position: int) -> dict[str, Any]:
        """What a checkpoint keeps of the data, JSON-ready."""
        return {"position": position, "epoch": position // self.mixture.epoch_length, "fingerprints": self.fingerprints}

    def resume(self, state: dict[str, Any]) -> int:
        """The position of a ``state``, to go on from with any number of ranks and workers.

        Raises DataError, naming both fingerprints of each part, where this corpus would give other
        samples than the one that ``state`` was saved with.
        """
        require_same(state["fingerprints"], self.fingerprints, f"the data at position {state['position']}")
        return int(state["position"])

    def samples(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """The samples at ``positions`` (B,), see ``sources.as_batch`` for names and shapes.

        ``sample_ids`` number the rows of all sources one after the other.
        """
        _, source, row = self.mixture.locate(positions)
        return as_batch(*self._block(source, row, None))

    def origin(self, position: int) -> list[dict[str, Any]]:
        """Where the sample at ``position`` comes from: for each window its source, document record and token range."""
        _, source, row = self.mixture.locate(np.asarray([position]))
        drawn = self.sources[self.mixture.sources[int(source[0])].name]
        return [
            {"store": drawn.name, "tokens": (start, stop), **drawn.store.record(document)}
            for document, start, stop, _ in drawn.pieces(int(row[0]))
        ]

    def batches(
        self,
        batch_size: int,
        *,
        position: int = 0,
        steps: int,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
        tokenise: str = "store",
    ) -> Iterator[dict[str, np.ndarray]]:
        """``steps`` batches from ``position`` on.

        ``batch_size`` counts samples over all ranks; each batch holds this rank's
        ``batch_size / ranks``. ``tokenise`` is ``store`` or ``dataset``. Batches are made here, in
        the thread that asks for them, or, with ``workers`` of one or more and where the dataset
        tokenises, in so many threads of a ``mindspore.dataset`` pipeline. None of this changes what
        comes out. Raises SettingError for what cannot be.
        """
        if batch_size % ranks:
            raise SettingError(f"batch_size={batch_size} is not a multiple of the {ranks} ranks")
        if tokenise not in ("store", "dataset"):
            raise SettingError(f"tokenise={tokenise!r} is not allowed: store or dataset")
        again = Retokeniser(spec_of(self.tokenizer)) if tokenise == "dataset" else None
        rows = _Rows(self, batch_size, position, steps, rank, ranks, again)
        if not workers and again is None:
            for step in range(steps):
                yield as_batch(*rows[step])
            return
        import mindspore.dataset as ds

        pipeline = ds.GeneratorDataset(
            rows,
            ["block", "sample_ids"],
            shuffle=False,
            num_parallel_workers=max(1, workers),
            python_multiprocessing=False,
        )
        # Two columns, not eight: each costs mindspore.dataset some fifty microseconds a batch.
        for columns in pipeline.create_tuple_iterator(output_numpy=True, num_epochs=1):
            yield as_batch(*columns)

    def ledger(self) -> dict[str, Any]:
        """Every count of the corpus, JSON-ready: documents, tokens, slots, shares, fingerprints."""
        p = self.preparation
        sources = {**self.sources, "validation": self.validation}
        return {
            "fingerprint": self.fingerprint,
            "fingerprints": self.fingerprints,
            "documents": {
                "read": p.documents_read,
                "rejected": p.rejected,
                "dropped": p.dropped,
                "in both base and validation": p.split,
                "stores": p.documents,
                "instructions": p.instructions,
                "perturbations": p.perturbations,
            },
            "characters": {"raw": p.characters_raw, "clean": p.characters_clean, "changes": p.cleaning_changes},
            "task_ids": p.task_ids,
            "sequence_length": self.config.sequence_length,
            "overlap": self.config.overlap,
            "tokens": {name: source.ledger.as_dict() for name, source in sources.items()},
            "mixture": self.mixture.shares(),
        }

    def _block(self, source: np.ndarray, row: np.ndarray, again: Retokeniser | None) -> tuple[np.ndarray, np.ndarray]:
        """The block (7, B, S) and the sample numbers (B,) of rows ``row`` of sources ``source``."""
        ids = self._first[source] + row
        present = set(source.tolist())
        parts = []
        for s in sorted(present):
            here = source == s
            drawn = self.sources[self.mixture.sources[s].name]
            rows = row[here] if len(present) > 1 else row
            parts.append((here, drawn.block(rows) if again is None else again.block(drawn, rows)))
        if len(parts) == 1:
            return parts[0][1], ids
        out = np.empty((7, len(row), self.config.sequence_length), np.int32)
        for here, part in parts:
            out[:, here] = part
        return out, ids

    @cached_property
    def _first(self) -> np.ndarray:
        """The number of the first sample of each source."""
        return np.cumsum([0, *(drawn.samples for drawn in self.mixture.sources)])


class _Rows:
    """The batches of one rank by number, as a random-access source; positions are located many at a time."""

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        position: int,
        steps: int,
        rank: int,
        ranks: int,
        again: Retokeniser | None,
    ) -> None:
        self.corpus, self.steps, self.again = corpus, steps, again
        self.batch_size, self.each = batch_size, batch_size // ranks
        self.first = position + rank * self.each
        self.together = max(1, _AHEAD // self.each)  # steps
        self.located: tuple[int, np.ndarray, np.ndarray] = (-1, np.empty(0), np.empty(0))

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        group, within = divmod(int(step), self.together)
        kept, source, row = self.located
        if kept != group:
            steps = np.arange(group * self.together, min(self.steps, (group + 1) * self.together))
            positions = (self.first + steps[:, None] * self.batch_size + np.arange(self.each)).ravel()
            _, source, row = self.corpus.mixture.locate(positions)
            self.located = (group, source, row)
        part = slice(within * self.each, (within + 1) * self.each)
        return self.corpus._block(source[part], row[part], self.again)


def open_corpus(
    config: DataConfig,
    tokenizer,
    folder: Path,
    num_tasks: int = 16,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Corpus:
    """The corpus of ``config``, prepared under ``folder`` (one sub-folder a fingerprint) or taken from there.

    Where ``config.data`` is itself a prepared folder, that is opened and must have been made with
    the same tokenizer and settings; its own tasks are used. Raises DataError where that is not so
    and where no sample can be made of the base documents.
    """
    if isinstance(config.data, str) and (done := open_prepared(config.data)):
        place = Path(config.data).expanduser()
        stores, preparation = done
        saved = preparation.fingerprints
        now = token_fingerprints(config, tokenizer, None)
        require_same(saved, {**now, "data": saved["data"]}, f"the prepared corpus {place}")
    else:
        marks = token_fingerprints(config, tokenizer, folder / "digests.json")
        place = folder / fingerprint(marks)
        stores, preparation = prepare(config, tokenizer, place, num_tasks, workers=workers, watch=watch, marks=marks)
    return cut_corpus(config, tokenizer, place, stores, preparation)


def cut_corpus(config: DataConfig, tokenizer, place: Path, stores: dict, preparation: Preparation) -> Corpus:
    """A corpus of prepared ``stores``, whose layouts are kept in ``place``."""
    how = (config.sequence_length, config.overlap, config.overlap_loss)
    padding = padding_id(tokenizer)
    cut = {
        name: SampleSource(name, store, open_layout(place / "layouts" / layout_name(*how) / name, store, *how), padding)
        for name, store in stores.items()
    }
    if not len(cut["base"]):
        raise DataError(
            f"data={names_of(config.data)}: all of its text went to validation, nothing is left to train on"
        )
    shares = {"base": config.base_share, "tasks": config.task_share, "perturbed": config.perturbed_share}
    sources = [Source(n, len(cut[n]), s, _tokens(cut[n]), preparation.contents[n]) for n, s in shares.items()]
    mixture = Mixture.without_empty(
        sources, config.seed, unit=config.mixture_unit, stopping_strategy=config.stopping_strategy
    )
    drawn = {s.name: cut[s.name] for s in mixture.sources}
    return Corpus(config, preparation, drawn, cut["validation"], mixture, tokenizer)


def _tokens(source: SampleSource) -> int:
    """Tokens that the rows of ``source`` hold."""
    return source.ledger.slots - source.ledger.slots_padding
