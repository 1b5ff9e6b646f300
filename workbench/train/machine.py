"""What the machine does to a run: speed, memory, disk. Functions as in ``detectors.py``.

They say that something is wrong on this rank and nothing about the data. Costs two sorted lists of 50
numbers a step. ``throughput`` compares with this run's own past, so a run that is slow from the start
is not noticed; a leak is noticed once it has grown by ``memory_mb`` and for as long as that takes again.
"""

from typing import Sequence

from workbench.alarm_config import AlarmConfig
from workbench.train.detectors import Memory, Row, Told, middle, remember, spread

_REFERENCES = 20  # blocks whose median is the usual speed
# Rows of the shortest block, and how many of each length are kept; odd, like a third of the latter, so that a
# median is one of the readings: between two of them a single step would look like a slope.
_BLOCK, _BLOCKS = 11, 33


def throughput(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """The median speed of ``throughput_window`` rows below ``throughput_share`` of what it was.

    It was the median over blocks of so many rows each, the last 20, those of slow times left out. Slow
    times of less than ``throughput_seconds`` of steps are a neighbour on the machine, not an alarm.
    """
    speed, seconds = row.get("tokens_per_second"), row.get("step_seconds")
    if speed is None or seconds is None:
        return None
    remember(memory, "speeds", speed, config.throughput_window)
    if len(memory["speeds"]) < config.throughput_window:
        return None
    now, usual = middle(memory["speeds"]), memory.setdefault("usual", [])
    limit = config.throughput_share * middle(usual) if len(usual) >= 2 else 0.0
    if now >= limit:
        memory.pop("first", None)
        memory["slow_seconds"] = 0.0
        memory["rows"] = memory.get("rows", 0) + 1
        if memory["rows"] % config.throughput_window == 0:
            remember(memory, "usual", now, _REFERENCES)
        return Told(False)
    memory.setdefault("first", row["step"])
    memory["slow_seconds"] += seconds
    if memory["slow_seconds"] < config.throughput_seconds:
        return None
    message = (
        f"{now:.4g} tokens a second, limit {limit:.4g}, for {memory['slow_seconds']:.0f} s: look at data_seconds in "
        "the metrics, at what else runs on this machine, and at its clock and temperature"
    )
    return Told(True, message, memory["first"])


def memory_growth(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """This process grows, and goes on growing.

    Readings become medians of 11 rows, the lower of two such a block of 22, and so on; the last 33 blocks
    of each length are kept, and each length looks for the leaks of its own pace. The medians of the three
    thirds of 33 blocks give a robust slope (Tukey 1977, "Exploratory Data Analysis", the resistant
    line). It is a leak if the last third lies above the first by more than ``memory_mb``,
    ``memory_share`` of the level and the scatter from block to block, and a quarter of that came in
    either half of the way: a cache that fills has its growth in one of them. A fall by 30 % is another
    process (a resumed run), which starts anew. So is the alarm over: its own length has levelled off.
    """
    rss = row.get("rss_mb")
    if rss is None:
        return None
    if memory.get("levels") and rss < 0.7 * memory["levels"][0][-1][1]:
        memory.clear()
        memory["rows"] = 1
        return Told(False)
    memory["rows"] = memory.get("rows", 0) + 1
    if memory["rows"] <= config.memory_warmup_steps:
        return None
    remember(memory, "open", rss, _BLOCK)
    if len(memory["open"]) < _BLOCK:
        return None
    block, number = [row["step"], middle(memory.pop("open"))], (memory["rows"] - config.memory_warmup_steps) // _BLOCK
    told, levels = None, memory.setdefault("levels", [])
    for level in range((number & -number).bit_length()):  # twice as long for every time that 2 divides the number
        if level:
            block = [block[0], min(levels[level - 1][-2][1], block[1])]
        if level == len(levels):
            levels.append([])
        levels[level].append(block)
        del levels[level][:-_BLOCKS]
        said = _growth(levels[level], config) if len(levels[level]) == _BLOCKS else None
        if said and said.raised:
            memory.setdefault("by", level)
            told = said
        elif said and memory.get("by") == level:
            del memory["by"]
            told = told or said
    return told


def _growth(blocks: Sequence[Sequence[float]], config: AlarmConfig) -> Told | None:
    steps, levels = zip(*blocks)
    third = len(levels) // 3
    first, second, last = (middle(levels[i : i + third]) for i in (0, third, 2 * third))
    growth = last - first
    noise = spread([b - a for a, b in zip(levels, levels[1:])])
    limit = max(config.memory_mb, config.memory_share * first, 2 * noise)
    if growth > limit and min(second - first, last - second) > growth / 4:
        slope = 1000 * growth / (middle(steps[-third:]) - middle(steps[:third]))
        message = (
            f"host memory grows {slope:.1f} MB per 1000 steps, {growth:.0f} MB since step {steps[0]} on {first:.0f} MB, "
            f"limit {limit:.0f} MB: run watch_dataset on the data pipeline; look for tensors kept from step to step"
        )
        return Told(True, message, steps[0])
    return Told(False) if last - second <= limit / 10 else None


def disk(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """Free space below ``disk_checkpoints`` times the last known ``checkpoint_mb``, and ``disk_reserve_mb``."""
    if row.get("checkpoint_mb") is not None:
        memory["checkpoint_mb"] = row["checkpoint_mb"]
    free = row.get("disk_free_mb")
    if free is None:
        return None
    need = config.disk_checkpoints * memory.get("checkpoint_mb", 0.0) + config.disk_reserve_mb
    if free >= need:
        return Told(False) if free >= 1.1 * need else None
    message = (
        f"{free:.0f} MB free on the run's disk, limit {need:.0f} MB ({config.disk_checkpoints:g} checkpoints and "
        f"{config.disk_reserve_mb:g} MB): make room or lower save_total_limit, else the next checkpoint fails"
    )
    return Told(True, message)
