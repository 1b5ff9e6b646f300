"""What the machine does to a run: speed, memory, disk. Functions as in ``detectors.py``.

They say that something is wrong on this rank and nothing about the data. Costs two sorted lists of 50
numbers a step. ``throughput`` compares with this run's own past, so a run that is slow from the start
is not noticed; ``memory`` looks at the whole life of a process and finds a leak late that begins late.
"""

from typing import Sequence

from workbench.alarm_config import AlarmConfig
from workbench.train.detectors import Memory, Row, Told, middle, remember, spread

_REFERENCES = 20  # blocks whose median is the usual speed
_MOST_BLOCKS, _FEWEST_BLOCKS = 120, 25
_FIRST_BLOCK = 10  # rows


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

    Readings become medians of blocks of rows, at most 120 for the whole life of the process: when there
    are more, neighbours are merged. Without the first fifth, the medians of the three thirds of the blocks
    give a robust slope (Tukey 1977, "Exploratory Data Analysis", ch. 10, the resistant line). It is a leak
    if the last third lies above the first by more than ``memory_mb``, ``memory_share`` of the level and
    the scatter from block to block, and a quarter of that came in either half of the way: a
    cache that fills has its growth in one of them. A fall by 30 % is another process (a resumed run).
    """
    rss = row.get("rss_mb")
    if rss is None:
        return None
    blocks = memory.get("blocks", [])
    if blocks and rss < 0.7 * blocks[-1][1]:
        memory.clear()
    memory["rows"] = memory.get("rows", 0) + 1
    if memory["rows"] <= config.memory_warmup_steps:
        return None
    size = memory.setdefault("size", _FIRST_BLOCK)
    remember(memory, "open", rss, size)
    if len(memory["open"]) < size:
        return None
    blocks = memory.setdefault("blocks", [])
    blocks.append([row["step"], middle(memory["open"])])
    memory["open"] = []
    if len(blocks) == _MOST_BLOCKS:
        memory["blocks"] = blocks = [[b[0], (a[1] + b[1]) / 2] for a, b in zip(blocks[::2], blocks[1::2])]
        memory["size"] = 2 * size
    if len(blocks) < _FEWEST_BLOCKS:
        return None
    return _growth(blocks[len(blocks) // 5 :], config)


def _growth(blocks: Sequence[Sequence[float]], config: AlarmConfig) -> Told | None:
    steps, levels = zip(*blocks)
    third = len(levels) // 3
    parts = (slice(None, third), slice(third, -third), slice(-third, None))
    first, second, last = (middle(levels[part]) for part in parts)
    growth = last - first
    noise = spread([b - a for a, b in zip(levels, levels[1:])])
    limit = max(config.memory_mb, config.memory_share * first, 2 * noise)
    if growth > limit and min(second - first, last - second) > growth / 4:
        slope = 1000 * growth / (middle(steps[parts[2]]) - middle(steps[parts[0]]))
        message = (
            f"host memory grows {slope:.1f} MB per 1000 steps, {growth:.0f} MB so far on {first:.0f} MB, limit "
            f"{limit:.0f} MB: run watch_dataset on the data pipeline; look for tensors kept from step to step"
        )
        return Told(True, message, steps[0])
    return Told(False) if last - second <= limit / 10 else None


def disk(memory: Memory, row: Row, config: AlarmConfig) -> Told | None:
    """Free space below ``disk_checkpoints`` of the last known ``checkpoint_mb`` and ``disk_reserve_mb`` beside them."""
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
