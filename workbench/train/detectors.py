"""One function an alarm: a row of metrics and what is remembered, in; what the row says, out.

    told = loss_spike(memory, row, config)      Told(True, why, first suspected step): raise it
                                                Told(False): the condition has cleared
                                                None: this row does not tell

``memory`` is a dict of plain numbers and bounded lists that the function itself keeps up to date; it
starts empty, goes into the checkpoint as it is, and nothing else is remembered. So the same rows give
the same alarms, however often the run was interrupted between them. Rows with ``skipped`` were not
applied and enter no window: else a run of bad batches would become what is usual.

These look at a run while it goes on, with what is known then; ``diagnose/spikes.py`` looks back at
a whole one. Where both look for the same thing they find the same steps (tests/test_detectors.py).
Costs some sorted lists of 50 numbers a step. Machine, memory and disk are in ``machine.py``.
"""

import math
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from workbench.alarm_config import AlarmConfig

FEWEST = 10  # rows in a window before it is believed
_LOW_IN_ROW = 5
_LASTING = 3  # losses in a row that are not finite although each was an overflow
_HIGH_ROWS, _OF_ROWS = 3, 10

Memory = dict[str, Any]
Row = Mapping[str, Any]


class Told(NamedTuple):
    """What a row says of one alarm; ``first_step`` is the first suspected one, None for the row's own."""

    raised: bool
    message: str = ""
    first_step: int | None = None


def middle(values: Sequence[float]) -> float:
    """The median."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float]) -> float:
    """1.4826 times the median absolute deviation."""
    centre = middle(values)
    return 1.4826 * middle([abs(v - centre) for v in values])


def remember(memory: Memory, name: str, value: Any, most: int) -> None:
    """Append to the window ``name`` of ``memory``, which keeps its last ``most``."""
    window = memory.setdefault(name, [])
    window.append(value)
    del window[:-most]


def as_float32(value: float) -> float:
    """``value`` as the compiled step compares with it, so that a limit is the same on both sides."""
    return float(np.float32(min(value, 3.4e38))) if math.isfinite(value) else value


def loss_limit(memory: Memory, config: AlarmConfig) -> float:
    """The loss above which the next step is a spike: inf while too few steps are known."""
    losses = memory.get("losses", ())
    if len(losses) < FEWEST:
        return math.inf
    noise = max(spread([b - a for a, b in zip(losses, losses[1:])]), 1e-12)
    return as_float32(middle(losses[-10:]) + max(config.spike_nats, config.spike_deviations * noise))


def loss_spike(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """The rule of ``diagnose.spikes.loss_spikes``; over once ``spike_window`` rows have passed without another."""
    loss = row.get("loss")
    if loss is None or not math.isfinite(loss):
        return None
    limit, told = loss_limit(memory, config), None
    if loss > limit:
        usual = middle(memory["losses"][-10:])
        message = (
            f"loss {loss:.4g}, limit {limit:.4g}, usual {usual:.4g} (+{loss - usual:.3g} nats): look at this step's "
            "batch; if spikes return, lower learning_rate or max_grad_norm"
        )
        memory["since"], told = 0, Told(True, message)
    elif "since" in memory:
        memory["since"] += 1
        if memory["since"] >= config.spike_window:
            del memory["since"]
            told = Told(False)
    if not row.get("skipped"):
        remember(memory, "losses", loss, config.spike_window)
    return told


def non_finite_loss(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """The rule of ``diagnose.spikes.spoilt_rows``: an overflow excuses it, three rows in a row are never excused."""
    loss = row.get("loss")
    if loss is None:
        return None
    if math.isfinite(loss):
        memory.clear()
        return Told(False)
    memory.setdefault("first", row["step"])
    memory["rows"] = memory.get("rows", 0) + 1
    if row.get("overflow") and memory["rows"] < _LASTING:
        return None
    message = (
        f"loss is {loss}, since step {memory['first']}: go back to a checkpoint before it; on its batch run "
        "inspect_gradients and lint_eps"
    )
    return Told(True, message, memory["first"])


def _norm_of(row: Row) -> float | None:
    # An overflow's norm means nothing.
    return None if row.get("overflow") else row.get("grad_norm")


def dead_gradient(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """A norm of exactly 0, or below ``vanishing_share`` of the trailing median, on 5 steps in a row."""
    norm = _norm_of(row)
    if norm is None or not math.isfinite(norm):
        return None
    norms = memory.get("norms", ())
    limit = config.vanishing_share * middle(norms) if len(norms) >= FEWEST else 0.0
    if norm > limit:
        if not row.get("skipped"):
            remember(memory, "norms", norm, config.norm_window)
        memory.pop("first", None)
        memory["low"] = 0
        return Told(False)
    memory.setdefault("first", row["step"])
    memory["low"] = memory.get("low", 0) + 1
    if memory["low"] < _LOW_IN_ROW:
        return None
    message = (
        f"gradient norm {norm:.3g}, limit {limit:.3g}, so since step {memory['first']}: nothing is learnt; see that "
        "labels are not all -100, and where inspect_gradients finds the graph cut"
    )
    return Told(True, message, memory["first"])


def norm_limit(memory: Memory, config: AlarmConfig) -> float:
    """The gradient norm above which the next step is an explosion: inf while too few steps are known."""
    norms = memory.get("norms", ())
    usual = middle(norms) if len(norms) >= FEWEST else 0.0
    if not usual > 0:
        return math.inf
    third = sum(map(bool, memory["high"])) >= _HIGH_ROWS - 1
    return as_float32(usual * config.norm_factor * (1 if third else 10))


def exploding_gradient(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """The rule of ``diagnose.spikes.gradient_norms``; over after 10 rows that are not high."""
    norm = _norm_of(row)
    if norm is None:
        return None
    limit, norms = norm_limit(memory, config), memory.get("norms", ())
    usual = middle(norms) if len(norms) >= FEWEST else math.inf
    high = not norm <= config.norm_factor * usual if usual > 0 else False
    told = None
    if not math.isfinite(norm) or norm > limit:
        first = min((step for step in memory.get("high", ()) if step), default=row["step"])
        message = (
            f"gradient norm {norm:.4g}, limit {limit:.4g}, usual {usual:.4g}: look at the batch of step {first}; "
            "lower learning_rate or lengthen warmup_steps"
        )
        told = Told(True, message, first)
    if not row.get("skipped"):
        remember(memory, "high", row["step"] if high else 0, _OF_ROWS - 1)
        if math.isfinite(norm):
            remember(memory, "norms", norm, config.norm_window)
    return told or (None if high or any(memory.get("high", ())) else Told(False))


def rank_divergence(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """Two ranks whose mean losses are apart by ``rank_nats``, as medians over ``rank_window`` rows.

    Each rank's loss is taken against the mean of the ranks, so what all have in common falls out. The
    gap must also be 7 times what the noise of such a median comes to, since a rank's few samples
    scatter. Over once the gap is below three quarters of the limit.
    """
    losses = row.get("rank_losses")
    if losses is None or len(losses) < 2 or not all(map(math.isfinite, losses)) or row.get("skipped"):
        return None
    mean = sum(losses) / len(losses)
    if memory.get("apart") and len(memory["apart"][0]) != len(losses):
        memory.clear()
    remember(memory, "apart", [v - mean for v in losses], config.rank_window)
    if len(memory["apart"]) < config.rank_window:
        return None
    apart = np.asarray(memory["apart"])
    centre = _middles(apart)
    low, high = int(centre.argmin()), int(centre.argmax())
    gap = float(centre[high] - centre[low])
    if gap < 0.75 * config.rank_nats:
        return Told(False)
    # 1.4826 MAD is a standard deviation, 1.2533 / sqrt(n) of one that of a median of n.
    noise = float(_middles(np.abs(apart - centre).reshape(-1, 1))[0]) * 1.4826 * 1.2533 / math.sqrt(len(apart))
    limit = max(config.rank_nats, 7 * noise)
    if gap <= limit:
        return Told(False) if gap < 0.75 * limit else None
    message = (
        f"rank {high} has {gap:.2f} nats more loss than rank {low} (median of {len(apart)} steps, limit {limit:.2f}): "
        "see that every rank draws from the whole data, not from a part of its files"
    )
    return Told(True, message, row["step"] - len(apart) + 1)


def _middles(values: np.ndarray) -> np.ndarray:
    """The median of each column, in a quarter of the time that numpy's takes for so few."""
    ordered, half = np.sort(values, axis=0), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def perplexity_jump(memory: Memory, step: int, value: float, high: float, config: AlarmConfig) -> Told:
    """Validation perplexity above ``perplexity_factor`` times the best so far and above that one's interval.

    Or not finite. ``high`` is the upper end of the interval of ``value``. The suspected steps begin
    after the last evaluation that was not so. A subset of ``diagnose.spikes.perplexity_jumps``, which
    has no intervals.
    """
    best, good = memory.get("best"), memory.get("good", 0)
    limit = max(config.perplexity_factor * best[0], best[1]) if best else math.inf
    if math.isfinite(value) and not value > limit:
        memory["good"] = step
        if best is None or value < best[0]:
            memory["best"] = [value, high if math.isfinite(high) else value, step]
        return Told(False)
    before = f"best {best[0]:.4g} at step {best[2]}, limit {limit:.4g}" if best else "the first one measured"
    message = (
        f"validation perplexity {value:.4g}, {before}: go back to the best checkpoint, and compare the data read "
        f"from step {good + 1} on with that before"
    )
    return Told(True, message, good + 1)
