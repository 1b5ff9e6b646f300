"""Exact shares of several sources, by samples or by tokens, and what happens when one runs dry.

An epoch takes as many draws from each source as its share asks for. How long it is, is said by
``stopping_strategy``, named as in Hugging Face's ``interleave_datasets``:

    base_exhausted    one pass over the first source, each of its samples exactly once (the default)
    first_exhausted   until the first source is used up: nothing is repeated within an epoch
    all_exhausted     until the last is: everything is seen, the others are repeated

A source with fewer samples than its quota is repeated, freshly shuffled each time round; one with
more goes on in the next epoch where it stopped. ``Mixture.tree`` tells both.

Quotas are whole samples by the largest-remainder method (Hamilton's), so they always sum to the
total and none is off by one or more. With ``unit="tokens"`` the shares are of the tokens that the
samples hold. The draws are spread evenly (``interleave``), which keeps the share of every stretch
of 1,000 samples within 1 % of the target.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Sequence

import numpy as np

from workbench.config import require
from workbench.data.interleave import draw_at, draw_at_one
from workbench.data.order import key_of, permute, permute_one
from workbench.errors import SettingError

STRATEGIES = ("base_exhausted", "first_exhausted", "all_exhausted")


def quotas(total: int, shares: Sequence[float | Fraction]) -> list[int]:
    """Split ``total`` samples or tokens by ``shares`` (any non-negative numbers) by the largest remainder."""
    if total < 0 or not shares or min(shares) < 0 or sum(shares) <= 0:
        raise SettingError(f"shares {list(shares)} of {total} samples: shares must be 0 or more and not all 0")
    parts = [exactly(share) for share in shares]
    exact = [total * part / sum(parts) for part in parts]
    seats = [int(e) for e in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: exact[i] - seats[i], reverse=True)
    for source in by_remainder[: total - sum(seats)]:
        seats[source] += 1
    return seats


def exactly(share: float | Fraction) -> Fraction:
    """The fraction a person means by a decimal: in floating point 0.7 * 10 is not 7, and a floor would lose one."""
    return share if isinstance(share, Fraction) else Fraction(share).limit_denominator(10**9)


@dataclass(frozen=True)
class Source:
    """One source of a mixture: its name, its samples, the share asked for, the tokens the samples hold."""

    name: str
    samples: int
    share: float
    tokens: int = 0
    fingerprint: str = ""


@dataclass(frozen=True)
class Mixture:
    """The order of all samples, for ever: ``locate`` maps a position to a sample.

    A position is the number of samples consumed before, over all ranks. ``sources[0]`` is the
    base. Sources without samples must have been left out (``without_empty``). ``unit`` is
    ``samples`` or ``tokens``.
    """

    sources: tuple[Source, ...]
    seed: int
    unit: str = "samples"
    stopping_strategy: str = "base_exhausted"

    def __post_init__(self) -> None:
        require(self.unit in ("samples", "tokens"), "mixture_unit", self.unit, "samples or tokens")
        require(
            self.stopping_strategy in STRATEGIES, "stopping_strategy", self.stopping_strategy, ", ".join(STRATEGIES)
        )

    @classmethod
    def without_empty(cls, sources: Sequence[Source], seed: int, **how: str) -> "Mixture":
        """A mixture of the sources that have samples and a share; the base must have some."""
        if not sources or sources[0].samples == 0:
            raise SettingError(f"the base source {sources[0].name!r} has no samples" if sources else "no sources")
        return cls(tuple(s for s in sources if s.samples and s.share > 0), seed, **how)

    @cached_property
    def counts(self) -> list[int]:
        """Draws an epoch from each source."""
        weights = [exactly(s.share) for s in self.sources]
        if self.unit == "tokens":
            weights = [w * s.samples / s.tokens for w, s in zip(weights, self.sources)]
        lengths = [s.samples / w for s, w in zip(self.sources, weights)]
        ends = {"base_exhausted": 0, "first_exhausted": lengths.index(min(lengths))}
        last = ends.get(self.stopping_strategy, lengths.index(max(lengths)))
        others = [i for i in range(len(weights)) if i != last]
        counts = [0] * len(weights)
        counts[last] = self.sources[last].samples
        if others:
            rest = lengths[last] * (sum(weights) - weights[last])
            # Rounded to the side that keeps the promise: nothing repeated, or everything seen.
            whole = {"base_exhausted": round(rest), "first_exhausted": int(rest)}.get(
                self.stopping_strategy, -int(-rest // 1)
            )
            for i, seats in zip(others, quotas(whole, [weights[i] for i in others])):
                counts[i] = seats
        return counts

    @cached_property
    def epoch_length(self) -> int:
        return sum(self.counts)

    def locate(self, position: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(epoch, source, sample) of each position (n,), int64; the cost does not depend on the position."""
        position = np.asarray(position, dtype=np.int64)
        if len(position) == 1:
            epoch, source, sample = self._locate_one(int(position[0]))
            return np.array([epoch]), np.array([source]), np.array([sample])
        epoch, within = np.divmod(position, self.epoch_length)
        source, draw = draw_at(within, self.counts)
        draw = draw + epoch * np.asarray(self.counts, dtype=np.int64)[source]
        turn, rest = np.divmod(draw, np.asarray([s.samples for s in self.sources], dtype=np.int64)[source])
        sample = np.empty_like(rest)
        # One permutation for each time a source is gone through: usually one or two a batch.
        for s, t in set(zip(source.tolist(), turn.tolist())):
            here = (source == s) & (turn == t)
            sample[here] = permute(rest[here], self.sources[s].samples, key_of(self.seed, s, t))
        return epoch, source, sample

    def _locate_one(self, position: int) -> tuple[int, int, int]:
        epoch, within = divmod(position, self.epoch_length)
        source, draw = draw_at_one(within, self.counts)
        samples = self.sources[source].samples
        turn, rest = divmod(draw + epoch * self.counts[source], samples)
        return epoch, source, permute_one(rest, samples, key_of(self.seed, source, turn))

    def shares(self) -> list[dict]:
        """For each source: asked and realised share of ``unit``, and of samples and tokens, draws, repeats."""
        asked = sum(exactly(s.share) for s in self.sources)
        tokens = [q * s.tokens / s.samples for s, q in zip(self.sources, self.counts)]
        out = []
        for s, q, t in zip(self.sources, self.counts, tokens):
            out.append(
                {
                    "source": s.name,
                    "fingerprint": s.fingerprint,
                    "asked": float(exactly(s.share) / asked),
                    "of_samples": q / self.epoch_length,
                    "of_tokens": t / sum(tokens) if sum(tokens) else float("nan"),
                    "samples": s.samples,
                    "tokens": s.tokens,
                    "draws": q,
                    "repeats": q / s.samples,
                }
            )
        return out

    def tree(self) -> str:
        """The mixture as text: asked and realised shares, samples, tokens, draws and repeats of each source."""
        lines = [
            f"mixture: {self.epoch_length:,} samples an epoch, shares of {self.unit}, "
            f"{self.stopping_strategy}, seed {self.seed}"
        ]
        for i, row in enumerate(self.shares()):
            branch = "└─" if i == len(self.sources) - 1 else "├─"
            mark = f", fingerprint {row['fingerprint']}" if row["fingerprint"] else ""
            lines.append(
                f"{branch} {row['source']:<10} asked {row['asked']:6.2%}  realised {row['of_samples']:6.2%} of samples, "
                f"{row['of_tokens']:6.2%} of tokens  "
                f"({row['samples']:,} samples of {row['tokens']:,} tokens, {row['draws']:,} drawn, "
                f"each {row['repeats']:.2f} times{mark})"
            )
        return "\n".join(lines)
