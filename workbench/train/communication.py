"""How long gradients take to be summed over ranks, by the way they are bucketed, and how an AllReduce's time grows.

    times = measure_collectives([(p.name, p.size) for p in model.trainable_params()])
    print(times.table())
    times.predicted(plan_buckets(...))

Starts ranks on this machine (``launching.py``), 20 s and more, and compiles a ``Reducer`` for each
arm; what is timed is all that the step does: gather, collect, scatter. The arms take turns, so that
whatever else the machine does falls on all of them. On one machine the "link" is its memory and
loopback sockets: the fixed cost of a collective is real, the bandwidth is not a network's.

The article reports 41 % less communication time and 28 % more throughput on 128 cards for its size
groups, against nothing named; ``saved`` is ours against one collective a parameter, on this machine.
"""

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from workbench.config import TrainConfig
from workbench.device import joined_ranks, use_device
from workbench.launching import launch
from workbench.train.buckets import MIB, Bucket, plan_for

ARTICLE = {"communication": -0.41, "throughput": 0.28}  # with its size groups, 128 cards
BASELINE = "per parameter"
CURVE = tuple(4**n for n in range(5, 12))  # elements: 4 KiB to 16 MiB of float32


@dataclass(frozen=True)
class ArmTimes:
    """One way of bucketing: ``seconds`` (repeats,) from the first rank's clock."""

    name: str
    collectives: int
    bytes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = np.percentile(self.seconds, (25, 75))
        return float(low), float(high)


@dataclass(frozen=True)
class CommunicationTimes:
    """What ``measure_collectives`` found; ``curve`` is (bytes, median seconds) of single collectives."""

    workers: int
    repeats: int
    arms: tuple[ArmTimes, ...]
    curve: tuple[tuple[int, float], ...]
    latency: float  # seconds that any collective costs
    bandwidth: float  # bytes a second on top

    def arm(self, name: str) -> ArmTimes:
        return next(a for a in self.arms if a.name == name)

    def saved(self, name: str) -> float:
        """Share of the time of one collective a parameter that an arm saves, by the medians; below 0 if it costs."""
        return 1 - self.arm(name).median / self.arm(BASELINE).median

    def predicted(self, plan: Sequence[Bucket]) -> float:
        """Seconds of the collectives of a plan by the fit, without the copies around them."""
        return sum(self.latency + b.bytes / self.bandwidth for b in plan)

    def table(self) -> str:
        """The arms as text, the article's number beside the size groups'."""
        lines = [f"{'':<14}collectives     median   quartiles (ms)     against {BASELINE}"]
        for arm in self.arms:
            low, high = (1e3 * q for q in arm.quartiles)
            line = f"{arm.name:<14}{arm.collectives:>11}{1e3 * arm.median:>8.1f} ms  {low:>7.1f} – {high:<7.1f}"
            line += f"{-self.saved(arm.name):>+12.0%}" if arm.name != BASELINE else ""
            lines.append(line + (f"   (article: {ARTICLE['communication']:+.0%})" if arm.name == "size groups" else ""))
        size = self.arms[0].bytes / MIB
        lines.append(f"{self.workers} ranks on this machine, {size:.1f} MiB of gradients, {self.repeats} rounds")
        lines.append(f"one collective: {1e3 * self.latency:.2f} ms + 1 ms for every {self.bandwidth / 1e6:.0f} KB")
        return "\n".join(lines)


def arm_settings(bucket_mb: Sequence[float], size_groups: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The TrainConfig settings of each arm; one bucket is a limit that nothing reaches."""
    arms: dict[str, dict[str, Any]] = {
        BASELINE: {"bucket_by": "parameter"},
        "size groups": {"bucket_by": "size_groups", "bucket_size_groups": tuple(size_groups)},
        "one bucket": {"bucket_by": "bytes", "bucket_mb": 1e9},
    }
    return arms | {f"{mb:g} MiB": {"bucket_by": "bytes", "bucket_mb": float(mb)} for mb in bucket_mb}


def measure_collectives(
    sizes: Sequence[tuple[str, int]],
    workers: int = 2,
    repeats: int = 15,
    bucket_mb: Sequence[float] = (0.25, 1.0, 4.0),
    size_groups: Sequence[int] = TrainConfig().bucket_size_groups,
    timeout: float = 600,
) -> CommunicationTimes:
    """Time the sum of gradients of ``sizes`` (name, elements) over ``workers`` ranks, every arm ``repeats`` times.

    Raises LaunchFailed when the ranks do not come to an end.
    """
    asked = {"sizes": [list(s) for s in sizes], "repeats": repeats, "arms": arm_settings(bucket_mb, size_groups)}
    with tempfile.TemporaryDirectory(prefix="communication-") as folder:
        told = Path(folder) / "told.json"
        (Path(folder) / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        launch("-m", [__name__, str(Path(folder) / "asked.json"), str(told)], workers, timeout)
        found = json.loads(told.read_text(encoding="utf-8"))
    arms = []
    for name, seconds in found["arms"].items():
        plan = _plan(sizes, asked["arms"][name])
        arms.append(ArmTimes(name, len(plan), sum(b.bytes for b in plan), tuple(seconds)))
    curve = tuple((4 * int(n), float(np.median(seconds))) for n, seconds in found["curve"].items())
    return CommunicationTimes(workers, repeats, tuple(arms), curve, *fit(curve))


def fit(curve: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(latency s, bandwidth B/s) of seconds = latency + bytes / bandwidth, by least squares of relative errors."""
    size, seconds = np.asarray(curve, float).T
    rows = np.stack((1 / seconds, size / seconds), 1)
    latency, per_byte = np.linalg.lstsq(rows, np.ones(len(size)), rcond=None)[0]
    return float(latency), float(1 / per_byte)


def _plan(sizes: Sequence[tuple[str, int]], settings: Mapping[str, Any]) -> tuple[Bucket, ...]:
    return plan_for(sizes, TrainConfig(**settings))


def _measure(asked: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """On every rank: {"arms": {name: seconds}, "curve": {elements: seconds}}."""
    import mindspore as ms
    from mindspore import ops

    from workbench.train.reducing import Reducer

    def compiled(sizes, settings):
        parameters = ms.ParameterTuple(
            [ms.Parameter(np.full(n, 1e-3, np.float32), name=f"{i}") for i, (_, n) in enumerate(sizes)]
        )
        reducer = Reducer(parameters, TrainConfig(**settings))

        def run():
            return reducer(parameters)

        return ms.jit(run)

    together = ops.AllReduce()
    work = {("arms", name): compiled(asked["sizes"], settings) for name, settings in asked["arms"].items()}
    work |= {("curve", str(n)): compiled([("", n)], {"bucket_by": "parameter"}) for n in CURVE}
    told: dict[str, dict[str, list[float]]] = {"arms": {}, "curve": {}}
    for repeat in range(asked["repeats"] + 1):
        for (kind, name), run in work.items():
            together(ms.Tensor([1.0])).asnumpy()  # both ranks begin now
            start = time.perf_counter()
            for tensor in run():
                tensor.asnumpy()
            if repeat:  # the first compiles
                told[kind].setdefault(name, []).append(time.perf_counter() - start)
    return told


if __name__ == "__main__":
    use_device("CPU")
    with joined_ranks() as (rank, _):
        result = _measure(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
        if rank == 0:
            Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
