"""Sparse experts: each token visits the K of E feed-forward networks that its router prefers.

    N tokens   D hidden size   E experts   K experts a token   I inner size of an expert
    A = N * K assignments   G blocks   R rows a block   M = G * R slots

    y, stats = SparseMoE(config, rng, ms.float32)(x, seen)     (N, D), (N,) -> (N, D), (E + 3,)

All shapes are static, so it compiles once: assignments are laid out in a table of slots cut into
blocks, and every block belongs to one expert. With ``expert_capacity_factor`` above 0 there is one
block an expert, and what does not fit is dropped in the order of the tokens and counted (Lepikhin
et al. 2020, section 2.2). With 0 nothing is dropped: an expert takes as many blocks as it needs,
its last one filled up with zeros (Gale et al. 2022, section 5), and every block fetches the weights
of its expert.

Costs forward 6 M D I operations: M is ``factor`` * A with a capacity and about 1.2 to 1.5 A
without (``block_rows``), never N * E; plus a copy of G experts' weights without a capacity.
Counting the places takes two (A, E) tables. Compiling adds about a second a layer on a 2-core CPU.

A token's place in a block depends on the tokens before it, and the CPU's product of a row on its
place, by some 1e-6: a packed document's logits are bit-identical whatever the others hold in a
dense model, here only nearly. With a capacity, the others may also take a token's place.

Not here: experts on several devices, noise in the router, choice of tokens by experts.
"""

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.linear import Linear
from workbench.model.feed_forward import SwiGLU

# What fetching one expert's weights and adding up their gradients costs, in rows of its products.
_FETCH_ROWS = 24


def capacity(config: ModelConfig, tokens: int) -> int:
    """Assignments that one expert takes of ``tokens`` tokens, C; with more of them than factor * A / E it drops."""
    share = config.expert_capacity_factor * tokens * config.num_experts_per_tok / config.num_experts
    return max(1, min(tokens, math.ceil(share)))


def block_rows(experts: int, assignments: int) -> int:
    """Rows R of a dropless block.

    A / R + E blocks cost R + F rows each, F for fetching the weights; that is least at
    R = sqrt(A F / E). For a few tokens it is 1: every assignment fetches its own weights.
    """
    if assignments <= experts:
        return 1
    return max(1, min(assignments, math.ceil(math.sqrt(assignments * _FETCH_ROWS / experts))))


def block_count(experts: int, assignments: int, rows: int) -> int:
    """Blocks that suffice however ``assignments`` fall on ``experts``: the worst case leaves one row in most."""
    used = min(experts, assignments)
    return (assignments - used) // rows + used


def route(logits, experts_per_token, normalised):
    """Router logits (N, E) -> probabilities (N, E), weights (N, K) and experts int32 (N, K) of each token.

    Softmax over all experts, then the K largest, as Mixtral and Qwen's models do; ``normalised``
    divides the weights by their sum.
    """
    probabilities = ops.Softmax(-1)(logits)
    weights, chosen = ops.TopK(sorted=True)(probabilities, experts_per_token)
    if normalised:
        weights = ops.div(weights, ops.tile(ops.ReduceSum(True)(weights, -1), (1, experts_per_token)))
    return probabilities, weights, chosen


def load_balancing_loss(probabilities, counts, seen):
    """E * sum over experts of f P (Fedus et al. 2021, eq. 4 to 6), a scalar; K when the load is even.

    f is the assignments of an expert a real token, so that it sums to K, P its mean probability
    over the real tokens. One layer's loss: the mean over layers is taken outside. ``transformers``
    joins the tokens of all layers first, which lets the collapse of one layer be balanced by another.
    """
    real = ops.maximum(ops.ReduceSum()(seen), 1.0)
    experts = probabilities.shape[1]
    kept = ops.mul(probabilities, ops.tile(ops.expand_dims(seen, 1), (1, experts)))
    means = ops.div(ops.ReduceSum()(kept, 0), real)
    return ops.ReduceSum()(ops.mul(ops.div(counts, real), means)) * experts


def z_loss(logits, seen):
    """Mean over the real tokens of logsumexp(logits)^2 (Zoph et al. 2022, eq. 5), a scalar."""
    normaliser = ops.sub(logits[:, 0], ops.LogSoftmax(-1)(logits)[:, 0])
    return ops.ReduceSum()(ops.mul(ops.square(normaliser), seen)) / ops.maximum(ops.ReduceSum()(seen), 1.0)


def assign(chosen, seen, experts):
    """Experts int32 (N, K) of tokens -> assignments an expert (E,), place of each among its expert's (A,).

    Both float32, exact below 2^24 assignments. Places count from 0 in the order of the tokens; an
    assignment of padding has place -1 and takes nobody's.
    """
    tokens, each = chosen.shape
    real = ops.reshape(ops.tile(ops.expand_dims(seen, 1), (1, each)), (tokens * each, 1))
    hits = ops.one_hot(ops.reshape(chosen, (-1,)), experts, ops.ones((), ms.float32), ops.zeros((), ms.float32))
    hits = ops.mul(hits, ops.tile(real, (1, experts)))
    places = ops.sub(ops.ReduceSum()(ops.mul(ops.cumsum(hits, 0), hits), -1), 1.0)
    return ops.ReduceSum()(hits, 0), places


def dropless_layout(counts, blocks, rows):
    """Assignments of each expert (E,) -> first block of each (E,), expert int32 of each block (G,).

    An expert's blocks follow each other; those left over at the end belong to the last one.
    """
    experts = counts.shape[0]
    needed = ops.ceil(ops.div(counts, float(rows)))
    ends = ops.cumsum(needed, 0)
    index = ops.tile(ops.expand_dims(ops.cast(ops.range(0, blocks, 1), ms.float32), 1), (1, experts))
    passed = ops.greater_equal(index, ops.tile(ops.expand_dims(ends, 0), (blocks, 1)))
    owners = ops.cast(ops.ReduceSum()(ops.cast(passed, ms.float32), -1), ms.int32)
    return ops.sub(ends, needed), ops.minimum(owners, experts - 1)


class Experts(nn.Cell):
    """E SwiGLU networks with their weights stacked, normal(0, scale)."""

    def __init__(
        self, experts: int, size: int, inner: int, scale: float, rng: np.random.Generator, compute_dtype
    ) -> None:
        super().__init__()

        def weight(name: str, *shape: int) -> ms.Parameter:
            return ms.Parameter(ms.Tensor(rng.normal(0.0, scale, shape).astype(np.float32)), name=name)

        self.gate_proj = weight("gate_proj", experts, inner, size)
        self.up_proj = weight("up_proj", experts, inner, size)
        self.down_proj = weight("down_proj", experts, size, inner)
        self.compute_dtype = compute_dtype
        self.matmul = ops.BatchMatMul(transpose_b=True)

    def construct(self, rows, owners, fetch):
        """rows (G, R, D), of which block g belongs to expert ``owners[g]``, int32 (G,) -> (G, R, D).

        Without ``fetch`` block g belongs to expert g and ``owners`` is not read.
        """
        gate, up = self.product(rows, self.gate_proj, owners, fetch), self.product(rows, self.up_proj, owners, fetch)
        return self.product(ops.mul(ops.silu(gate), up), self.down_proj, owners, fetch)

    def product(self, rows, weight, owners, fetch):
        weight = ops.cast(weight, self.compute_dtype)
        if fetch:
            weight = ops.gather(weight, owners, 0)
        return ops.cast(self.matmul(ops.cast(rows, self.compute_dtype), weight), ms.float32)


class SparseMoE(nn.Cell):
    """The experts of one layer with their router; takes the place of a block's ``mlp``.

    Parameters: ``gate.weight`` (E, D), ``experts.gate_proj`` and ``experts.up_proj`` (E, I, D),
    ``experts.down_proj`` (E, D, I) and, with a shared expert, ``shared_expert.*_proj.weight`` and
    ``shared_expert_gate.weight`` (1, D), by whose sigmoid its output is multiplied (Qwen2-MoE).
    Router and weights are float32; products of the experts are computed in ``compute_dtype``.
    """

    def __init__(self, config: ModelConfig, rng: np.random.Generator, compute_dtype) -> None:
        super().__init__()
        self.config = config
        size, scale, shared = config.hidden_size, config.initializer_range, config.shared_expert_intermediate_size
        self.gate = Linear(size, config.num_experts, scale, rng, ms.float32)
        self.experts = Experts(config.num_experts, size, config.expert_size, scale, rng, compute_dtype)
        if shared:
            self.shared_expert = SwiGLU(size, shared, scale, rng, compute_dtype)
            self.shared_expert_gate = Linear(size, 1, scale, rng, ms.float32)

    def construct(self, x, seen):
        """x float32 (N, D), seen float32 (N,), 1 for tokens and 0 for padding -> y (N, D), stats (E + 3,).

        ``stats`` is the assignments of each expert before dropping, the load-balancing loss, the
        z-loss and the number of dropped assignments. Padding gets zeros and takes no place.
        """
        return self.answer(x, seen, self.config.expert_capacity_factor == 0)

    def every(self, x):
        """x float32 (N, D) -> y (N, D), nothing dropped whatever the capacity: texts do not depend on others."""
        return self.answer(x, ops.ones(x.shape[:1], ms.float32), True)[0]

    def answer(self, x, seen, dropless):
        """As ``construct``, with or without a capacity."""
        config = self.config
        logits = self.gate(x)
        probabilities, weights, chosen = route(logits, config.num_experts_per_tok, config.norm_topk_prob)
        counts, places = assign(chosen, seen, config.num_experts)
        y, kept = self.visit(x, weights, chosen, counts, places, dropless)
        if config.shared_expert_intermediate_size:
            share = ops.mul(ops.sigmoid(self.shared_expert_gate(x)), ops.expand_dims(seen, 1))
            y = ops.add(y, ops.mul(self.shared_expert(x), ops.tile(share, (1, config.hidden_size))))
        losses = (
            load_balancing_loss(probabilities, counts, seen),
            z_loss(logits, seen),
            ops.ReduceSum()(counts) - ops.ReduceSum()(kept),
        )
        return y, ops.concat((counts, ops.stack(losses)))

    def visit(self, x, weights, chosen, counts, places, dropless):
        """What the experts say to x, summed by ``weights`` (N, K); and 1 for each assignment (A,) that was kept."""
        config = self.config
        (tokens, size), each, experts = x.shape, config.num_experts_per_tok, config.num_experts
        if dropless:
            rows = block_rows(experts, tokens * each)
            blocks = block_count(experts, tokens * each, rows)
            first, owners = dropless_layout(counts, blocks, rows)
            room = blocks * rows
        else:
            blocks, rows = experts, capacity(config, tokens)
            owners = ops.range(0, experts, 1)  # ops.arange takes 0.7 s longer to compile, each
            first = ops.cast(owners, ms.float32)
            room = rows
        fits = ops.logical_and(ops.greater_equal(places, 0.0), ops.less(places, float(room)))
        kept, here = ops.cast(fits, ms.float32), ops.cast(fits, ms.int32)
        first = ops.gather(first, ops.reshape(chosen, (-1,)), 0)
        slots = ops.mul(ops.cast(ops.add(ops.mul(first, float(rows)), places), ms.int32), here)
        # Slot number M takes what has no slot; 0 in the table is a row of zeros, n + 1 is token n.
        names = ops.reshape(ops.tile(ops.expand_dims(ops.range(1, tokens + 1, 1), 1), (1, each)), (-1,))
        targets = ops.expand_dims(ops.add(slots, ops.mul(1 - here, blocks * rows)), 1)
        table = ops.zeros((blocks * rows + 1,), ms.int32)
        table = ops.tensor_scatter_update(table, targets, ops.cast(names, ms.int32))[: blocks * rows]
        inputs = ops.gather(ops.concat((ops.zeros((1, size), ms.float32), x)), table, 0)
        outputs = self.experts(ops.reshape(inputs, (blocks, rows, size)), owners, dropless)
        # An assignment without a slot reads slot 0 and weighs nothing.
        answers = ops.gather(ops.reshape(outputs, (blocks * rows, size)), slots, 0)
        weights = ops.reshape(ops.mul(ops.reshape(weights, (-1,)), kept), (-1, 1))
        answers = ops.mul(answers, ops.tile(weights, (1, size)))
        return ops.ReduceSum()(ops.reshape(answers, (tokens, each, size)), 1), kept


def moe_by_loop(moe: SparseMoE, x, seen):
    """The definition of ``moe(x, seen)[0]`` without its shared expert: E times its cost, not compiled, for tests.

    Every expert answers every token, and what was not chosen, or came when the expert was full, weighs nothing.
    """
    config = moe.config
    _, weights, chosen = route(moe.gate(x), config.num_experts_per_tok, config.norm_topk_prob)
    room = capacity(config, len(seen)) if config.expert_capacity_factor else len(seen)
    taken = [0] * config.num_experts
    served = np.zeros((*chosen.shape, config.num_experts), np.float32)
    for (token, k), expert in np.ndenumerate(chosen.asnumpy()):
        if seen[token] and taken[expert] < room:
            served[token, k, expert] = 1
            taken[expert] += 1
    y = ops.zeros_like(x)
    for expert in range(config.num_experts):
        gate, up, down = (w[expert] for w in (moe.experts.gate_proj, moe.experts.up_proj, moe.experts.down_proj))
        answer = ops.matmul(ops.silu(ops.matmul(x, gate.T)) * ops.matmul(x, up.T), down.T)
        y = y + (weights * ms.Tensor(served[:, :, expert])).sum(1, keepdims=True) * answer
    return y
