"""Which tensors a model has, of which shape, and what they are called in a Hugging Face folder.

    D hidden size   I inner size   H query heads   K key/value heads   C head dimension
    E experts   V vocabulary   T tasks

Ours are the names of ``LlamaForCausalLM``, with the experts of a layer stacked into one tensor for
each projection. On disk every expert is a tensor of its own, and Mixtral has names of its own: so
``transformers`` saves (it stacks them in memory too, ``conversion_mapping.py``) and so other
engines read. Costs nothing; touches no file.
"""

from dataclasses import dataclass

from workbench.model_config import ModelConfig

# Mixtral (Jiang et al. 2024) calls them w1, w3, w2.
_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Tensor:
    """A parameter: its shape here, and its names on disk, one for each expert where they are stacked."""

    shape: tuple[int, ...]
    on_disk: tuple[str, ...]

    @property
    def disk_shape(self) -> tuple[int, ...]:
        """The shape of each tensor on disk."""
        return self.shape[1:] if len(self.shape) == 3 else self.shape


def tensors_of(config: ModelConfig, kind: str) -> dict[str, Tensor]:
    """The tensors that a folder of ``model_type`` ``kind`` holds for ``config``, under our names, in order."""
    size, shapes = config.hidden_size, {}
    shapes["model.embed_tokens.weight"] = (config.vocab_size, size)
    for index in range(config.num_hidden_layers):
        layer = _attention(config) | _feed_forward(config, index)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            layer[f"{norm}.weight"] = (size,)
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, size)
    return {name: Tensor(shape, _on_disk(name, shape, kind)) for name, shape in shapes.items()}


def own_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of the parameters that no Hugging Face family has."""
    tasks, size = config.num_tasks, config.hidden_size
    return {
        "task_embedding.weight": (tasks, size),
        "instruction_head.weight": (tasks, size),
        "fact_head.weight": (1, size),
    }


def _attention(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    size, head = config.hidden_size, config.head_size
    query, key = config.num_attention_heads * head, config.num_key_value_heads * head
    shapes: dict[str, tuple[int, ...]] = {}
    for name, rows in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
        shapes |= _linear(f"self_attn.{name}", rows, size, config.attention_bias)
    shapes |= _linear("self_attn.o_proj", size, query, config.attention_output_bias)
    if config.use_qk_norm:
        shapes |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    return shapes


def _feed_forward(config: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    size, experts = config.hidden_size, config.num_experts
    if not config.is_sparse(layer):
        return _mlp("mlp", size, config.intermediate_size, config.mlp_bias)
    shapes: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (experts, size)}
    for name in _MLP:
        rows, columns = (size, config.expert_size) if name == "down_proj" else (config.expert_size, size)
        shapes[f"mlp.experts.{name}"] = (experts, rows, columns)
    if config.shared_expert_intermediate_size:
        shapes |= _mlp("mlp.shared_expert", size, config.shared_expert_intermediate_size, False)
        shapes["mlp.shared_expert_gate.weight"] = (1, size)
    return shapes


def _mlp(prefix: str, size: int, inner: int, bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _MLP:
        rows, columns = (size, inner) if name == "down_proj" else (inner, size)
        shapes |= _linear(f"{prefix}.{name}", rows, columns, bias)
    return shapes


def _linear(name: str, rows: int, columns: int, bias: bool) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def _on_disk(name: str, shape: tuple[int, ...], kind: str) -> tuple[str, ...]:
    mixtral = kind == "mixtral"
    if mixtral:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if len(shape) < 3:
        return (name,)
    prefix, projection = name.rsplit(".", 1)
    projection = _MIXTRAL[projection] if mixtral else projection
    return tuple(f"{prefix}.{expert}.{projection}.weight" for expert in range(shape[0]))
