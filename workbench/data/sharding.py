"""What each rank gets to see: coverage, duplicates, domains and loss, for good and bad ways of sharing out.

    one permutation   every rank takes its part of the same shuffled order (what this workbench does)
    seed plus rank    every rank shuffles with a seed of its own and takes its part of that
    contiguous        every rank takes one stretch of the files, as line ranges of a text file do

What is shared out are windows, in the order of the files. The loss is that of a unigram model of the corpus, in nats a token: it needs no training, and it
differs between ranks exactly where the texts they get differ. It is not the loss of a trained
model; how far apart ranks are is what is to be seen.

Shapes: P windows, K domains, R ranks.
"""

from dataclasses import dataclass

import numpy as np

from workbench.data.order import key_of, permute
from workbench.data.pipeline import Corpus
from workbench.data.sources import SampleSource

WAYS = ("one permutation", "seed plus rank", "contiguous")


@dataclass(frozen=True)
class RankBalance:
    """What R ranks see in one epoch of N samples; ``domain_share`` (R, K) sums to 1 a rank, ``loss`` (R,) nats."""

    way: str
    coverage: float  # share of the samples that some rank sees
    duplicates: int  # samples seen more often than once, counted as often as too often
    domain_share: np.ndarray
    loss: np.ndarray

    @property
    def ranks(self) -> int:
        return len(self.loss)

    @property
    def domain_spread(self) -> float:
        """The largest difference between two ranks in the share of one domain."""
        return float(np.ptp(self.domain_share, axis=0).max())

    @property
    def loss_spread(self) -> float:
        """The difference between the ranks with the highest and the lowest loss, nats a token."""
        return float(np.ptp(self.loss))


def share_out(samples: int, ranks: int, way: str, seed: int) -> list[np.ndarray]:
    """The samples (0 to ``samples`` - 1, in the order of the files) that each rank gets in an epoch."""
    each = samples // ranks
    places = [np.arange(rank * each, (rank + 1) * each) for rank in range(ranks)]
    if way == "contiguous":
        return places
    keys = {"one permutation": [key_of(seed)] * ranks, "seed plus rank": [key_of(seed + r) for r in range(ranks)]}[way]
    return [permute(place, samples, key) for place, key in zip(places, keys)]


def balance_of_windows(source: SampleSource, domains: int, ranks: int, way: str, seed: int) -> RankBalance:
    """``RankBalance`` of the windows of ``source``, in the order of the files, shared out in one of ``WAYS``."""
    layout = source.layout
    order = np.argsort(layout.begin, kind="stable")
    domain = source.store.domains[layout.document[order]]
    tokens = layout.length[order].astype(np.float64)
    parts = share_out(len(order), ranks, way, seed)
    nats = _window_nats(source)[order]
    shares = np.stack([np.bincount(domain[p], tokens[p], minlength=domains) / tokens[p].sum() for p in parts])
    losses = np.array([nats[p].sum() / tokens[p].sum() for p in parts])
    return RankBalance(way, *_coverage(len(order), parts), shares, losses)


def balance_of_batches(corpus: Corpus, ranks: int, batch_size: int) -> RankBalance:
    """``RankBalance`` of the batches of one epoch of ``corpus``, base samples only, as ranks really get them."""
    source, layout = corpus.sources["base"], corpus.sources["base"].layout
    steps = max(1, corpus.mixture.epoch_length // batch_size)
    _, drawn, row = corpus.mixture.locate(np.arange(steps * batch_size))
    shape = (steps, ranks, batch_size // ranks)
    parts = [row.reshape(shape)[:, r][drawn.reshape(shape)[:, r] == 0] for r in range(ranks)]
    # A row is a mixture of documents: what it holds of each domain, in tokens.
    domains = len(corpus.preparation.domains)
    row_of = np.repeat(np.arange(len(layout)), np.diff(layout.rows))
    tokens = np.zeros((len(layout), domains))
    np.add.at(tokens, (row_of, source.store.domains[layout.document]), layout.length)
    nats = np.bincount(row_of, _window_nats(source), minlength=len(layout))
    shares = np.stack([tokens[p].sum(0) / tokens[p].sum() for p in parts])
    losses = np.array([nats[p].sum() / tokens[p].sum() for p in parts])
    return RankBalance("the batches", *_coverage(len(layout), parts), shares, losses)


def _coverage(samples: int, parts: list[np.ndarray]) -> tuple[float, int]:
    seen = np.bincount(np.concatenate(parts), minlength=samples)
    return float((seen > 0).mean()), int((seen - 1).clip(0).sum())


def _window_nats(source: SampleSource) -> np.ndarray:
    """(P,) what the targets of each window cost under the unigram model of the whole source, in nats."""
    tokens = np.asarray(source.store.tokens)
    counts = np.bincount(tokens)
    before = np.concatenate([[0.0], np.cumsum(-np.log(counts[tokens] / len(tokens)))])
    first = source.layout.begin + 1
    return before[first + source.layout.length] - before[first]
