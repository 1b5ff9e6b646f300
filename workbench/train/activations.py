"""What one training step keeps for its backward pass, array by array, from the settings alone.

    N rows x positions   D hidden size   Q = N * H * C of all query heads   P = N * K * C of key/value heads
    F inner size   V vocabulary   n queries of a chunk   m keys they may see   M = B * K

Read from the model's code and from what the compiler keeps of it: every term stands for arrays that
were found alive at the peak, op by op, in the graph that MindSpore 2.10 compiled for the CPU (2026-11-30).
Three of them surprise. A row's or column's factor is tiled to a whole array before it meets one, and kept so
(``model/norm.py``). The CPU has no half-precision product: it casts every operand to float32 and
keeps that cast, one for each product that reads it, so float16 takes more memory here than float32.
A recomputed norm keeps its input twice, as it is and doubled, for the derivative of the square.

For Ascend, not measured: half-precision operands are kept once and as they are, and flash attention
keeps no scores. All figures are bytes. Costs nothing and imports no MindSpore. Not in it: arrays of one
number a row, rounding to 512 bytes, biases, and the native kernels, which keep less.
"""

from dataclasses import dataclass
from math import ceil, sqrt

from workbench.config import ModelConfig, TrainConfig

CHUNK, HEAD_CHUNK = 128, 512  # rows at once, of LeanAttend and of HeadLoss
PLAIN_ATTENTION, PLAIN_FEED_FORWARD = ("attention", "block", "whole"), ("feed_forward", "block", "whole")


def chunks(length: int, window: int) -> list[tuple[int, int]]:
    """(n, m) of every chunk of queries, as ``model/attend.py`` cuts them."""
    starts = range(0, length, CHUNK)
    ends = [min(start + CHUNK, length) for start in starts]
    return [(e - s, e - (max(0, s - window + 1) if window else 0)) for s, e in zip(starts, ends)]


@dataclass(frozen=True)
class Activations:
    """The arrays of a step of ``rows`` x ``length`` positions."""

    model: ModelConfig
    train: TrainConfig
    rows: int
    length: int
    ascend: bool = False

    @property
    def half(self) -> bool:
        return self.train.precision != "float32"

    @property
    def casts(self) -> bool:
        """Whether products cast their half-precision operands to float32 and keep them so."""
        return self.half and not self.ascend

    @property
    def flash(self) -> bool:
        return self.half and self.ascend

    @property
    def wide(self) -> int:
        """One (N, D)."""
        return 4 * self.rows * self.length * self.model.hidden_size

    @property
    def queries(self) -> int:
        """One (N, H * C)."""
        return 4 * self.rows * self.length * self.model.num_attention_heads * self.model.head_size

    @property
    def keys(self) -> int:
        """One (N, K * C)."""
        return 4 * self.rows * self.length * self.model.num_key_value_heads * self.model.head_size

    @property
    def scores(self) -> int:
        """One (B, H, S, S)."""
        return 4 * self.rows * self.model.num_attention_heads * self.length**2

    def inner(self, layer: int) -> int:
        """One (N, F), with experts one (M, I) of all their slots."""
        if not self.model.is_sparse(layer):
            return 4 * self.rows * self.length * self.model.intermediate_size
        return 4 * self.slots[0] * self.slots[1] * self.model.expert_size

    @property
    def slots(self) -> tuple[int, int]:
        """Blocks and rows a block of a sparse layer, as ``model/experts.py`` lays them out."""
        model, tokens = self.model, self.rows * self.length
        experts, assigned = model.num_experts, tokens * model.num_experts_per_tok
        if model.expert_capacity_factor:
            return experts, max(1, min(tokens, ceil(model.expert_capacity_factor * assigned / experts)))
        rows = 1 if assigned <= experts else max(1, min(assigned, ceil(sqrt(assigned * 24 / experts))))
        used = min(experts, assigned)
        return (assigned - used) // rows + used, rows

    def norm(self, readers: int) -> int:
        """What a norm keeps: tiled 1/rms, normalised, tiled weight and result; cast, a result for each reader."""
        result = self.wide // 2 if self.flash else self.wide * (readers if self.casts else 1)
        return result + self.wide * (1 if self.model.norm_type == "layer_norm" else 3)

    def attention(self, layer: int, plain: bool) -> int:
        """What attention keeps behind its norm: query, key, value, and context or probabilities."""
        short = 2 if self.half else 1  # halves what is kept in the compute type
        norms = 4 * (self.queries + self.keys) if self.model.use_qk_norm else 0
        if self.flash:  # context and its merged form in half precision, and 2 x 8 numbers a row and head
            return norms + (3 * self.queries + 2 * self.keys) // 2 + 16 * self.queries // self.model.head_size
        if plain:
            return norms + 2 * self.queries + 2 * self.keys + self.scores * (2 if self.half else 1)
        value = sum(self.value_slice(m) for _, m in chunks(self.length, self.model.window_of(layer)))
        return norms + (2 * self.queries + self.keys) // short + value + self.queries

    def feed_forward(self, layer: int, plain: bool) -> int:
        """What the feed-forward part keeps behind its norm."""
        model = self.model
        if not model.is_sparse(layer):
            return (5 if plain else 3) * self.inner(layer)
        blocks, rows = self.slots
        inputs = 4 * blocks * rows * model.hidden_size
        answers = 2 * self.wide * model.num_experts_per_tok  # of the experts, and their tiled weights
        fetched = 0 if model.expert_capacity_factor else 3 * 4 * blocks * model.hidden_size * model.expert_size
        shared = 0
        if model.shared_expert_intermediate_size:
            inner = 4 * self.rows * self.length * model.shared_expert_intermediate_size
            shared = (5 if plain else 3) * inner + 2 * self.wide
        return 5 * self.inner(layer) + inputs + answers + fetched + shared

    def layer(self, layer: int, plain_attention: bool, plain_feed_forward: bool) -> dict[str, int]:
        """All that one layer keeps if nothing is recomputed, by part."""
        readers = 1 if self.model.is_sparse(layer) else 2
        return {
            "attention": self.norm(3) + self.attention(layer, plain_attention),
            "feed_forward": self.norm(readers) + self.feed_forward(layer, plain_feed_forward),
        }

    def kept(self, layer: int) -> int:
        """What one layer really keeps from the forward pass, with the chosen recompute."""
        kind = self.train.recompute
        if kind == "whole":
            return 2 * self.wide if layer == 0 else 0
        if kind == "block":
            return 2 * self.wide
        parts = self.layer(layer, kind == "attention", kind == "feed_forward")
        if kind == "attention":
            parts["attention"] = self.norm(1)
        if kind == "feed_forward":
            parts["feed_forward"] = self.norm(1)
        return sum(parts.values())

    def shared(self) -> int:
        """What all layers read: rotary tables, masks, and the rows that see something."""
        windows = {self.model.window_of(i) for i in range(self.model.num_hidden_layers)}
        tables = 2 * self.queries + 2 * self.keys
        if self.flash:
            return tables + self.queries + 4 * self.rows * self.length**2 * len(windows - {0})
        if self.train.recompute in PLAIN_ATTENTION:
            return tables + self.queries + self.scores * len(windows)
        masks = sum(4 * self.rows * n * m for window in windows for n, m in chunks(self.length, window))
        return tables + self.queries // (2 if self.half else 1) + masks

    def weight_casts(self, layer: int) -> int:
        """The float32 casts of a layer's weights, where products make them: at the start of the step."""
        model = self.model
        if not self.casts:
            return 0
        heads = 2 * (model.num_attention_heads + model.num_key_value_heads) * model.head_size
        inner = 0 if model.is_sparse(layer) else 3 * model.intermediate_size
        return 4 * model.hidden_size * (heads + inner)

    def head(self) -> tuple[int, int]:
        """(what is there besides, the largest that comes and goes) at the head and its loss."""
        model, tokens = self.model, self.rows * self.length
        table = 4 * model.vocab_size * model.hidden_size
        around = 8 * self.wide
        if self.half:
            table = 0 if self.ascend else table
            # The gradient of the logits in float16, and its two casts to float32.
            return around + self.wide + table, (2 + 4 + 4) * tokens * model.vocab_size
        passing = 0
        for start in range(0, tokens, HEAD_CHUNK):
            logits = 4 * min(HEAD_CHUNK, tokens - start) * model.vocab_size
            if start == 0:
                passing = max(2 * logits, logits + table, 2 * table)
            else:  # beside the gradient of the head so far
                passing = max(passing, 2 * logits + table, logits + 2 * table, 3 * table)
        return around + 4 * min(HEAD_CHUNK, tokens) * model.hidden_size, passing

    def feed_forward_backward(self, layer: int) -> int:
        """What comes on top of everything kept up to ``layer`` while its feed-forward part goes back."""
        plain = self.train.recompute in PLAIN_FEED_FORWARD
        if self.model.is_sparse(layer):
            return self.wide + 2 * self.inner(layer) + 4 * self.slots[0] * self.slots[1] * self.model.hidden_size
        if plain and self.casts:
            return 2 * self.wide + 3 * self.inner(layer)
        return self.wide + (2 if plain else 3) * self.inner(layer)

    def attention_backward(self, layer: int) -> int:
        """The same while its attention goes back; what its feed-forward part kept is gone."""
        if self.flash:
            return self.wide + self.queries + 2 * self.keys
        if self.train.recompute in PLAIN_ATTENTION:
            return self.wide + self.queries + 2 * self.keys + 2 * self.scores
        model, cut = self.model, chunks(self.length, self.model.window_of(layer))
        # The context and what the output projection read are gone, their gradient has a column more.
        gone = self.queries + self.queries // (2 if self.half else 1)
        largest, start, before = 0, 0, 0
        for n, m in cut:
            held = 16 * self.rows * model.num_attention_heads * n * m  # four (B, H, n, m)
            if len(cut) > 1:  # slices of query, gradient and key; the query's gradient so far
                held += (2 * n + start) * self.queries // self.length + m * self.keys // self.length
            held += 2 * self.keys if start else 0
            largest, start, before = max(largest, held - before), start + n, before + self.value_slice(m)
        return self.wide + self.queries + self.queries // model.head_size + largest - gone

    def value_slice(self, m: int) -> int:
        """m values of every key/value head, each with the column of -C that the backward pass multiplies with."""
        return 4 * self.rows * self.model.num_key_value_heads * m * (self.model.head_size + 1)
