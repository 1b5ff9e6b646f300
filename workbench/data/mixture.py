"""Exact shares of several sources, and which source each position of an epoch draws from.

An epoch is one pass over the base source: every base sample exactly once, and as many draws
from the other sources as their shares ask for. A source with fewer samples than its quota is
repeated (freshly shuffled each time round), one with more goes on in the next epoch where it
stopped; both are told by ``Mixture.tree``.

Quotas are whole samples by the largest-remainder method (Hamilton's), so they always sum to the
total and none is off by one or more. Sources are spread evenly: the j-th of q draws of a source
sits at (j + 1/2)/q of the epoch, which keeps the share of every stretch of 1,000 samples within
1 % of the target without any random numbers.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Sequence

import numpy as np

from workbench.data.order import key_of, permute
from workbench.errors import SettingError


def quotas(total: int, shares: Sequence[float]) -> list[int]:
    """Split ``total`` samples by ``shares`` (any non-negative numbers) by the largest remainder."""
    if total < 0 or not shares or min(shares) < 0 or sum(shares) <= 0:
        raise SettingError(f"shares {list(shares)} of {total} samples: shares must be 0 or more and not all 0")
    # Exact fractions: in floating point 0.7 * 10 is not 7, and a floor would lose a sample.
    parts = [Fraction(share).limit_denominator(10**9) for share in shares]
    exact = [total * part / sum(parts) for part in parts]
    seats = [int(e) for e in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: exact[i] - seats[i], reverse=True)
    for source in by_remainder[: total - sum(seats)]:
        seats[source] += 1
    return seats


def spread(counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Interleave sources evenly: (source (N,) int8, draw (N,) int64) for N = sum(counts)."""
    source = np.repeat(np.arange(len(counts), dtype=np.int8), counts)
    draw = np.concatenate([np.arange(c, dtype=np.int64) for c in counts])
    time = (draw + 0.5) / np.asarray(counts, dtype=np.float64)[source]
    order = np.argsort(time, kind="stable")
    return source[order], draw[order]


@dataclass(frozen=True)
class Source:
    """One source of a mixture: its name, its samples and the share asked for."""

    name: str
    samples: int
    share: float


@dataclass(frozen=True)
class Mixture:
    """The order of all samples, for ever: ``locate`` maps a position to a sample.

    A position is the number of samples consumed before, over all ranks. ``sources[0]`` is the
    base. Sources without samples must have been left out (``without_empty``).
    """

    sources: tuple[Source, ...]
    seed: int

    @classmethod
    def without_empty(cls, sources: Sequence[Source], seed: int) -> "Mixture":
        """A mixture of the sources that have samples; the base must have some."""
        if not sources or sources[0].samples == 0:
            raise SettingError(f"the base source {sources[0].name!r} has no samples" if sources else "no sources")
        return cls(tuple(s for s in sources if s.samples and s.share > 0), seed)

    @cached_property
    def counts(self) -> list[int]:
        """Draws an epoch from each source; the base's are all its samples."""
        base, rest = self.sources[0], self.sources[1:]
        if not rest:
            return [base.samples]
        share = base.share / sum(s.share for s in self.sources)
        return [base.samples, *quotas(round(base.samples / share) - base.samples, [s.share for s in rest])]

    @cached_property
    def _epoch(self) -> tuple[np.ndarray, np.ndarray]:
        return spread(self.counts)

    @property
    def epoch_length(self) -> int:
        return sum(self.counts)

    def locate(self, position: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(epoch, source, sample) of each position, int64 arrays of its shape; O(1) a position."""
        position = np.asarray(position, dtype=np.int64)
        epoch, within = np.divmod(position, self.epoch_length)
        sources, draws = self._epoch
        source = sources[within].astype(np.int64)
        draw = epoch * np.asarray(self.counts, dtype=np.int64)[source] + draws[within]
        sample = np.empty_like(draw)
        sizes = np.asarray([s.samples for s in self.sources], dtype=np.int64)
        turn, rest = np.divmod(draw, sizes[source])
        # One permutation for each time a source is gone through: usually one or two a batch.
        for s, t in {(int(a), int(b)) for a, b in zip(source.ravel(), turn.ravel())}:
            here = (source == s) & (turn == t)
            sample[here] = permute(rest[here], int(sizes[s]), key_of(self.seed, s, t))
        return epoch, source, sample

    def tree(self) -> str:
        """The mixture as text: asked and realised share, samples, draws and repeats of each source."""
        asked = sum(s.share for s in self.sources)
        lines = [f"mixture: {self.epoch_length:,} samples an epoch, seed {self.seed}"]
        for i, (s, q) in enumerate(zip(self.sources, self.counts)):
            branch = "└─" if i == len(self.sources) - 1 else "├─"
            lines.append(
                f"{branch} {s.name:<10} asked {s.share / asked:6.2%}  realised {q / self.epoch_length:6.2%}  "
                f"{s.samples:,} samples, {q:,} drawn an epoch, each {q / s.samples:.2f} times"
            )
        return "\n".join(lines)
