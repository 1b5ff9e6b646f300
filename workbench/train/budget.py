"""The memory of one rank in a training step, from the settings alone: what, how much, and when it is most.

    budget = memory_budget(model, train, sequence_length=128, ranks=1, device="CPU")
    budget.peak_mb, budget.peak.name, budget.lines()

State is there all the time: weights, the optimizer's moments, accumulated gradients. Everything else
comes and goes, so the step is gone through moment by moment (the head and its loss, each layer's
backward pass, the embedding, the update) and the largest counts. What a layer keeps is in
``activations.py``. On the CPU the state lies in the arrays of MindSpore's tensors, not in its
allocator: ``allocator_mb`` is what ``measure_memory`` measures, within 10 % (``tests/test_budget.py``).

Not measured, and said so in ``notes``: everything on Ascend, and what follows from arithmetic
(several ranks, sharded moments, buckets). Not in it: the process itself, the compiler, data, and
what kernels need for themselves. Costs nothing and imports no MindSpore.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Sequence

from workbench.config import ModelConfig, TrainConfig
from workbench.errors import SettingError, unknown_name
from workbench.model.tensor_names import own_tensors, tensors_of
from workbench.settings import require
from workbench.train.activations import PLAIN_ATTENTION, PLAIN_FEED_FORWARD, Activations
from workbench.train.buckets import MIB, plan_for

_HALF_ON_CPU = "float16 on the CPU takes more than float32: products keep float32 casts of weights and operands"


@dataclass(frozen=True)
class Moment:
    """What is held at one moment of the step besides the state, bytes by part; ``layers`` one number a layer."""

    name: str
    gradients: int
    layers: tuple[int, ...]
    parts: dict[str, int]

    @property
    def total(self) -> int:
        return self.gradients + sum(self.layers) + sum(self.parts.values())


@dataclass(frozen=True)
class Budget:
    """``state`` and the moments of a step, in bytes; ``notes`` say what was not measured."""

    device: str
    state: dict[str, int]
    moments: tuple[Moment, ...]
    elsewhere: dict[str, int]
    notes: tuple[str, ...]

    @property
    def peak(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def allocator_mb(self) -> float:
        """MiB of the peak that are the CPU's allocator's: all but the state, and of it the staging buffers."""
        return (self.peak.total + self.state.get("staging", 0)) / MIB

    @property
    def peak_mb(self) -> float:
        return self.peak_bytes / MIB

    @property
    def peak_bytes(self) -> int:
        return self.peak.total + sum(self.state.values())

    def lines(self, by_layer: bool = True) -> dict[str, float]:
        """MiB by part at the peak; they sum to ``peak_mb``."""
        peak = self.peak
        found = dict(self.state) | {"gradients": peak.gradients}
        if by_layer:
            found |= {f"activations, layer {i}": size for i, size in enumerate(peak.layers)}
        else:
            found["activations"] = sum(peak.layers)
        return {name: size / MIB for name, size in (found | peak.parts).items() if size}


def parameter_shapes(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of ``Transformer(model)``."""
    shapes = {name: tensor.shape for name, tensor in tensors_of(model, "llama").items()} | own_tensors(model)
    if model.norm_type == "layer_norm":
        norms = {n: s for n, s in shapes.items() if n.endswith(("layernorm.weight", "model.norm.weight"))}
        shapes |= {name.removesuffix("weight") + "bias": shape for name, shape in norms.items()}
    return shapes


def parameter_count(model: ModelConfig) -> int:
    """Parameters of ``Transformer(model)``, heads and task embedding included."""
    return sum(map(math.prod, parameter_shapes(model).values()))


def largest_bucket(sizes: Sequence[int], train: TrainConfig) -> int:
    """Elements of the largest bucket of float32 gradients of ``sizes`` elements."""
    return max(bucket.elements for bucket in plan_for([("", n) for n in sizes], train))


def staging_bytes(shapes: Sequence[tuple[int, ...]]) -> int:
    """Of ``offload.py``: both moments, twice for a shape that occurs twice or more, once for one that occurs once."""
    return sum(8 * math.prod(shape) * min(2, count) for shape, count in Counter(shapes).items())


def memory_budget(
    model: ModelConfig, train: TrainConfig, sequence_length: int, ranks: int = 1, device: str = "CPU"
) -> Budget:
    """The budget of one of ``ranks`` ranks on ``device``. ``batch_size`` is over all ranks.

    Raises SettingError for a batch that ranks and accumulation do not divide, and for what the
    device does not compute in.
    """
    if device not in ("CPU", "Ascend"):
        raise unknown_name("device", device, ("CPU", "Ascend"))
    if device == "CPU" and train.precision == "bfloat16":
        raise SettingError("precision='bfloat16' is not allowed with device='CPU': float32 or float16")
    for name, value in (("sequence_length", sequence_length), ("ranks", ranks)):
        require(value >= 1, name, value, "at least 1")
    parts = ranks * train.gradient_accumulation_steps
    if train.batch_size % parts:
        raise SettingError(
            f"batch_size={train.batch_size} is not allowed: a multiple of ranks * gradient_accumulation_steps={parts}"
        )
    ascend, half = device == "Ascend", train.precision != "float32"
    shapes = parameter_shapes(model)
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    count, bucket = sum(sizes.values()), largest_bucket(list(sizes.values()), train)
    each = 2 if ascend and half else 4  # bytes of a weight that is computed with, and of its gradient
    sharded = train.optimizer_sharding == "zero1"
    shard = ranks if sharded else 1
    offload = train.optimizer_offload != "none"
    state = {"parameters": count * each}
    if each == 2 or sharded:  # a shard of the weights is held on one rank too
        state["master weights"] = -(-count * 4 // shard)
    moments_bytes = -(-count * 8 // shard)
    if not offload:
        state["optimizer moments"] = moments_bytes
    if train.gradient_accumulation_steps > 1:
        state["accumulated gradients"] = count * 4
    if offload:
        state["staging"] = staging_bytes(list(shapes.values()))
    if ranks > 1:
        state["communication"] = 2 * bucket * 4  # the flat bucket and what comes back
    activations = Activations(model, train, train.batch_size // parts, sequence_length, ascend)
    elsewhere = {f"moments on {train.optimizer_offload}": moments_bytes} if offload else {}
    moments = _moments(activations, {name: n * each for name, n in sizes.items()})
    return Budget(device, state, moments, elsewhere, _notes(train, ranks, device))


def _moments(of: Activations, gradients: dict[str, int]) -> tuple[Moment, ...]:
    """The moments that can be the peak, in the order in which they come."""
    model, kind, layers = of.model, of.train.recompute, range(of.model.num_hidden_layers)
    table = gradients["model.embed_tokens.weight"]
    own = [sum(n for name, n in gradients.items() if name.startswith(f"model.layers.{k}.")) for k in layers]
    total, shared = sum(gradients.values()), of.shared()
    kept, casts = [of.kept(k) for k in layers], [of.weight_casts(k) for k in layers]
    # Recomputed in a block, a weight is cast there.
    early = casts if kind not in ("block", "whole") else [0] * len(casts)
    around, passing = of.head()
    head = {"shared by the layers": shared + sum(early), "head": around, "logits and loss": passing}
    found = [Moment("the head and its loss", 0, tuple(kept), head)]
    for k in reversed(layers):
        full = of.layer(k, kind in PLAIN_ATTENTION, kind in PLAIN_FEED_FORWARD)
        held = [*kept[:k], 0, *[0] * (len(kept) - k - 1)]
        shares = shared
        if kind == "whole":  # everything was computed again, and the mask is needed no more
            held = [sum(of.layer(j, True, True).values()) if j < k else 0 for j in layers]
            shares -= 0 if of.flash else of.scores * len({model.window_of(j) for j in layers})
        done = sum(own[k + 1 :]) + table
        for part, there, work in (
            ("feed-forward", sum(full.values()), of.feed_forward_backward(k)),
            ("attention", full["attention"], of.attention_backward(k)),
        ):
            held[k] = there
            besides = {"shared by the layers": shares + sum(early[:k]) + casts[k], "work space": work}
            found.append(Moment(f"backward of layer {k}, {part}", done, tuple(held), besides))
    # Tied, the head's gradient and the embedding's meet in a third array.
    meeting = table if model.tie_word_embeddings else 0
    nothing = tuple(0 for _ in layers)
    found.append(Moment("the embedding's gradient", total + meeting, nothing, {"work space": meeting}))
    # The optimizer's kernel works in place and yet allocates its three outputs. Gradients go one by
    # one; with moments elsewhere, they all stay until the end, and the scaled one is a copy.
    left, largest = total, 0
    for size in gradients.values():
        left, largest = left - size, max(largest, left + 3 * size)
    if of.train.optimizer_offload != "none":
        largest = total + 4 * max(gradients.values())
    found.append(Moment("the update", total, nothing, {"work space": largest - total}))
    return tuple(found)


def _notes(train: TrainConfig, ranks: int, device: str) -> tuple[str, ...]:
    several = {"ranks": ranks > 1, "optimizer_sharding": train.optimizer_sharding != "none"}
    named = " and ".join(name for name, on in several.items() if on)
    found = [f"not measured, from arithmetic: {named}"] if named else []
    if several["optimizer_sharding"] and train.optimizer_offload != "none":
        found.append("training refuses optimizer_sharding with optimizer_offload, which is not built")
    elif train.optimizer_offload != "none" and device == "Ascend":
        found.append("training refuses optimizer_offload on Ascend, see train/ascend_optimizer.py")
    if device == "Ascend":
        found.append("not measured: nothing here was run on Ascend")
    elif train.precision != "float32":
        found.append(_HALF_ON_CPU)
    if train.optimizer_sharding != "none" and train.optimizer_offload != "none":
        found.append("not built: optimizer_sharding with optimizer_offload; training refuses the two together")
    if device == "Ascend" and train.optimizer_offload != "none":
        found.append("not built: optimizer_offload on Ascend; training refuses it there")
    if device == "Ascend" and train.kernels == "native":
        found.append("not built: kernels=native on Ascend; training refuses it there")
    elif train.kernels == "native":
        found.append("not measured: kernels=native is counted as stock, which keeps more")
    return tuple(found)
