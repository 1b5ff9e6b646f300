"""A SIMULATION of what overlaps in a step: one lane that computes, one link that carries collectives.

    layers = [Layer(forward=0.010, backward=0.020, recompute=0.010, gradient_bytes=4e6)] * 12
    simulate_step(layers, Link(latency=0.001, bandwidth=1e9), bucket_bytes=25e6, overlap=("gradients",))

Each operation starts when its lane is free and what it needs has ended. Without overlap everything
waits for everything. ``overlap`` may name

    gradients   a bucket is summed as soon as the last of its gradients is there, not after all
    recompute   a layer is recomputed while the activations' collective of the layer above it, which
                its backward pass has to wait for (tensor parallelism), is on its way

It moves no data and knows nothing of kernels that slow each other down, so it gives the best that
overlap can do with the durations it is given. What this package overlaps itself and measures is data
loading (``prefetching.py``). Collectives are the engine's to overlap. On the CPU it does not: with the
other rank 6 s late, an AllReduce followed by 1.2 s of independent products took 7.3 s (2026-11-30, 2
cores, both of 2 rounds). On Ascend its switches are ``ASCEND_SETTINGS``. Not run on Ascend.
"""

from dataclasses import dataclass
from typing import Collection, Sequence

from workbench.errors import SettingError, unknown_name

# At 128K positions with "asynchronous recompute"; 0.89 / 0.63 would be +41 % throughput, not +34 %.
ARTICLE = {"busy without": 0.63, "busy with": 0.89, "throughput": 0.34}

# Keys of the JSON file that ``AutoParallel.transformer_opt`` reads (2.10, graph mode). Not run on Ascend.
ASCEND_SETTINGS = {
    "recomputation_communication_overlap": True,  # overlap="recompute"
    "grad_fa_allgather_overlap": True,  # the same for attention under sequence parallelism
    "grad_computation_allreduce_overlap": True,  # overlap="gradients"
}
OVERLAPS = ("gradients", "recompute")
COMPUTE, LINK = "compute", "link"


@dataclass(frozen=True)
class Layer:
    """Seconds of a layer's parts on the compute lane, and the bytes it sends.

    ``activation_bytes`` are summed after its forward and again after its backward pass, and the
    next layer needs them (tensor parallelism); 0 where ranks share nothing but gradients.
    """

    forward: float
    backward: float
    recompute: float = 0.0
    gradient_bytes: float = 0.0
    activation_bytes: float = 0.0


@dataclass(frozen=True)
class Link:
    """A collective of n bytes takes latency + n / bandwidth seconds; ``communication.py`` measures both here."""

    latency: float
    bandwidth: float

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Span:
    """One operation: when it ran, in seconds from the start of the step."""

    name: str
    lane: str
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A simulated step."""

    spans: tuple[Span, ...]

    @property
    def wall(self) -> float:
        return max((s.end for s in self.spans), default=0.0)

    def work(self, lane: str) -> float:
        """Seconds that a lane is in use."""
        return sum(s.end - s.start for s in self.spans if s.lane == lane)

    @property
    def busy(self) -> float:
        """Share of the step in which the compute lane is in use."""
        return self.work(COMPUTE) / self.wall


class _Schedule:
    """Operations in the order in which a lane takes them up."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.free = {COMPUTE: 0.0, LINK: 0.0}

    def add(self, name: str, lane: str, seconds: float, after: float) -> float:
        """The end of an operation that starts when the lane is free, not before ``after``."""
        start = max(self.free[lane], after)
        self.free[lane] = start + seconds
        if seconds:
            self.spans.append(Span(name, lane, start, start + seconds))
        return start + seconds


def simulate_step(layers: Sequence[Layer], link: Link, bucket_bytes: float, overlap: Collection[str] = ()) -> Timeline:
    """One step: forward, then backward from the last layer with recompute, gradients in buckets.

    A bucket takes whole layers up to ``bucket_bytes``, as ``plan_buckets`` takes parameters.
    Raises SettingError for an unknown overlap and for no layers.
    """
    for name in overlap:
        if name not in OVERLAPS:
            raise unknown_name("overlap", name, OVERLAPS)
    if not layers:
        raise SettingError("layers: none given, a step needs at least one Layer")
    made, ready = _Schedule(), 0.0
    for i, layer in enumerate(layers):
        ready = made.add(f"forward {i}", COMPUTE, layer.forward, ready)
        ready = _share(made, f"activations {i}", layer, link, ready)
    filled, late, bucket = 0.0, [], 0
    for i in reversed(range(len(layers))):
        layer = layers[i]
        early = made.free[COMPUTE] if "recompute" in overlap and i < len(layers) - 1 else ready
        again = made.add(f"recompute {i}", COMPUTE, layer.recompute, early)
        computed = made.add(f"backward {i}", COMPUTE, layer.backward, max(again, ready))
        # What the next layer waits for goes before the gradients, which nothing waits for yet.
        ready = _share(made, f"activation gradients {i}", layer, link, computed)
        filled += layer.gradient_bytes
        if filled and (i == 0 or filled + layers[i - 1].gradient_bytes > bucket_bytes):
            if "gradients" in overlap:
                made.add(f"bucket {bucket}", LINK, link.seconds(filled), computed)
            else:
                late.append((f"bucket {bucket}", filled))
            filled, bucket = 0.0, bucket + 1
    for name, size in late:
        ready = made.add(name, LINK, link.seconds(size), ready)
    return Timeline(tuple(made.spans))


def _share(made: _Schedule, name: str, layer: Layer, link: Link, ready: float) -> float:
    return made.add(name, LINK, link.seconds(layer.activation_bytes), ready) if layer.activation_bytes else ready


def compare(layers: Sequence[Layer], link: Link, bucket_bytes: float) -> dict[str, Timeline]:
    """The step without overlap, with each kind alone, and with both."""
    kinds = {"none": (), "gradients": ("gradients",), "recompute": ("recompute",), "both": OVERLAPS}
    return {name: simulate_step(layers, link, bucket_bytes, overlap) for name, overlap in kinds.items()}
