"""The daily health report: four numbers a day, limits that learn, three days in a row, then a person.

    loss_std             nats; noise of the loss without its trend: sqrt(mean(diff^2) / 2), the mean
                         square successive difference (von Neumann 1941, Ann. Math. Stat. 12, 153)
    device_utilization   share 0..1 of the device; on a CPU the median share of the cores
    memory_growth_rate   MB per 1000 steps (Theil-Sen, leaks.memory_slope)
    step_time_variance   variance of the step time over its squared mean (no unit), so that one
                         limit fits models of any size

A day is over the limit when a number is worse than median + ``k`` robust deviations (1.4826 * MAD) of
the days within limits before it; the deviation counts as at least 5 % of the median. Days over the
limit never enter that baseline. Before ``baseline`` such days exist, ABSOLUTE_LIMITS hold: chosen,
not measured. A metric over its limit on ``streak`` days in a row asks for a manual review, once a
streak; a day within limits ends the streak; a day without the number neither counts nor ends it.
False alarms on simulated clean days (2026-11-29, 20 seeds x 100 days, tests/test_health.py): no
review where the numbers scatter by 1.5 to 33 % from day to day, one in 1,000 days at four times that.
Three days are too slow for a NaN: a loss that is not finite (spikes.spoilt_rows) is fatal at once.

Costs one pass over the rows. A short run has no days: ``periods`` cuts it into equal slices, and
everything here says the same about those. It does not say why; triage does.
"""

import math
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from workbench.diagnose.columns import Rows, column, last_of_each_step, spread
from workbench.diagnose.findings import Finding
from workbench.diagnose.leaks import longest_process, memory_slope
from workbench.diagnose.spikes import spoilt_rows
from workbench.errors import DataError, SettingError, unknown_name

METRICS = ("loss_std", "device_utilization", "memory_growth_rate", "step_time_variance")
LOWER_IS_WORSE = ("device_utilization",)
ABSOLUTE_LIMITS = {
    "loss_std": 0.5,
    "device_utilization": 0.3,
    "memory_growth_rate": 100.0,
    "step_time_variance": 0.25,
}
_LAYER = {
    "loss_std": "numerics",
    "device_utilization": "data pipeline",
    "memory_growth_rate": "memory",
    "step_time_variance": "data pipeline",
}
# A deviation of zero (days alike to the last digit) would make any change an alarm. The floor that
# does not scale with the median is for the growth rate, whose median is about zero.
_RELATIVE_FLOOR = 0.05
_FLOOR = {"loss_std": 0.002, "device_utilization": 0.01, "memory_growth_rate": 5.0, "step_time_variance": 0.0005}


@dataclass(frozen=True)
class HealthDay:
    """The four numbers of one day (or period); None where there was nothing to compute one from."""

    day: int
    loss_std: float | None = None
    device_utilization: float | None = None
    memory_growth_rate: float | None = None
    step_time_variance: float | None = None
    non_finite_steps: int = 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "HealthDay":
        """A day from a mapping with these fields. Raises DataError for a missing day or a non-number."""
        for name in ("day", *METRICS, "non_finite_steps"):
            value = row.get(name)
            if (value is None and name == "day") or isinstance(value, (str, bool)):
                raise DataError(f"health row: {name}={value!r}, expected a number")
        return cls(
            day=int(row["day"]),
            non_finite_steps=int(row.get("non_finite_steps") or 0),
            **{n: None if row.get(n) is None else float(row[n]) for n in METRICS},
        )


@dataclass(frozen=True)
class Reading:
    """One number of one day against its limit; ``streak`` counts days over it in a row, this one included."""

    day: int
    metric: str
    value: float | None
    limit: float
    over: bool
    streak: int


@dataclass(frozen=True)
class HealthReport:
    """All readings in order of day and metric, the reviews asked for, and everything as findings."""

    readings: tuple[Reading, ...]
    reviews: tuple[Reading, ...]
    findings: tuple[Finding, ...]


def daily_metrics(rows: Rows, day: int = 1, cores: int = 1) -> HealthDay:
    """The four numbers of the rows of one day.

    ``cores`` turns ``cpu_percent`` (percent of one core) into a share of the machine. Overflow steps
    and values that are not finite are left out of loss_std. Fewer than 10 usable rows give None.
    Raises DataError for wrong rows, SettingError for ``cores`` below 1.
    """
    if cores < 1:
        raise SettingError(f"cores={cores!r} is not allowed: at least 1")
    rows = last_of_each_step(rows)
    _, loss = column([r for r in rows if not r.get("overflow")], "loss")
    loss = loss[np.isfinite(loss)]
    _, share = column(rows, "cpu_percent")
    _, seconds = column(rows, "step_seconds")
    steps, rss = longest_process(*column(rows, "rss_mb"))
    return HealthDay(
        day=day,
        loss_std=float(np.sqrt(np.mean(np.diff(loss) ** 2) / 2)) if loss.size >= 10 else None,
        device_utilization=float(np.median(share)) / 100 / cores if share.size >= 10 else None,
        memory_growth_rate=memory_slope(steps, rss, warmup=0).mb_per_1000_steps if rss.size >= 10 else None,
        step_time_variance=float(np.var(seconds) / np.mean(seconds) ** 2) if seconds.size >= 10 else None,
        non_finite_steps=len(spoilt_rows(rows)),
    )


def periods(rows: Rows, count: int = 10, cores: int = 1, warmup: float = 0.2) -> list[HealthDay]:
    """The run cut into ``count`` slices of (nearly) equal length, each as a HealthDay numbered from 1.

    The first ``warmup`` share of the rows (compilation, caches that fill, the steep part of the loss)
    is left out. Raises DataError if a slice would hold fewer than 10 rows, SettingError for a count
    below 1 or a ``warmup`` outside 0..0.9.
    """
    if count < 1:
        raise SettingError(f"count={count!r} is not allowed: at least 1 period")
    if not 0 <= warmup <= 0.9:
        raise SettingError(f"warmup={warmup!r} is not allowed: between 0 and 0.9")
    rows = last_of_each_step(rows)
    rows = rows[int(warmup * len(rows)) :]
    if len(rows) < 10 * count:
        raise DataError(
            f"{len(rows)} steps after the warm-up do not make {count} periods of 10: run longer or lower count"
        )
    edges = np.linspace(0, len(rows), count + 1).astype(int)
    return [daily_metrics(rows[a:b], day=i, cores=cores) for i, (a, b) in enumerate(zip(edges, edges[1:]), start=1)]


def health_report(
    days: Iterable[HealthDay],
    baseline: int = 7,
    k: float = 4.0,
    streak: int = 3,
    limits: Mapping[str, float] | None = None,
    word: str = "day",
) -> HealthReport:
    """Readings, reviews and findings of ``days`` (in order).

    ``limits`` replaces some of ABSOLUTE_LIMITS; ``word`` is what a day is called in the text
    (``"period"`` for a short run). Raises SettingError for a metric that does not exist or counts
    below 1, DataError for days out of order.
    """
    days = list(days)
    for name, value in (("baseline", baseline), ("streak", streak)):
        if value < 1:
            raise SettingError(f"{name}={value!r} is not allowed: at least 1")
    for name in limits or {}:
        if name not in METRICS:
            raise unknown_name("health metric", name, METRICS)
    if any(b.day <= a.day for a, b in zip(days, days[1:])):
        raise DataError("the days are not in order: each day's number must be above the one before")
    absolute = {**ABSOLUTE_LIMITS, **(limits or {})}
    good: dict[str, list[float]] = {name: [] for name in METRICS}
    run = dict.fromkeys(METRICS, 0)
    readings, reviews, findings = [], [], []
    for day in days:
        if day.non_finite_steps:
            findings.append(
                Finding(
                    "non-finite loss",
                    "numerics",
                    "fatal",
                    (f"{word} {day.day}: {day.non_finite_steps} steps with a loss that is not finite",),
                    "stop now; run triage on this run",
                )
            )
        for name in METRICS:
            value = getattr(day, name)
            limit = _limit(name, good[name], baseline, k, absolute[name])
            sign = -1 if name in LOWER_IS_WORSE else 1
            known = value is not None and not math.isnan(value)
            over = known and sign * value > sign * limit
            if known:
                run[name] = run[name] + 1 if over else 0
                if not over:
                    good[name].append(value)
            reading = Reading(day.day, name, value, limit, over, run[name])
            readings.append(reading)
            if over and run[name] == streak:
                reviews.append(reading)
                findings.append(_review(reading, word))
    return HealthReport(tuple(readings), tuple(reviews), tuple(findings))


def _limit(name: str, good: Sequence[float], baseline: int, k: float, absolute: float) -> float:
    if len(good) < baseline:
        return absolute
    middle = float(np.median(good))
    deviation = max(float(spread(np.array(good))), _RELATIVE_FLOOR * abs(middle), _FLOOR[name])
    return middle - k * deviation if name in LOWER_IS_WORSE else middle + k * deviation


def _review(reading: Reading, word: str) -> Finding:
    side = "below" if reading.metric in LOWER_IS_WORSE else "above"
    return Finding(
        "manual review",
        _LAYER[reading.metric],
        "warning",
        (
            f"{reading.metric} {side} its limit {reading.limit:.4g} on {reading.streak} {word}s in a row, "
            f"the last is {word} {reading.day} with {reading.value:.4g}",
        ),
        "a person looks at this run: run triage on it, then decide to go on or to stop",
    )
