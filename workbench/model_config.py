"""The shape of a model: a decoder of the Llama kind, with what Qwen2, Qwen3, Mixtral and their experts add.

Names are those of ``transformers`` where it has one. There a model's name decides what is in it
(Qwen2 has biases, Qwen3 norms queries and keys); here each is a setting, and the families are
written down in ``workbench/model/families.py``.
"""

from math import inf, isfinite

from workbench.settings import require, settings

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@settings
class RopeScaling:
    """How rotary angles are changed for contexts longer than the trained one; see ``workbench/model/rotary.py``."""

    rope_type: str = "default"  # default (unchanged), linear, llama3 or yarn
    factor: float = 1.0  # how many times longer the context becomes
    original_max_position_embeddings: int = 0  # the trained length; llama3 and yarn need it
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 0.0  # yarn: cos and sin are multiplied by it; 0 computes it from factor
    truncate: bool = True  # yarn: round the ends of the ramp to whole dimensions

    def __post_init__(self) -> None:
        require(self.rope_type in ROPE_TYPES, "rope_type", self.rope_type, "default, linear, llama3 or yarn")
        require(1 <= self.factor < inf, "rope_scaling.factor", self.factor, "at least 1")
        trained = self.original_max_position_embeddings
        need = self.rope_type in ("llama3", "yarn")
        require(
            not need or trained >= 1,
            "original_max_position_embeddings",
            trained,
            f"rope_type {self.rope_type} needs the trained length, at least 1",
        )
        require(
            0 < self.low_freq_factor < self.high_freq_factor,
            "low_freq_factor",
            self.low_freq_factor,
            f"above 0 and below high_freq_factor={self.high_freq_factor:g}",
        )
        require(
            0 < self.beta_slow < self.beta_fast,
            "beta_slow",
            self.beta_slow,
            f"above 0 and below beta_fast={self.beta_fast:g}",
        )
        require(self.attention_factor >= 0, "attention_factor", self.attention_factor, "0 (computed) or more")


@settings
class ModelConfig:
    """A decoder; names as in ``transformers``."""

    vocab_size: int = 2048
    hidden_size: int = 128
    intermediate_size: int = 352
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 0  # 0: hidden_size / num_attention_heads
    max_position_embeddings: int = 256
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = RopeScaling()
    rms_norm_eps: float = 1e-5
    norm_type: str = "rms_norm"  # rms_norm or layer_norm
    attention_bias: bool = False  # biases of the query, key and value projections
    attention_output_bias: bool = False
    mlp_bias: bool = False
    use_qk_norm: bool = False  # an RMS norm over each head of query and key, before the rotation (Qwen3)
    sliding_window: int = 0  # keys a position sees, itself included; 0: all
    max_window_layers: int = 0  # the first layers, which see everything in spite of sliding_window
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    num_tasks: int = 16  # rows of the task embedding; row 0 means no task and stays zero
    task_dropout: float = 0.0  # share of the task documents trained as if they had no task id
    layer_dropout: float = 0.0  # probability that a layer is left out of a training step
    num_experts: int = 0  # of each sparse layer; 0: every layer has one dense feed-forward network
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 0  # of one expert; 0: intermediate_size
    shared_expert_intermediate_size: int = 0  # of an expert that every token visits; 0: none
    norm_topk_prob: bool = True  # the weights of a token's experts are made to sum to 1
    decoder_sparse_step: int = 1  # every so many layers one is sparse, the last of each group
    mlp_only_layers: tuple[int, ...] = ()  # layers that stay dense in spite of it
    expert_capacity_factor: float = 0.0  # an expert takes at most this times its even share; 0: all that comes
    router_aux_loss_coef: float = 0.01
    router_z_loss_coef: float = 0.001

    def __post_init__(self) -> None:
        listed = isinstance(self.mlp_only_layers, (list, tuple))
        require(
            listed and all(type(i) is int and 0 <= i < self.num_hidden_layers for i in self.mlp_only_layers),
            "mlp_only_layers",
            self.mlp_only_layers,
            f"a list of layers, 0 to {self.num_hidden_layers - 1}",
        )
        object.__setattr__(self, "mlp_only_layers", tuple(self.mlp_only_layers))  # JSON knows lists only
        if isinstance(self.rope_scaling, dict):
            object.__setattr__(self, "rope_scaling", RopeScaling(**self.rope_scaling))
        known = isinstance(self.rope_scaling, RopeScaling)
        require(known, "rope_scaling", self.rope_scaling, 'settings such as {"rope_type": "linear", "factor": 2}')
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings",
            "num_tasks",
            "num_experts_per_tok",
            "decoder_sparse_step",
        ):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in (
            "head_dim",
            "sliding_window",
            "max_window_layers",
            "num_experts",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "initializer_range",
            "expert_capacity_factor",
            "router_aux_loss_coef",
            "router_z_loss_coef",
        ):
            value = getattr(self, name)
            require(value >= 0 and isfinite(value), name, value, "0 or more")
        for name in ("task_dropout", "layer_dropout"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0, below 1")
        require(1 < self.rope_theta < inf, "rope_theta", self.rope_theta, "above 1")
        heads = self.num_attention_heads
        require(
            self.head_dim > 0 or self.hidden_size % heads == 0,
            "hidden_size",
            self.hidden_size,
            f"a multiple of num_attention_heads={heads}, or set head_dim",
        )
        where, allowed = "head_dim", "even, because rotary positions turn pairs"
        if self.head_dim == 0:
            where, allowed = "hidden_size", "hidden_size/num_attention_heads must be even"
        require(self.head_size % 2 == 0, where, getattr(self, where), allowed)
        require(
            heads % self.num_key_value_heads == 0,
            "num_key_value_heads",
            self.num_key_value_heads,
            f"a divisor of num_attention_heads={heads}",
        )
        require(
            1e-7 <= self.rms_norm_eps < 1,
            "rms_norm_eps",
            self.rms_norm_eps,
            "at least 1e-7 (below it fp16 gradients are not finite), below 1",
        )
        require(self.norm_type in ("rms_norm", "layer_norm"), "norm_type", self.norm_type, "rms_norm or layer_norm")
        require(
            self.num_experts == 0 or self.num_experts_per_tok <= self.num_experts,
            "num_experts_per_tok",
            self.num_experts_per_tok,
            f"at most num_experts={self.num_experts}",
        )

    @property
    def head_size(self) -> int:
        """Dimension of one head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def expert_size(self) -> int:
        """Inner size of one expert."""
        return self.moe_intermediate_size or self.intermediate_size

    def is_sparse(self, layer: int) -> bool:
        """Whether ``layer`` (from 0) has experts, as in ``transformers``' Qwen2-MoE and Qwen3-MoE."""
        chosen = layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0
        return self.num_experts > 0 and chosen

    @property
    def sparse_layers(self) -> tuple[int, ...]:
        """The layers that have experts, in order."""
        return tuple(layer for layer in range(self.num_hidden_layers) if self.is_sparse(layer))

    def window_of(self, layer: int) -> int:
        """Keys that a position of ``layer`` sees, itself included; 0: all."""
        return self.sliding_window if layer >= self.max_window_layers else 0
