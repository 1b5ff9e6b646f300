"""Confidence intervals for the mean of independent units, by resampling them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval over ``n`` units."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}], n={self.n}"


def bootstrap(
    values: np.ndarray, weights: np.ndarray | None = None, *, seed: int = 0, resamples: int = 2000
) -> Estimate:
    """The (weighted) mean of ``values`` (n,) and its percentile bootstrap interval (Efron 1979).

    With ``weights`` the estimate is sum(values * weights) / sum(weights) and units are resampled
    with their weights. Raises ValueError for no values.
    """
    values = np.asarray(values, np.float64)
    if not values.size:
        raise ValueError("bootstrap: no values")
    weights = np.ones_like(values) if weights is None else np.asarray(weights, np.float64)
    pick = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    means = (values * weights)[pick].sum(1) / weights[pick].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float((values * weights).sum() / weights.sum()), float(low), float(high), values.size)
