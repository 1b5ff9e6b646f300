"""Columns out of metric rows: the one place where rows of a run become arrays.

Costs one pass over the rows. A row without the field is left out; a value that is there but is
not finite stays, because it is evidence.
"""

from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from workbench.errors import DataError

Rows = Sequence[Mapping[str, Any]]


def last_of_each_step(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows in the order of their steps; of a step logged twice (after a resume) the later row.

    Raises DataError for a row without a whole-number ``step``.
    """
    by_step: dict[int, Mapping[str, Any]] = {}
    for number, row in enumerate(rows, start=1):
        step = row.get("step")
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise DataError(f"metrics row {number}: step={step!r}, expected a whole number")
        by_step[int(step)] = row
    return [by_step[step] for step in sorted(by_step)]


def column(rows: Iterable[Mapping[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """``(steps, values)`` of the field ``name``: int64 (N,) and float64 (N,), rows without it left out.

    Raises DataError naming step and field where a value is not a number.
    """
    steps, values = [], []
    for row in rows:
        value = row.get(name)
        if value is None:
            continue
        if isinstance(value, str) or not np.isscalar(value):
            raise DataError(f"metrics at step {row.get('step')}: {name}={value!r}, expected a number")
        steps.append(row["step"])
        values.append(float(value))
    return np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64)


def spread(values: np.ndarray) -> np.ndarray:
    """1.4826 times the median absolute deviation over the last axis, the standard deviation's robust twin."""
    middle = np.median(values, axis=-1, keepdims=True)
    return 1.4826 * np.median(np.abs(values - middle), axis=-1)


def median(values: np.ndarray) -> np.ndarray:
    """The median over the last axis."""
    return np.median(values, axis=-1)


def trailing(values: np.ndarray, window: int, least: int, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """``statistic`` of ``values[i - window : i]`` for each i, shape (N,): what was before row i, without it.

    Near the start the window holds fewer values; NaN where it holds fewer than ``least`` (1 or more).
    ``statistic`` works on the last axis. Memory: 8,192 windows at a time.
    """
    result = np.full(values.size, np.nan)
    for i in range(least, min(window, values.size)):
        result[i] = statistic(values[:i])
    if values.size > window:
        views = np.lib.stride_tricks.sliding_window_view(values, window)[:-1]
        for start in range(0, len(views), 8192):
            part = statistic(views[start : start + 8192])
            result[window + start : window + start + len(part)] = part
    return result
