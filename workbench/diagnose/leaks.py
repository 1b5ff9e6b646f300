"""Memory that keeps growing: its slope with an interval, and whether that is a leak.

The slope is Theil-Sen's median of pairwise slopes (Sen 1968, J. Am. Stat. Assoc. 63, 1379), so
short peaks (an evaluation, a checkpoint) do not move it; the interval is Sen's rank-based one. It
assumes independent noise: memory is not independent from step to step, so long series are first
reduced to medians of at most 120 blocks. Costs 7,000 pairs at most. It says that something grows,
not what; ``watch_dataset`` tells the data pipeline apart from the rest.

A leak is growth that (1) is certain: the interval's low end times the steps observed exceeds
``min_growth_mb`` and ``min_growth_share`` of the level at the start, whichever is more, and (2) goes
on: the second half alone still grows by at least a fifth of that. A step followed by a plateau
(a compiled graph, a cache that fills, forked workers copying pages) fails (2). The limits are chosen,
not measured; growth slower than them passes, a longer run sees it.
"""

import gc
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Callable, Iterable, Sequence

import numpy as np
import psutil

from workbench.diagnose.findings import Finding
from workbench.errors import DataError, SettingError

_BLOCKS = 120
_FEWEST = 10


@dataclass(frozen=True)
class Slope:
    """Growth in MB per 1000 steps with its interval; ``steps`` is the span that it was seen over."""

    mb_per_1000_steps: float
    low: float
    high: float
    steps: int

    @property
    def certain_growth_mb(self) -> float:
        """What memory grew by over the span, at the interval's low end, MB."""
        return self.low * self.steps / 1000


def memory_slope(
    steps: Sequence[float], rss_mb: Sequence[float], warmup: float = 0.2, confidence: float = 0.95
) -> Slope:
    """Theil-Sen slope of ``rss_mb`` (N,) over ``steps`` (N,), the first ``warmup`` share left out.

    Raises DataError for fewer than 10 points after the warm-up, unequal lengths, steps that do not
    increase or values that are not finite; SettingError for a ``warmup`` outside 0..0.9 or a
    ``confidence`` outside 0.5..0.999.
    """
    if not 0 <= warmup <= 0.9:
        raise SettingError(f"warmup={warmup!r} is not allowed: between 0 and 0.9")
    if not 0.5 <= confidence <= 0.999:
        raise SettingError(f"confidence={confidence!r} is not allowed: between 0.5 and 0.999")
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(rss_mb, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise DataError(f"steps has shape {x.shape}, rss_mb {y.shape}: give two lists of one length")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("steps and rss_mb must be finite numbers: leave out rows without a memory reading")
    if (np.diff(x) <= 0).any():
        raise DataError("steps must increase from row to row: keep one row of each step, in order")
    x, y = x[int(warmup * x.size) :], y[int(warmup * y.size) :]
    if x.size < _FEWEST:
        raise DataError(f"{x.size} memory readings after the warm-up, at least {_FEWEST} are needed: run more steps")
    span = x[-1] - x[0]
    if x.size > _BLOCKS:
        x = np.array([np.median(part) for part in np.array_split(x, _BLOCKS)])
        y = np.array([np.median(part) for part in np.array_split(y, _BLOCKS)])
    i, j = np.triu_indices(x.size, k=1)
    slopes = np.sort((y[j] - y[i]) / (x[j] - x[i])) * 1000
    n, pairs = x.size, slopes.size
    # Variance of Kendall's S without ties (Sen 1968, eq. 2.6 with all t_i = 1); ties would only narrow it.
    deviation = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * deviation
    low = max(round((pairs - reach) / 2) - 1, 0)
    high = min(round((pairs + reach) / 2), pairs - 1)
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), int(span))


def longest_process(steps: np.ndarray, rss_mb: np.ndarray, drop: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """The longest stretch without a fall of more than ``drop``: a resumed run starts small again."""
    falls = np.flatnonzero(rss_mb[1:] < (1 - drop) * rss_mb[:-1]) + 1
    edges = [0, *falls.tolist(), rss_mb.size]
    start, end = max(zip(edges, edges[1:]), key=lambda edge: edge[1] - edge[0])
    return steps[start:end], rss_mb[start:end]


def leak_finding(
    steps: Sequence[float],
    rss_mb: Sequence[float],
    warmup: float = 0.2,
    min_growth_mb: float = 16.0,
    min_growth_share: float = 0.02,
    *,
    cause: str = "memory leak",
    layer: str = "memory",
    unit: str = "steps",
    next_step: str = "run watch_dataset on the data pipeline; if that is flat, look for tensors kept from step to step",
) -> Finding | None:
    """A finding if memory leaks by the rule at the top of this file, else None. Raises as memory_slope."""
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(rss_mb, dtype=np.float64)
    whole = memory_slope(x, y, warmup)
    first = int(warmup * x.size)
    half = first + (x.size - first) // 2
    # Too few points for a second half: then nothing can be said about whether it goes on.
    if x.size - half < _FEWEST:
        return None
    later = memory_slope(x[half:], y[half:], warmup=0)
    start = float(np.median(y[first : first + max(3, (x.size - first) // 10)]))
    limit = max(min_growth_mb, min_growth_share * start)
    if whole.certain_growth_mb <= limit or later.certain_growth_mb <= 0.2 * limit:
        return None
    evidence = (
        f"host memory grew {whole.mb_per_1000_steps:.1f} MB per 1000 {unit} "
        f"(95% interval {whole.low:.1f} to {whole.high:.1f}) over {whole.steps} {unit}",
        f"at least {whole.certain_growth_mb:.0f} MB on a level of {start:.0f} MB, limit {limit:.0f} MB",
        f"the second half still grew {later.mb_per_1000_steps:.1f} MB per 1000 {unit}",
    )
    return Finding(cause, layer, "warning", evidence, next_step, step=int(x[first]) if unit == "steps" else None)


@dataclass(frozen=True)
class DatasetWatch:
    """Memory while a data pipeline was iterated alone: ``rows`` (N,) seen, ``anonymous_mb`` (N,) at that point."""

    rows: tuple[int, ...]
    anonymous_mb: tuple[float, ...]
    passes: int

    def finding(self, min_growth_mb: float = 8.0) -> Finding | None:
        """A finding if iterating the pipeline alone leaks, else None."""
        return leak_finding(
            self.rows,
            self.anonymous_mb,
            min_growth_mb=min_growth_mb,
            min_growth_share=0.0,
            cause="data pipeline leak",
            layer="data pipeline",
            unit="rows",
            next_step="look for state that grows in a map function, or an iterator made anew in each epoch; "
            "a large object in a closure does not grow",
        )


def watch_dataset(make_iterator: Callable[[], Iterable[Any]], rows: int = 20000, samples: int = 40) -> DatasetWatch:
    """Iterate a pipeline alone for ``rows`` rows and read memory ``samples`` times.

    ``make_iterator`` is called again for each pass (an epoch), as a training loop would. Memory is
    the anonymous memory of this process and its children. Not USS: pages of a shared library become
    "unique" when another process that used them ends, which looks like growth here. A forked worker
    counts the pages it inherited again, so the level is high with workers, the growth is not.
    Raises SettingError for fewer than 25 samples or more samples than rows, DataError
    for a pipeline that yields nothing.
    """
    if not 25 <= samples <= rows:
        raise SettingError(f"samples={samples!r} is not allowed: 25 to rows={rows!r}")
    every, seen, passes = rows // samples, 0, 0
    at, memory = [], []
    gc.freeze()  # what exists already is not looked at again: a collection costs milliseconds, not tenths
    try:
        while seen < every * samples:
            before = seen
            for _ in make_iterator():
                seen += 1
                if seen % every == 0:
                    at.append(seen)
                    memory.append(_anonymous_mb())
                if seen == every * samples:
                    break
            passes += 1
            if seen == before:
                raise DataError(
                    f"no row in pass {passes} of the data pipeline: make_iterator must give a new iterator each time"
                )
    finally:
        gc.unfreeze()
    return DatasetWatch(tuple(at), tuple(memory), passes)


def _anonymous_mb() -> float:
    gc.collect()  # garbage that is only waiting for a collection is not a leak
    me = psutil.Process()
    total = 0
    for process in (me, *me.children(recursive=True)):
        try:
            info = process.memory_info()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue  # a worker that ended since the list was made holds nothing
        total += info.rss - getattr(info, "shared", 0)  # only Linux tells the shared part
    return total / 2**20
