"""Faults written into traces of healthy runs, to try the alarms: which is raised, and how much later.

    trace = clean_trace(seed=1)
    raised(trace, AlarmConfig())                       [] on a healthy run
    hurt = DRILLS["loss spike"].inject(trace, at=300)
    raised(hurt, AlarmConfig())                        [Alarm(kind="loss_spike", step=300, ...)]

A trace is made up: a falling loss with heavy-tailed noise, four ranks, a loss scale that comes down from
65536, steps of about a second of which a few are slow, memory that fills up and levels off. The
bounds are what the rules promise at the default limits, and tests hold them to it. Training
itself is not run here; tests/test_alarm_drills.py does that for the faults where it matters.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Callable

import numpy as np

from workbench.alarm_config import AlarmConfig
from workbench.config import TrainConfig
from workbench.evaluate.perplexity import Perplexity
from workbench.train.alarms import Alarm, Alarms

RANKS = 4
_EVERY = 25  # steps between evaluations
_TOKENS = 16000  # targets a step

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Trace:
    """The metric rows of a run, and its evaluations as (step, perplexity)."""

    rows: Rows
    evaluations: list[tuple[int, Perplexity]]


@dataclass(frozen=True)
class Drill:
    """A fault: what happens, which alarm it has to raise, and at most how many steps later."""

    fault: str
    kind: str
    bound: int
    change: Callable[[Trace, int], Trace]

    def inject(self, trace: Trace, at: int) -> Trace:
        """``trace`` with the fault from step ``at`` on; the given one stays as it is."""
        return self.change(trace, at)


def clean_trace(seed: int, steps: int = 600) -> Trace:
    """A healthy run of ``steps`` steps."""
    rng = np.random.default_rng(seed)
    t = np.arange(steps)
    trend = 1.5 + 6.1 * np.exp(-t / 60) + 1.5 * np.exp(-t / 400)
    ranks = trend[:, None] + rng.standard_t(5, (steps, RANKS)) * 0.1
    norm = (0.8 + 6 * np.exp(-t / 15)) * np.exp(rng.normal(0, 0.3, steps))
    # Slow steps come alone and as a neighbour's job of up to 30 steps.
    slow = 1 + 4 * (rng.random(steps) < 0.03)
    for start in rng.integers(0, steps, 2):
        slow[start : start + int(rng.integers(5, 30))] = 5
    seconds = slow * np.exp(rng.normal(0, 0.1, steps))
    rss = 1000 + 40 * (1 - np.exp(-t / 30)) + rng.normal(0, 1.5, steps) + 60 * (t % _EVERY == 0)
    rows, scale = [], 65536.0
    for i in range(steps):
        overflow = int(scale > 1024)
        rows.append(
            {
                "step": i + 1,
                "loss": float(np.float32(ranks[i].mean())),
                "rank_losses": ranks[i].tolist(),
                "grad_norm": math.inf if overflow else float(np.float32(norm[i])),
                "overflow": overflow,
                "loss_scale": scale,
                "step_seconds": float(seconds[i]),
                "tokens_per_second": float(_TOKENS / seconds[i]),
                "rss_mb": float(rss[i]),
            }
        )
        scale = scale / 2 if overflow else scale
        if i % 20 == 0:
            rows[-1] |= {"disk_free_mb": 50_000 - 0.5 * i, "checkpoint_mb": 400.0}
    noise = np.exp(rng.normal(0, 0.02, steps))
    measured = [(at, _perplexity(math.exp(trend[at - 1]) * noise[at - 1])) for at in range(_EVERY, steps + 1, _EVERY)]
    return Trace(rows, measured)


def raised(trace: Trace, config: AlarmConfig, train: TrainConfig = TrainConfig()) -> list[Alarm]:
    """The alarms of a whole trace in their order, evaluations after the step that they follow."""
    alarms, found, measured = Alarms(config, train, RANKS), [], dict(trace.evaluations)
    for row in trace.rows:
        found += alarms.after_step(row)
        if row["step"] in measured:
            found += alarms.after_evaluation(row["step"], measured[row["step"]])
    return found


def _perplexity(value: float) -> Perplexity:
    return Perplexity(value, 0.95 * value, 1.05 * value, 50_000, 128)


def _rows(change: Callable[[dict, int], dict], steps: int | None = None) -> Callable[[Trace, int], Trace]:
    """A fault that changes fields of the rows, given each row and how many steps ago it began, for ``steps`` steps."""

    def apply(trace: Trace, at: int) -> Trace:
        end = math.inf if steps is None else at + steps
        rows = [{**r, **change(r, r["step"] - at)} if at <= r["step"] < end else r for r in trace.rows]
        return replace(trace, rows=rows)

    return apply


def _collapse(trace: Trace, at: int) -> Trace:
    # The article's collapse, 28.6 to 132.4, as a factor.
    hurt = [(s, _perplexity(p.value * 132.4 / 28.6)) if s >= at else (s, p) for s, p in trace.evaluations]
    return replace(trace, evaluations=hurt)


def _rank_apart(row: dict, _: int) -> dict:
    return {"rank_losses": [row["rank_losses"][0] + 4.2, *row["rank_losses"][1:]]}


def _slower(row: dict, _: int) -> dict:
    return {"step_seconds": 3 * row["step_seconds"], "tokens_per_second": row["tokens_per_second"] / 3}


def _overflowing(row: dict, ago: int) -> dict:
    return {"overflow": 1, "grad_norm": math.inf, "loss_scale": max(1.0, row["loss_scale"] / 2**ago)}


DRILLS = {
    "perplexity collapse": Drill(
        "validation perplexity x4.63, the article's jump", "perplexity_jump", _EVERY, _collapse
    ),
    "loss spike": Drill(
        "a batch with 1.5 nats more loss", "loss_spike", 0, _rows(lambda r, _: {"loss": r["loss"] + 1.5}, steps=1)
    ),
    "NaN loss": Drill(
        "the loss is NaN, every step overflows",
        "non_finite_loss",
        2,
        _rows(lambda r, _: {"loss": math.nan, "grad_norm": math.nan, "overflow": 1}),
    ),
    "endless overflow": Drill(
        "every step overflows, from scale 1024 down to 1", "scale_floor", 10, _rows(_overflowing)
    ),
    "ranks apart": Drill("one rank's loss 4.2 nats above the others", "rank_divergence", 20, _rows(_rank_apart)),
    "dead gradient": Drill("the gradient is zero", "dead_gradient", 4, _rows(lambda r, _: {"grad_norm": 0.0})),
    "vanishing gradient": Drill(
        "the gradient is a hundred thousandth",
        "dead_gradient",
        4,
        _rows(lambda r, _: {"grad_norm": r["grad_norm"] / 1e5}),
    ),
    "exploding gradient": Drill(
        "one gradient 300 times as large",
        "exploding_gradient",
        0,
        _rows(lambda r, _: {"grad_norm": r["grad_norm"] * 300}, steps=1),
    ),
    "large gradients": Drill(
        "gradients 30 times as large", "exploding_gradient", 4, _rows(lambda r, _: {"grad_norm": r["grad_norm"] * 30})
    ),
    "slow machine": Drill("a third of the speed", "throughput", 150, _rows(_slower)),
    "leak": Drill("0.5 MB a step are kept", "memory", 240, _rows(lambda r, ago: {"rss_mb": r["rss_mb"] + 0.5 * ago})),
    "full disk": Drill(
        "1 GB is free", "disk", 20, _rows(lambda r, _: {"disk_free_mb": 1000.0} if "disk_free_mb" in r else {})
    ),
}
