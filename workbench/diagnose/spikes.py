"""Loss, perplexity, loss scale and gradient norm: jumps, collapses and storms, with their step.

Pure functions from metric rows (or evaluation events) to findings. Costs one pass with a trailing
window over the rows. They look at numbers that a run logged; which parameter is at fault, they
cannot say: ``gradients.py`` can.

All limits are arguments, and are chosen rather than measured, except where a test says otherwise:
tests/test_spikes.py counts the alarms on healthy noisy curves.
"""

import math
from typing import Any, Iterable, Mapping

import numpy as np

from workbench.diagnose.columns import Rows, column, last_of_each_step, median, spread, trailing
from workbench.diagnose.findings import Finding


def spoilt_rows(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows (one a step, in order) whose loss is NaN or infinite and that the loss scale does not excuse.

    On an overflow step (``overflow`` = 1) infinity is what the loss scale is there to catch, so it
    counts only when it lasts: 3 rows in a row or more whose loss is not finite.
    """
    column(rows, "loss")  # refuses values that are not numbers, by name
    bad = [r.get("loss") is not None and not math.isfinite(r["loss"]) for r in rows]
    lasting = _first_run(bad, 3)
    begin = len(rows) if lasting is None else lasting
    return [r for i, r in enumerate(rows) if bad[i] and (i >= begin or not r.get("overflow"))]


def non_finite(rows: Rows) -> list[Finding]:
    """Loss (as spoilt_rows has it) or gradient norm that is not finite on a step that was not skipped."""
    found = []
    rows = last_of_each_step(rows)
    column(rows, "grad_norm")  # refuses values that are not numbers, by name
    bad = spoilt_rows(rows)
    if bad:
        first = bad[0]["step"]
        finite = [r for r in rows if r["step"] < first and r.get("loss") is not None and math.isfinite(r["loss"])]
        evidence = [f"loss is {bad[0]['loss']} at step {first}", f"so it is on {len(bad)} of {len(rows)} rows"]
        if finite:
            evidence.append(f"last finite loss {finite[-1]['loss']:.4g} at step {finite[-1]['step']}")
        found.append(
            Finding(
                "non-finite loss",
                "numerics",
                "fatal",
                tuple(evidence),
                f"resume from a checkpoint before step {first}; on its batch run inspect_gradients and lint_eps",
                step=first,
            )
        )
    norms = [
        r
        for r in rows
        if r.get("grad_norm") is not None and not math.isfinite(r["grad_norm"]) and not r.get("overflow")
    ]
    if norms and not (found and norms[0]["step"] >= found[0].step):
        first = norms[0]["step"]
        found.append(
            Finding(
                "non-finite gradient",
                "numerics",
                "fatal",
                (f"grad_norm is {norms[0]['grad_norm']} at step {first} and the step was not skipped",),
                "the overflow check missed it: run inspect_gradients on this batch, and resume from before this step",
                step=first,
            )
        )
    return found


def loss_spikes(rows: Rows, window: int = 50, k: float = 8.0, min_jump: float = 0.5) -> list[Finding]:
    """Rows whose loss stands above the trailing median by ``k`` robust deviations and ``min_jump`` nats.

    The deviation is that of the differences between neighbouring rows of the trailing window of
    ``window`` rows (1.4826 * MAD), so a falling loss does not widen it. At least 10 rows must be in
    the window. Spikes less than ``window`` rows apart are one finding.
    """
    steps, loss = _finite(rows, "loss")
    levels = trailing(loss, 10, 10, median)
    # The differences within loss[i - window : i] are one fewer and end one earlier.
    noise = np.full(loss.size, np.nan)
    noise[1:] = (
        np.maximum(trailing(np.diff(loss, append=0.0), window - 1, 9, spread)[:-1], 1e-12) if loss.size else noise[1:]
    )
    jumps = loss - levels
    groups: list[list[int]] = []
    for i in np.flatnonzero(jumps > np.maximum(min_jump, k * noise)):
        if not groups or i - groups[-1][-1] > window:
            groups.append([])
        groups[-1].append(int(i))
    found = []
    for group in groups:
        index = max(group, key=lambda i: jumps[i])
        first = int(steps[group[0]])
        evidence = (
            f"loss {loss[index]:.4g} at step {steps[index]}, the 10 rows before had a median of {levels[index]:.4g}: "
            f"+{jumps[index]:.3g} nats (perplexity x{math.exp(min(jumps[index], 700)):.3g}), "
            f"{jumps[index] / noise[index]:.0f} robust deviations",
            f"{len(group)} rows stand out, from step {first}",
        )
        found.append(
            Finding(
                "loss spike",
                "numerics",
                "warning",
                evidence,
                f"look at the batch of step {first}; if spikes return, lower learning_rate or max_grad_norm",
                step=first,
            )
        )
    return found


def loss_divergence(rows: Rows, window: int = 20, k: float = 8.0, min_rise: float = 0.5) -> list[Finding]:
    """The loss went up and stayed: the median of the last ``window`` rows against the best such median.

    Fatal when it lies above by ``min_rise`` nats and ``k`` robust deviations of the row-to-row
    differences; a spike that recovers is not this. The step is where the final stretch begins in
    which every window stays above that limit.
    """
    steps, loss = _finite(rows, "loss")
    if loss.size < 2 * window:
        return []
    medians = trailing(np.append(loss, 0.0), window, window, median)[window:]
    best = int(np.argmin(medians))
    rise = float(medians[-1] - medians[best])
    limit = max(min_rise, k * float(spread(np.diff(loss[: best + window]))))
    if rise <= limit:
        return []
    below = np.flatnonzero(medians <= medians[best] + limit)
    # The window that ends at row i is medians[i - window]; half of it lies behind when its median crosses.
    first = int(steps[min(below[-1] + 1 + window // 2, steps.size - 1)])
    return [
        Finding(
            "loss divergence",
            "numerics",
            "fatal",
            (
                f"median loss of the last {window} rows {medians[-1]:.4g}, best was {medians[best]:.4g} "
                f"up to step {steps[best + window - 1]}: +{rise:.3g} nats and not recovered",
            ),
            f"resume from a checkpoint before step {first} with a lower learning_rate; look at the data from there on",
            step=first,
        )
    ]


def perplexity_jumps(events: Iterable[Mapping[str, Any]], factor: float = 1.5) -> list[Finding]:
    """Validation perplexity above ``factor`` times the best so far, or not finite.

    ``events`` are those of kind ``evaluation``; others are passed over. Fatal if the last
    evaluation is still above, a warning if it came back.
    """
    evaluations = [e for e in events if e.get("kind", "evaluation") == "evaluation"]
    series = list(zip(*(part.tolist() for part in column(evaluations, "perplexity"))))
    best, first, worst = math.inf, None, None
    above = False
    for step, value in series:
        above = not math.isfinite(value) or value > factor * best
        if above and first is None:
            first = (step, value, best)
        if above and (worst is None or not value <= worst[1]):
            worst = (step, value)
        if math.isfinite(value):
            best = min(best, value)
    if first is None:
        return []
    step, value, before = first
    if math.isfinite(value):
        text = (
            f"validation perplexity {value:.4g} at step {step}, best before {before:.4g}: "
            f"x{value / before:.3g}, +{math.log(value / before):.3f} nats"
        )
    else:
        text = f"validation perplexity is {value} at step {step}"
    evidence = (text, f"worst {worst[1]:.4g} at step {worst[0]}; last {series[-1][1]:.4g} at step {series[-1][0]}")
    return [
        Finding(
            "perplexity collapse",
            "numerics",
            "fatal" if above else "warning",
            evidence,
            f"resume from the best checkpoint before step {step}; compare the data read since the evaluation before it",
            step=step,
        )
    ]


def overflow_storm(rows: Rows, min_loss_scale: float = 1.0, window: int = 50, limit: int = 15) -> list[Finding]:
    """Too many overflows, or overflows although the loss scale can fall no further.

    A storm is ``limit`` overflows or more among ``window`` rows in a row. A start from 65536 that
    has to come down to 64 takes 10, which is healthy. At the floor (two overflows or more with
    ``loss_scale`` <= ``min_loss_scale``) skipping helps no more: fatal.
    """
    rows = [r for r in last_of_each_step(rows) if r.get("overflow") is not None]
    found = []
    floor = [r for r in rows if r["overflow"] and (r.get("loss_scale") or math.inf) <= min_loss_scale]
    if len(floor) >= 2:
        found.append(
            Finding(
                "loss scale at its floor",
                "numerics",
                "fatal",
                (f"{len(floor)} overflows at loss_scale <= {min_loss_scale:g}, the first at step {floor[0]['step']}",),
                "the gradients themselves overflow: inspect_gradients, lint_eps, a lower learning_rate, or float32",
                step=floor[0]["step"],
            )
        )
    flags = np.array([bool(r["overflow"]) for r in rows], dtype=np.int64)
    counts = np.convolve(flags, np.ones(min(window, max(flags.size, 1)), dtype=np.int64)) if flags.size else flags
    if counts.size and counts.max() >= limit:
        last = int(np.argmax(counts >= limit))
        first = int(np.flatnonzero(flags[max(0, last - window + 1) :])[0]) + max(0, last - window + 1)
        skipped = int(flags.sum())
        evidence = (
            f"{int(counts.max())} overflows within {window} rows, the storm begins at step {rows[first]['step']}",
            f"{skipped} of {len(rows)} steps were skipped ({skipped / len(rows):.0%})",
        )
        found.append(
            Finding(
                "overflow storm",
                "numerics",
                "fatal" if skipped > len(rows) / 2 else "warning",
                evidence,
                "lower init_loss_scale or loss_scale_factor; if overflows go on, run inspect_gradients on such a batch",
                step=rows[first]["step"],
            )
        )
    return found


def gradient_norms(rows: Rows, window: int = 50, factor: float = 10.0) -> list[Finding]:
    """Gradient norms that are dead (exactly 0 on 5 steps in a row) or explode.

    Exploding: above ``factor`` times the trailing median on 3 of 10 rows in a row, or above
    10 * ``factor`` times once. Overflow steps are left out, their norm is meaningless.
    """
    kept = [r for r in last_of_each_step(rows) if not r.get("overflow")]
    steps, norms = _finite(kept, "grad_norm")
    found = []
    dead = _first_run((norms == 0).tolist(), 5)
    if dead is not None:
        found.append(
            Finding(
                "dead gradient",
                "numerics",
                "fatal",
                (f"grad_norm is exactly 0 from step {steps[dead]} on {int((norms == 0).sum())} rows",),
                "nothing is learned: inspect_gradients shows where the graph is cut; see that labels are not all -100",
                step=int(steps[dead]),
            )
        )
    before = trailing(norms, window, 10, median)
    ratios = np.divide(norms, before, out=np.zeros(norms.size), where=before > 0)
    high = ratios > factor
    often = np.convolve(high, np.ones(10, dtype=np.int64))[: norms.size] >= 3 if norms.size else high
    once = ratios > 10 * factor
    if (often | once).any():
        first = int(np.flatnonzero(high)[0])
        peak = int(np.argmax(ratios))
        found.append(
            Finding(
                "exploding gradient",
                "numerics",
                "warning",
                (
                    f"grad_norm {norms[peak]:.4g} at step {steps[peak]}: {ratios[peak]:.0f} times the trailing median",
                    f"{int(high.sum())} rows above {factor:g} times, from step {steps[first]}",
                ),
                "lower learning_rate, lengthen warmup_steps, check max_grad_norm; look at the first such batch",
                step=int(steps[first]),
            )
        )
    return found


def _finite(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    steps, values = column(last_of_each_step(rows), name)
    keep = np.isfinite(values)
    return steps[keep], values[keep]


def _first_run(flags: list[bool], length: int) -> int | None:
    """Where the first ``length`` true values in a row begin, or None."""
    count = 0
    for i, flag in enumerate(flags):
        count = count + 1 if flag else 0
        if count == length:
            return i - length + 1
    return None
