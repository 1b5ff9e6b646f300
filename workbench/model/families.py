"""``ModelConfig`` and the config.json of Hugging Face's families, both ways.

    from_hf(json.load(file))   -> ModelConfig
    to_hf(config)              -> what to write as config.json

``FAMILIES`` says what the name of a family fixes (biases, query/key norms, which layers have a
window) and what it takes where config.json leaves a key out, as ``transformers`` 5.24 does in
``models/*/configuration_*.py`` and ``modeling_*.py``. Both ways of writing rotary settings are
read (``rope_theta`` and ``rope_scaling``; ``rope_parameters``) and both are written, because
engines built on ``transformers`` 4 know the first only. 4.57 gave the same logits from folders of
every family, but for a Qwen2-MoE with windows: it does not read that family's ``layer_types``.
Costs nothing: plain values, no import of either library.

What a config.json cannot say keeps its default when read and is left out when written: the tasks,
``task_dropout``, ``layer_dropout``, ``expert_capacity_factor`` (there no expert drops a token) and
``router_z_loss_coef`` (read as 0, which is what they train with).
"""

from dataclasses import dataclass, field
from typing import Any, Mapping

from workbench.errors import SettingError
from workbench.model.rope_formats import need, refused, rope_from_hf, rope_to_hf
from workbench.model_config import ModelConfig


@dataclass(frozen=True)
class Family:
    """What a ``model_type`` can express.

    ``biases`` are the allowed (query/key/value, output, MLP) triples. ``window`` says which layers
    a sliding window may have: ``none``, ``all`` (every layer or none) or ``layers`` (each on its
    own, ``layer_types``). ``defaults`` stand in for missing keys.
    """

    architecture: str
    biases: tuple[tuple[bool, bool, bool], ...]
    window: str
    qk_norm: bool = False
    sparse: bool = False
    shared_expert: bool = False
    free_head_dim: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)


_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_NO_BIAS, _QKV_BIAS = (False, False, False), (True, False, False)
_ATTENTION_BIAS = (_NO_BIAS, (True, True, False))
FAMILIES = {
    "llama": Family(
        "LlamaForCausalLM",
        (*_ATTENTION_BIAS, (False, False, True), (True, True, True)),
        "none",
        free_head_dim=False,  # its config is refused where hidden_size is no multiple of the heads
    ),
    "mistral": Family("MistralForCausalLM", (_NO_BIAS,), "all", defaults={"sliding_window": 4096}),
    "qwen2": Family("Qwen2ForCausalLM", (_QKV_BIAS,), "layers", defaults=_QWEN),
    "qwen3": Family("Qwen3ForCausalLM", _ATTENTION_BIAS, "layers", qk_norm=True, defaults={**_QWEN, "head_dim": 128}),
    "mixtral": Family(
        "MixtralForCausalLM",
        (_NO_BIAS,),
        "all",
        sparse=True,
        defaults={"rope_theta": 1e6, "rms_norm_eps": 1e-5, "norm_topk_prob": True},
    ),
    "qwen2_moe": Family(
        "Qwen2MoeForCausalLM", (_NO_BIAS, _QKV_BIAS), "layers", sparse=True, shared_expert=True, defaults=_QWEN
    ),
    "qwen3_moe": Family("Qwen3MoeForCausalLM", _ATTENTION_BIAS, "all", qk_norm=True, sparse=True, defaults=_QWEN),
}
_DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "qkv_bias": True,
    "norm_topk_prob": False,
    "router_aux_loss_coef": 0.001,
    "decoder_sparse_step": 1,
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
_SAME_NAME = ("rms_norm_eps", "initializer_range", "tie_word_embeddings")
# Keys that change the model and that ModelConfig has no word for, with the values that change nothing.
_FIXED = {
    "hidden_act": ("silu", "swish"),
    "attention_dropout": (0,),
    "router_jitter_noise": (0,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
}


def from_hf(values: Mapping[str, Any]) -> ModelConfig:
    """The settings that a config.json (already parsed) describes.

    Raises DataError, naming key and value, for what ModelConfig cannot say and for a missing size;
    SettingError for a value ModelConfig refuses.
    """
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise refused("model_type", kind, f"known are {', '.join(FAMILIES)}")
    found = {**_DEFAULTS, **family.defaults, **{k: v for k, v in values.items() if v is not None}}
    if "head_dim" in values and values["head_dim"] is None:
        found.pop("head_dim", None)
    if "sliding_window" in values and values["sliding_window"] is None:
        found["sliding_window"] = 0
    for key, harmless in _FIXED.items():
        if key in found and found[key] not in harmless:
            raise refused(key, found[key], f"allowed is {harmless[0]!r}" if harmless else "only plain weights are read")
    for name in (*_SIZES, "max_window_layers", "sliding_window"):
        if type(found.get(name, 0)) is not int:
            raise refused(name, found[name], "a whole number is needed")
    heads = need(found, "num_attention_heads")
    if kind == "llama" or "num_key_value_heads" in values:
        found.setdefault("num_key_value_heads", heads)
    own = {name: need(found, name) for name in (*_SIZES, *_SAME_NAME)}
    head_dim = found.get("head_dim", 0)
    if head_dim * heads == own["hidden_size"]:
        head_dim = 0
    bias = {"llama": found["attention_bias"], "qwen2": True, "qwen2_moe": found["qkv_bias"]}
    bias = bias.get(kind, family.qk_norm and found["attention_bias"])
    theta, scaling = rope_from_hf(found)
    window, full_layers = _window(kind, family, found)
    return ModelConfig(
        **own,
        head_dim=head_dim,
        rope_theta=theta,
        rope_scaling=scaling,
        attention_bias=bias,
        attention_output_bias=bias and kind not in ("qwen2", "qwen2_moe"),
        mlp_bias=kind == "llama" and found["mlp_bias"],
        use_qk_norm=family.qk_norm,
        sliding_window=window,
        max_window_layers=full_layers,
        router_z_loss_coef=0.0,
        **(_experts(kind, found) if family.sparse else {}),
    )


def to_hf(
    config: ModelConfig,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
    pad_token_id: int | None = None,
) -> dict[str, Any]:
    """The config.json of the first family in ``FAMILIES`` that computes exactly what ``config`` says.

    ``dtype`` is that of the weights on disk. Raises SettingError, saying what each family lacks,
    where there is none.
    """
    kind = family_of(config)
    family, scaling = FAMILIES[kind], rope_to_hf(config.rope_scaling)
    windowed = [bool(config.window_of(layer)) for layer in range(config.num_hidden_layers)]
    values: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": kind,
        **{name: getattr(config, name) for name in (*_SIZES, *_SAME_NAME)},
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if scaling["rope_type"] == "default" else scaling,
        "rope_parameters": {"rope_theta": config.rope_theta, **scaling},
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
        "dtype": dtype,
        "torch_dtype": dtype,
        "use_cache": True,
    }
    if kind not in ("qwen2", "qwen2_moe") or config.head_size * config.num_attention_heads != config.hidden_size:
        values["head_dim"] = config.head_size
    if kind == "llama" or family.qk_norm:
        values["attention_bias"] = config.attention_bias
    if kind == "llama":
        values["mlp_bias"] = config.mlp_bias
    if family.window != "none":
        values["sliding_window"] = config.sliding_window if any(windowed) else None
    if "use_sliding_window" in family.defaults:
        values["use_sliding_window"] = any(windowed)
        values["max_window_layers"] = windowed.index(True) if any(windowed) else config.num_hidden_layers
    if family.window == "layers":
        values["layer_types"] = ["sliding_attention" if w else "full_attention" for w in windowed]
    if family.sparse:
        values |= {name: getattr(config, name) for name in ("num_experts_per_tok", "router_aux_loss_coef")}
        values["output_router_logits"] = False
    if kind == "mixtral":
        values |= {"num_local_experts": config.num_experts, "intermediate_size": config.expert_size}
    elif family.sparse:
        values |= {name: getattr(config, name) for name in ("num_experts", "norm_topk_prob", "decoder_sparse_step")}
        values |= {"moe_intermediate_size": config.expert_size, "mlp_only_layers": list(config.mlp_only_layers)}
    if kind == "qwen2_moe":
        values["qkv_bias"] = config.attention_bias
        values["shared_expert_intermediate_size"] = config.shared_expert_intermediate_size
    return values


def family_of(config: ModelConfig) -> str:
    """The ``model_type`` that ``to_hf`` writes. Raises SettingError where no family has these settings."""
    if config.norm_type != "rms_norm":
        raise SettingError(f"norm_type={config.norm_type!r} cannot be exported: all families need rms_norm")
    sparse = bool(config.sparse_layers)
    lacking = {kind: _lacks(kind, f, config) for kind, f in FAMILIES.items() if f.sparse == sparse}
    for kind, lack in lacking.items():
        if not lack:
            return kind
    told = "; ".join(f"{kind} needs {lack}" for kind, lack in lacking.items())
    raise SettingError(f"no Hugging Face family has these settings together: {told}")


def _lacks(kind: str, family: Family, config: ModelConfig) -> str:
    """The first thing that keeps ``family`` from expressing ``config``, or an empty text."""
    biases = (config.attention_bias, config.attention_output_bias, config.mlp_bias)
    windowed = {bool(config.window_of(layer)) for layer in range(config.num_hidden_layers)}
    all_sparse = len(config.sparse_layers) == config.num_hidden_layers
    names = "attention_bias, attention_output_bias, mlp_bias"
    needs = [
        (family.qk_norm == config.use_qk_norm, f"use_qk_norm={family.qk_norm}"),
        (biases in family.biases, f"({names}) to be {' or '.join(map(str, family.biases))}"),
        (family.window != "none" or windowed == {False}, "sliding_window=0"),
        (family.window == "layers" or len(windowed) == 1, "max_window_layers=0"),
        (family.free_head_dim or config.hidden_size % config.num_attention_heads == 0, "hidden_size / heads whole"),
    ]
    if family.sparse:
        shared = bool(config.shared_expert_intermediate_size)
        told = "above 0" if family.shared_expert else "0"
        needs += [
            (family.shared_expert == shared, f"shared_expert_intermediate_size {told}"),
            (kind != "mixtral" or all_sparse, "every layer sparse"),
            (kind != "mixtral" or config.norm_topk_prob, "norm_topk_prob=True"),
        ]
    return next((need for ok, need in needs if not ok), "")


def _experts(kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
    names = {"num_experts_per_tok", "norm_topk_prob", "router_aux_loss_coef"}
    if kind != "mixtral":
        names |= {"moe_intermediate_size", "decoder_sparse_step"}
    if kind == "qwen2_moe":
        names.add("shared_expert_intermediate_size")
    own = {name: need(found, name) for name in names}
    name = "num_experts" if "num_experts" in found else "num_local_experts"
    own["num_experts"] = need(found, name)
    if own["num_experts"] == 0:
        raise refused(name, own["num_experts"], f"a {kind} has experts, at least 1")
    if kind == "mixtral":
        return own | {"norm_topk_prob": True}
    dense = found.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise refused("mlp_only_layers", dense, "a list of layers")
    return own | {"mlp_only_layers": tuple(dense)}


def _window(kind: str, family: Family, found: Mapping[str, Any]) -> tuple[int, int]:
    """(sliding_window, max_window_layers); layers without a window come first or are all or none."""
    layers, types = found["num_hidden_layers"], found.get("layer_types")
    window = found.get("sliding_window", 0) if family.window != "none" and found.get("use_sliding_window", True) else 0
    if family.window != "layers":
        return window, 0
    if not isinstance(types, list | None):
        raise refused("layer_types", types, "a list with one word a layer")
    if types is None:
        full = found["max_window_layers"]
        on = [layer >= full for layer in range(layers)]
        if kind == "qwen2_moe":  # there the window is on every other of the first layers
            on = [layer < full and layer % 2 == 0 for layer in range(layers)]
        types = ["sliding_attention" if window and o else "full_attention" for o in on]
    full = types.index("sliding_attention") if "sliding_attention" in types else layers
    if types != ["full_attention"] * full + ["sliding_attention"] * (layers - full):
        raise refused("layer_types", types, f"full_attention first, then sliding_attention, {layers} in all")
    if full < layers and not window:
        raise refused("sliding_window", found.get("sliding_window"), "layer_types has windows, they need a length")
    return (window, full) if full < layers else (0, 0)
