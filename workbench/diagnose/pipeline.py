"""The data pipeline as a run's own metrics show it: steps lost or repeated, short batches, waiting.

Costs one pass over the rows. It sees only what was logged: whether text was lost inside the pipeline
is for the token ledger of the data rooms to say, and a leak in the pipeline alone for
``leaks.watch_dataset``. The limits are chosen, not measured.
"""

from collections import Counter

import numpy as np

from workbench.diagnose.columns import Rows, column, last_of_each_step
from workbench.diagnose.findings import Finding


def step_order(rows: Rows) -> list[Finding]:
    """Steps logged twice or missing: what a resume at the wrong data position leaves behind."""
    last_of_each_step(rows)  # refuses a row without a step
    counts = Counter(row["step"] for row in rows)
    found = []
    twice = sorted(step for step, count in counts.items() if count > 1)
    if twice:
        found.append(
            Finding(
                "step logged twice",
                "data pipeline",
                "warning",
                (f"{len(twice)} steps stand in the log more than once, {twice[0]} to {twice[-1]}",),
                "normal after a resume from an older checkpoint; else two processes write one run folder",
                step=twice[0],
            )
        )
    steps = sorted(counts)
    strides = np.diff(steps)
    # A run may log every n-th step; the commonest stride is the rule, a larger one is a hole.
    if strides.size and (strides > (usual := int(np.median(strides)))).any():
        at = int(np.flatnonzero(strides > usual)[0])
        found.append(
            Finding(
                "steps missing",
                "data pipeline",
                "warning",
                (f"after step {steps[at]} the log goes on at {steps[at + 1]}, every {usual} was usual",),
                "see whether a resume skipped data: compare the samples consumed with step * batch_size",
                step=int(steps[at]),
            )
        )
    return found


def short_batches(rows: Rows) -> list[Finding]:
    """3 steps or more that held less than half the usual tokens (tokens a second * seconds)."""
    rows = [r for r in last_of_each_step(rows) if r.get("tokens_per_second") is not None and r.get("step_seconds")]
    steps, rate = column(rows, "tokens_per_second")
    _, seconds = column(rows, "step_seconds")
    tokens = rate * seconds
    if tokens.size < 10:
        return []
    usual = float(np.median(tokens))
    low = np.flatnonzero(tokens < usual / 2)
    if low.size < 3:
        return []
    first = int(steps[low[0]])
    return [
        Finding(
            "short batches",
            "data pipeline",
            "warning",
            (f"{low.size} steps held under half of the usual {usual:.0f} tokens, the first is step {first}",),
            "look at the token ledger: windows that are mostly padding, a source that ran dry, or a wrong batch_size",
            step=first,
        )
    ]


def waiting(rows: Rows, factor: float = 1.5) -> list[Finding]:
    """Steps that became slower: median of the last fifth over ``factor`` times that of the second fifth.

    If the CPU share fell at the same time by a quarter or more, the step waits (for data, for a disk,
    for another rank); if not, it computes more or shares the cores. At least 50 rows are needed.
    """
    rows = [r for r in last_of_each_step(rows) if r.get("step_seconds") is not None]
    steps, seconds = column(rows, "step_seconds")
    if seconds.size < 50:
        return []
    fifth = seconds.size // 5
    early, late = float(np.median(seconds[fifth : 2 * fifth])), float(np.median(seconds[-fifth:]))
    if late <= factor * early:
        return []
    evidence = [f"a step took {early:.3g} s early and {late:.3g} s in the last fifth: x{late / early:.2f}"]
    slow = np.flatnonzero(seconds <= factor * early)
    first = int(steps[min(slow[-1] + 1, steps.size - 1)]) if slow.size else int(steps[0])
    share = [r.get("cpu_percent") for r in rows]
    fell = False
    if all(s is not None for s in share):
        before, after = float(np.median(share[fifth : 2 * fifth])), float(np.median(share[-fifth:]))
        fell = after < 0.75 * before
        evidence.append(f"CPU share went from {before:.0f}% to {after:.0f}% of a core")
    if fell:
        cause, next_step = (
            "waiting for data",
            "time the data pipeline alone; more prefetch, fewer Python map functions, a faster disk",
        )
    else:
        cause, next_step = (
            "steps slow down",
            "see what else uses the cores, and whether shapes change (each new one compiles)",
        )
    return [Finding(cause, "data pipeline", "warning", tuple(evidence), next_step, step=first)]
