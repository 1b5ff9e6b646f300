"""config.json into settings and back: what each family's name means, and what is refused."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.config import ModelConfig
from workbench.errors import DataError, SettingError, UserError
from workbench.model.families import FAMILIES, family_of, from_hf, to_hf
from workbench.model.tensor_names import tensors_of
from workbench.model_config import RopeScaling

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def hf(kind, **more):
    """The shortest config.json of a family, with ``more`` in it."""
    experts = {"mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2}, "qwen3_moe": EXPERTS}
    experts["qwen2_moe"] = {**EXPERTS, "shared_expert_intermediate_size": 40}
    return {"model_type": kind, **SIZES, **experts.get(kind, {})} | more


def test_the_name_alone_decides_what_is_in_the_model():
    for kind, biases, qk_norm, head in [
        ("llama", (False, False), False, 8),
        ("mistral", (False, False), False, 8),
        ("qwen2", (True, False), False, 8),
        ("qwen3", (False, False), True, 128),
        ("mixtral", (False, False), False, 8),
        ("qwen2_moe", (True, False), False, 8),
        ("qwen3_moe", (False, False), True, 8),
    ]:
        config = from_hf(hf(kind))
        assert (config.attention_bias, config.attention_output_bias) == biases, kind
        assert (config.use_qk_norm, config.head_size) == (qk_norm, head), kind
        assert config.sliding_window == (4096 if kind == "mistral" else 0), kind
        assert config.rope_theta == (1e6 if kind == "mixtral" else 1e4) and not config.tie_word_embeddings
        assert config.norm_topk_prob == (not kind.startswith("qwen") or "moe" not in kind), kind
    assert from_hf(hf("llama", attention_bias=True, mlp_bias=True)).mlp_bias
    assert from_hf(hf("qwen3", attention_bias=True)).attention_output_bias
    assert not from_hf(hf("qwen2_moe", qkv_bias=False)).attention_bias


def test_experts_of_each_family():
    mixtral = from_hf(hf("mixtral"))
    assert (mixtral.num_experts, mixtral.expert_size, mixtral.sparse_layers) == (4, 56, (0, 1, 2, 3))
    assert (mixtral.router_aux_loss_coef, mixtral.router_z_loss_coef) == (0.001, 0.0)
    qwen = from_hf(hf("qwen2_moe", decoder_sparse_step=2, mlp_only_layers=[3]))
    assert (qwen.expert_size, qwen.shared_expert_intermediate_size, qwen.sparse_layers) == (24, 40, (1,))
    newer = hf("qwen3_moe", num_local_experts=4)
    del newer["num_experts"]
    assert from_hf(newer) == from_hf(hf("qwen3_moe"))


def test_windows():
    on = {"use_sliding_window": True, "sliding_window": 8}
    assert [from_hf(hf("qwen2", **on, max_window_layers=2)).window_of(i) for i in range(4)] == [0, 0, 8, 8]
    assert from_hf(hf("qwen2", **on)).sliding_window == 0, "the window begins at layer 28"
    assert [from_hf(hf("qwen3_moe", **on, max_window_layers=2)).window_of(i) for i in range(4)] == [8] * 4
    assert from_hf(hf("mistral", sliding_window=None)).sliding_window == 0
    assert from_hf(hf("qwen2_moe", **on, max_window_layers=0)).sliding_window == 0, "there it is the first layers"
    with pytest.raises(DataError, match="layer_types"):
        from_hf(hf("qwen2_moe", **on))
    assert from_hf(hf("qwen2_moe", **on, num_hidden_layers=1)).window_of(0) == 8
    types = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
    assert from_hf(hf("qwen2_moe", **on, layer_types=types)).max_window_layers == 1
    with pytest.raises(DataError, match=r"config.json: layer_types=\['sliding_attention', 'full_attention'"):
        from_hf(hf("qwen3", **on, layer_types=types[::-1][:1] + types[:3]))
    with pytest.raises(DataError, match="sliding_window"):
        from_hf(hf("qwen3", layer_types=types, sliding_window=None))


def test_both_ways_of_writing_rotary_settings():
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    old = from_hf(hf("llama", rope_theta=5e5, rope_scaling={"rope_type": "llama3", **llama3}, torch_dtype="bfloat16"))
    older = from_hf(hf("llama", rope_theta=5e5, rope_scaling={"type": "llama3", **llama3}))
    new = from_hf(hf("llama", rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **llama3}, dtype="bfloat16"))
    assert old == older == new
    assert new.rope_theta == 5e5 and new.rope_scaling == RopeScaling(rope_type="llama3", **llama3)
    yarn = from_hf(hf("qwen2", rope_scaling={"type": "yarn", "factor": 4.0, "beta_fast": None}))
    assert yarn.rope_scaling.original_max_position_embeddings == 64, "the trained length is the model's if not given"
    deep = from_hf(hf("qwen2", rope_scaling={"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.8}))
    assert deep.rope_scaling.attention_factor == pytest.approx((0.1 * 3.68888 + 1) / (0.08 * 3.68888 + 1), rel=1e-5)
    assert from_hf(hf("llama", rope_scaling={"type": "linear", "factor": 2})).rope_scaling.factor == 2


@pytest.mark.parametrize(
    "values, told",
    [
        ({"model_type": "gpt2"}, "model_type='gpt2' cannot be expressed: known are llama, mistral, qwen2"),
        ({}, "model_type=None"),
        ({"model_type": ["llama"]}, r"model_type=['llama'] cannot be expressed"),
        (hf("llama", rope_parameters="none"), "rope_parameters='none' cannot be expressed: an object is needed"),
        (hf("qwen2", layer_types=3), "layer_types=3"),
        (hf("qwen3_moe", mlp_only_layers=3), "mlp_only_layers=3"),
        (hf("mixtral", num_local_experts=0), "num_local_experts=0 cannot be expressed: a mixtral has experts"),
        (hf("llama", hidden_act="gelu"), "hidden_act='gelu' cannot be expressed: allowed is 'silu'"),
        (hf("llama", rope_scaling={"type": "dynamic", "factor": 2.0}), "rope_type='dynamic'"),
        (hf("llama", rope_scaling={"rope_type": "yarn"}), "no factor"),
        (hf("llama", partial_rotary_factor=0.5), "partial_rotary_factor=0.5"),
        (hf("llama", rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}), "partial_rotary_factor=0.5"),
        (hf("qwen3", rope_parameters={"full_attention": {"rope_theta": 1e4}}), "the same for all layers"),
        (hf("llama", attention_dropout=0.1), "attention_dropout=0.1"),
        (hf("mixtral", router_jitter_noise=0.1), "router_jitter_noise=0.1"),
        (hf("llama", quantization_config={"bits": 4}), "only plain weights are read"),
        ({"model_type": "llama"}, "config.json has no num_attention_heads"),
        ({k: v for k, v in hf("qwen2").items() if k != "num_key_value_heads"}, "has no num_key_value_heads"),
        ({k: v for k, v in hf("mixtral").items() if k != "num_local_experts"}, "has no num_local_experts"),
        (hf("llama", hidden_size="32"), "hidden_size='32'"),
        (hf("llama", rms_norm_eps=1e-12), "rms_norm_eps=1e-12"),
    ],
)
def test_what_cannot_be_expressed_is_named(values, told):
    with pytest.raises(UserError) as caught:
        from_hf(values)
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"norm_type": "layer_norm"}, "norm_type='layer_norm' cannot be exported"),
        (
            {"attention_bias": True, "use_qk_norm": True},
            "qwen3 needs (attention_bias, attention_output_bias, mlp_bias)",
        ),
        ({"sliding_window": 4, "mlp_bias": True}, "llama needs sliding_window=0; mistral needs"),
        ({"num_experts": 4, "norm_topk_prob": False}, "mixtral needs norm_topk_prob=True; qwen2_moe needs shared_exp"),
        ({"num_experts": 4, "decoder_sparse_step": 2}, "mixtral needs every layer sparse"),
        (
            {"num_experts": 4, "use_qk_norm": True, "sliding_window": 4, "max_window_layers": 1},
            "qwen3_moe needs max_window_layers=0",
        ),
    ],
)
def test_settings_no_family_has_are_refused_with_what_each_lacks(settings, told):
    with pytest.raises(SettingError) as caught:
        to_hf(ModelConfig(**settings))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_the_family_that_fits_is_chosen():
    for settings, kind in [
        ({}, "llama"),
        ({"attention_bias": True, "attention_output_bias": True, "mlp_bias": True}, "llama"),
        ({"num_experts": 4, "mlp_only_layers": (0, 1)}, "llama"),
        ({"sliding_window": 8}, "mistral"),
        ({"head_dim": 30, "hidden_size": 126}, "mistral"),
        ({"attention_bias": True}, "qwen2"),
        ({"attention_bias": True, "sliding_window": 8, "max_window_layers": 1}, "qwen2"),
        ({"use_qk_norm": True}, "qwen3"),
        ({"num_experts": 4}, "mixtral"),
        ({"num_experts": 4, "shared_expert_intermediate_size": 16}, "qwen2_moe"),
        ({"num_experts": 4, "use_qk_norm": True, "mlp_only_layers": (0,)}, "qwen3_moe"),
    ]:
        assert family_of(ModelConfig(**settings)) == kind, settings


@st.composite
def configs(draw):
    flag, size = st.booleans(), st.sampled_from
    rope = draw(size(["default", "linear", "llama3", "yarn"]))
    scaling = RopeScaling()
    if rope != "default":
        trained = 0 if rope == "linear" else 32
        scaling = RopeScaling(rope_type=rope, factor=2.0, original_max_position_embeddings=trained)
    return ModelConfig(
        num_hidden_layers=3,
        rope_scaling=scaling,
        rope_theta=draw(size([1e4, 1e6])),
        **{n: draw(flag) for n in ("attention_bias", "attention_output_bias", "mlp_bias", "use_qk_norm")},
        **{n: draw(flag) for n in ("tie_word_embeddings", "norm_topk_prob")},
        head_dim=draw(size([0, 16, 32, 64])),
        sliding_window=draw(size([0, 8])),
        max_window_layers=draw(size([0, 1, 3])),
        num_experts=draw(size([0, 4])),
        moe_intermediate_size=draw(size([0, 24])),
        shared_expert_intermediate_size=draw(size([0, 40])),
        decoder_sparse_step=draw(size([1, 2])),
        mlp_only_layers=draw(size([(), (2,)])),
    )


def what_it_computes(config):
    """Every fact about each layer, whichever way the settings say it."""
    same = ("attention_bias", "attention_output_bias", "use_qk_norm", "tie_word_embeddings", "rope_theta")
    facts = [getattr(config, name) for name in (*same, "rope_scaling", "head_size", "vocab_size", "rms_norm_eps")]
    for layer in range(config.num_hidden_layers):
        sparse = config.is_sparse(layer)
        experts = ("num_experts", "num_experts_per_tok", "norm_topk_prob", "expert_size")
        experts += ("shared_expert_intermediate_size",)
        dense = ("intermediate_size", "mlp_bias")
        facts += [sparse, config.window_of(layer), *(getattr(config, n) for n in (experts if sparse else dense))]
    return facts


@given(configs())
def test_what_is_exported_is_read_back_as_the_same_model(config):
    try:
        values = to_hf(config)
    except SettingError:
        return
    again = from_hf(values)
    assert what_it_computes(again) == what_it_computes(config)
    assert from_hf(to_hf(again)) == again, "a second turn changes nothing"
    assert values["model_type"] in FAMILIES


def test_token_ids_and_types_are_written_for_old_and_new_readers():
    scaling = RopeScaling(rope_type="linear", factor=2.0)
    values = to_hf(replace(ModelConfig(), rope_scaling=scaling), "bfloat16", eos_token_id=3)
    assert (values["eos_token_id"], values["bos_token_id"]) == (3, None), "Llama's own defaults are 1 and 2"
    assert values["dtype"] == values["torch_dtype"] == "bfloat16"
    assert values["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    assert values["rope_parameters"] == {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}


QWEN_MOE = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
PUBLISHED = [  # model_type, parameters as counted on the model's page, the values of SIZES, the rest of config.json
    ("llama", 8_030_261_248, (128256, 4096, 14336, 32, 32, 8, 131072), {}),  # Llama-3.1-8B
    ("qwen2", 7_615_616_512, (152064, 3584, 18944, 28, 28, 4, 131072), {"sliding_window": 131072}),  # Qwen2.5-7B
    ("qwen3", 596_049_920, (151936, 1024, 3072, 28, 16, 8, 40960), {"tie_word_embeddings": True}),  # Qwen3-0.6B
    ("mixtral", 46_702_792_704, (32000, 4096, 14336, 32, 32, 8, 32768), {"num_local_experts": 8}),  # Mixtral-8x7B
    (
        "qwen2_moe",  # Qwen1.5-MoE-A2.7B
        14_315_784_192,
        (151936, 2048, 5632, 24, 16, 16, 8192),
        {**QWEN_MOE, "shared_expert_intermediate_size": 5632},
    ),
    (
        "qwen3_moe",  # Qwen3-30B-A3B
        30_532_122_624,
        (151936, 2048, 6144, 48, 32, 4, 40960),
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
]


@pytest.mark.parametrize("kind, parameters, sizes, more", PUBLISHED)
def test_published_models_have_their_number_of_parameters(kind, parameters, sizes, more):
    config = from_hf(hf(kind, **dict(zip(SIZES, sizes)), **more))
    assert sum(math.prod(t.shape) for t in tensors_of(config, kind).values()) == parameters
    assert family_of(config) == kind
