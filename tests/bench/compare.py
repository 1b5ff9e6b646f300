"""From measured runs to what is said about them: who did the same work, who is best, by what ratio.

Pure functions over ``measure.Run``. A group's best setting is the one with the lowest median of
``seconds``. A ratio is the other's seconds over ours: above 1, ours is faster.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import DataError

from .measure import Entry, Run, summary

SAME = ("tokens", "sum_of_ids", "documents")


def same_work(runs: Mapping[str, Sequence[Run]]) -> dict[str, int]:
    """The tokens, sum of ids and documents that every run reports. Raises DataError where two differ."""
    seen: dict[tuple, str] = {}
    for name, several in runs.items():
        for run in several:
            seen.setdefault(tuple(run.said[key] for key in SAME), name)
    if len(seen) != 1:
        told = "; ".join(f"{name}: {dict(zip(SAME, values, strict=True))}" for values, name in seen.items())
        raise DataError(f"the pipelines did not do the same work, so times cannot be compared: {told}")
    return dict(zip(SAME, next(iter(seen)), strict=True))


def median_seconds(runs: Sequence[Run]) -> float:
    """The median of the seconds that the pipeline itself reports."""
    return statistics.median(run.said["seconds"] for run in runs)


def fastest(entries: Sequence[Entry], runs: Mapping[str, Sequence[Run]], count: int = 1) -> dict[str, list[Entry]]:
    """The ``count`` fastest measured entries of every group, the fastest first."""
    groups: dict[str, list[Entry]] = {}
    for entry in sorted((e for e in entries if e.name in runs), key=lambda e: median_seconds(runs[e.name])):
        groups.setdefault(entry.group, []).append(entry)
    return {group: several[:count] for group, several in groups.items()}


def ratios(best: Mapping[str, Entry], runs: Mapping[str, Sequence[Run]], own: str = "ours") -> dict[str, Any]:
    """For every other group: its best's seconds over those of group ``own``, of medians and round by round.

    Empty where ``own`` was not measured.
    """
    if own not in best:
        return {}
    mine = runs[best[own].name]
    told = {}
    for group, entry in best.items():
        if group != own:
            theirs = runs[entry.name]
            by_round = [t.said["seconds"] / m.said["seconds"] for t, m in zip(theirs, mine, strict=True)]
            told[group] = {
                "of_medians": round(median_seconds(theirs) / median_seconds(mine), 3),
                "of_wall_medians": round(
                    statistics.median(t.wall_seconds for t in theirs) / statistics.median(m.wall_seconds for m in mine),
                    3,
                ),
                "by_round": [round(value, 3) for value in by_round],
            }
    return told


def report(runs: Mapping[str, Sequence[Run]], size: int) -> dict[str, dict[str, Any]]:
    """``measure.summary`` of every entry, and MB/s and Mtok/s from its median seconds; ``size`` in bytes."""
    told = {}
    for name, several in runs.items():
        seconds = median_seconds(several)
        speed = {
            "mb_per_second": round(size / 1e6 / seconds, 3),
            "mtok_per_second": round(several[0].said["tokens"] / 1e6 / seconds, 3),
        }
        told[name] = speed | summary(several)
    return told


def table(told: Mapping[str, Mapping[str, Any]]) -> str:
    """Lines to print: an entry a line, the fastest first; stages are those of its last run."""
    width = max(map(len, told), default=0)
    lines = [f"{'':{width}}  seconds (least–most)    MB/s  Mtok/s  process s  peak MB  stages"]
    for name, row in sorted(told.items(), key=lambda pair: pair[1]["seconds"]):
        raw = row["raw"]["seconds"]
        stages = " ".join(f"{stage} {value:.1f}" for stage, value in row["said"][-1].get("stages", {}).items())
        lines.append(
            f"{name:{width}}  {row['seconds']:7.2f} ({min(raw):.2f}–{max(raw):.2f})".ljust(width + 23)
            + f"{row['mb_per_second']:7.2f} {row['mtok_per_second']:7.2f} {row['wall_seconds']:10.2f}"
            + f" {row['peak_memory_mb']:8.0f}  {stages}"
        )
    return "\n".join(lines)
