"""Do the experts share the work: which of them get next to nothing, or nearly everything, and since when.

    L sparse layers   E experts   n rows of the window

Reads ``expert_load`` of the metric rows: L lists of E shares that sum to 1, counted before anything
is dropped. It looks at each layer by itself and never at the auxiliary loss, whose mean over layers
hides a layer: with one expert of eight a token, seven even layers (loss 1 each) and one that sends
all to a single expert (8) have the mean 1.9. Costs one pass over the rows. Does not: say why, or
look at single tokens.

Limits, chosen and not measured, all in terms of the even share 1 / E:

    unused       mean share over the window at most ``idle`` = 0.1 of the even one
    overloaded   at least ``flood`` = 0.75 of the way from the even share to what takes all: 1 / K of the
                 assignments, because a token visits K different experts. An expert of which every
                 token takes one in K has all of them.
"""

from typing import Any, Mapping

import numpy as np

from workbench.diagnose.columns import Rows, last_of_each_step
from workbench.diagnose.findings import Finding
from workbench.errors import DataError, SettingError


def loads(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """``(steps, shares)``: int64 (n,) and float64 (n, L, E) of the rows that have ``expert_load``.

    A row whose shares are all zero or not finite (a batch of padding, an overflow) is left out.
    Raises DataError for shares that are no (L, E) numbers or whose shape changes during the run.
    """
    steps, shares = [], []
    for row in last_of_each_step(rows):
        if row.get("expert_load") is None:
            continue
        share = _shares(row)
        if shares and share.shape != shares[0].shape:
            raise DataError(
                f"metrics at step {row['step']}: expert_load is {share.shape[0]} x {share.shape[1]}, "
                f"before it was {shares[0].shape[0]} x {shares[0].shape[1]} (layers x experts)"
            )
        if np.isfinite(share).all() and (share.sum(1) > 0).all():
            steps.append(row["step"])
            shares.append(share)
    shape = shares[0].shape if shares else (0, 0)
    return np.array(steps, np.int64), np.array(shares, np.float64).reshape(len(steps), *shape)


def _shares(row: Mapping[str, Any]) -> np.ndarray:
    try:
        share = np.array(row["expert_load"], np.float64)
    except (TypeError, ValueError):
        share = np.zeros(0)
    if share.ndim != 2 or share.shape[1] == 0 or (share < 0).any():
        raise DataError(
            f"metrics at step {row['step']}: expert_load={str(row['expert_load'])[:80]}, "
            "expected one list of shares a sparse layer, all of the same length"
        )
    return share


def evenness(shares: np.ndarray) -> np.ndarray:
    """Entropy of shares (..., E) over ln E: 1 where all experts get the same, 0 where one gets all."""
    experts = shares.shape[-1]
    if experts == 1:
        return np.ones(shares.shape[:-1])
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return 0.0 - (shares * logs).sum(-1) / np.log(experts)


def collapsed(
    rows: Rows,
    experts_per_token: int,
    window: int = 50,
    idle: float = 0.1,
    flood: float = 0.75,
    layers: tuple[int, ...] = (),
) -> list[Finding]:
    """One finding for each layer whose load over the last ``window`` rows is beyond a limit; [] without loads.

    ``layers`` are the sparse layers' numbers in the model (``ModelConfig.sparse_layers``), 0, 1, …
    if not given. A shorter run is judged by all it has, from its first row on. ``step`` of a finding
    is the first step of the stretch, up to the end, in which the mean over ``window`` rows (or what
    there was) was beyond the limit for one of the experts it names. Raises DataError as ``loads``
    and for ``layers`` of another number, SettingError for limits that make no sense.
    """
    if experts_per_token < 1:
        raise SettingError(f"experts_per_token={experts_per_token!r} is not allowed: at least 1")
    if window < 1:
        raise SettingError(f"window={window!r} is not allowed: at least 1 step")
    for name, value in (("idle", idle), ("flood", flood)):
        if not 0 < value < 1:
            raise SettingError(f"{name}={value!r} is not allowed: above 0 and below 1")
    steps, shares = loads(rows)
    if not steps.size:
        return []
    count, depth, experts = shares.shape
    layers = layers or tuple(range(depth))
    if len(layers) != depth:
        raise DataError(f"expert_load has {depth} sparse layers, the model {len(layers)}: another run's metrics")
    if experts <= experts_per_token:
        return []  # every token visits every expert
    even, most = 1 / experts, 1 / experts_per_token
    means = _trailing_means(shares, window)
    unused, overloaded = means <= idle * even, means >= even + flood * (most - even)
    found = []
    for place, layer in enumerate(layers):
        named = (unused | overloaded)[-1, place]
        if named.any():
            beyond = (unused | overloaded)[:, place, named].any(-1)
            since = count - int(np.argmin(beyond[::-1])) if not beyond.all() else 0
            found.append(
                _finding(
                    layer,
                    steps[since],
                    min(window, count),
                    means[-1, place],
                    *(u[-1, place] for u in (unused, overloaded)),
                )
            )
    return found


def _trailing_means(shares: np.ndarray, window: int) -> np.ndarray:
    """The mean of the ``window`` rows that end with each row, of fewer near the start: (n, L, E)."""
    sums = np.concatenate([np.zeros_like(shares[:1]), np.cumsum(shares, 0)])
    ends = np.arange(1, len(shares) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)[:, None, None]


def _finding(
    layer: int, step: int, rows: int, share: np.ndarray, unused: np.ndarray, overloaded: np.ndarray
) -> Finding:
    even = 1 / share.size
    evidence = []
    for word, chosen in (("nearly all tokens", overloaded), ("next to nothing", unused)):
        if chosen.any():
            names = ", ".join(f"{e} ({share[e]:.2%})" for e in np.flatnonzero(chosen)[:8])
            more = f" and {chosen.sum() - 8} more" if chosen.sum() > 8 else ""
            evidence.append(f"layer {layer}: {word} for expert {names}{more}; an even share is {even:.2%}")
    evidence.append(f"layer {layer}: evenness {evenness(share):.2f} over the last {rows} steps (1: all the same)")
    return Finding(
        "expert collapse",
        "numerics",
        "warning",
        tuple(evidence),
        "raise router_aux_loss_coef and go on from a checkpoint before this step; if dropped_assignments is high, "
        "raise expert_capacity_factor too",
        int(step),
    )
