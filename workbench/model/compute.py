"""How much a token computes: weights it meets and operations, sparse against dense.

    D hidden size   H heads   C head dimension   E experts   K experts a token

Counts matrix products only, as Kaplan et al. 2020, section 2.1: two operations a weight, and the
two products of attention. Norms, activations, softmax and the sorting of tokens to experts are not
in it, so it is a bound for a speed-up and not a time; ``tests/bench`` and notebook 09 measure.
Costs nothing and imports no MindSpore.
"""

from dataclasses import replace

from workbench.config import ModelConfig


def feed_forward_weights(config: ModelConfig, layer: int) -> tuple[int, int]:
    """Weights of the feed-forward part of ``layer``, router included: (those a token meets, all)."""
    size = config.hidden_size
    if not config.is_sparse(layer):
        dense = 3 * size * config.intermediate_size
        return dense, dense
    shared = config.shared_expert_intermediate_size
    fixed = size * config.num_experts + (3 * size * shared + size if shared else 0)
    expert = 3 * size * config.expert_size
    return fixed + config.num_experts_per_tok * expert, fixed + config.num_experts * expert


def product_weights(config: ModelConfig) -> tuple[int, int]:
    """Weights of all matrix products of the decoder and its head: (those a token meets, all). No embedding."""
    heads = config.num_attention_heads + config.num_key_value_heads
    around = config.num_hidden_layers * 2 * config.hidden_size * config.head_size * heads
    around += config.vocab_size * config.hidden_size
    met, total = zip(*(feed_forward_weights(config, i) for i in range(config.num_hidden_layers)))
    return around + sum(met), around + sum(total)


def flops_per_token(config: ModelConfig, context: int = 0) -> int:
    """Forward operations for one token that attends to ``context`` keys; three times as many to train on it.

    Dropless; a capacity makes it ``expert_capacity_factor`` times the experts' part, full or not.
    """
    attention = config.num_hidden_layers * 4 * context * config.num_attention_heads * config.head_size
    return 2 * product_weights(config)[0] + attention


def dense_twin(config: ModelConfig) -> ModelConfig:
    """The dense settings with as many weights, up to rounding ``intermediate_size`` to a whole number."""
    total = sum(feed_forward_weights(config, i)[1] for i in range(config.num_hidden_layers))
    inner = round(total / (3 * config.hidden_size * config.num_hidden_layers))
    return replace(config, num_experts=0, intermediate_size=inner)
