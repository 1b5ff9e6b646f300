"""Folders written and read back; damaged and wrong ones named. Against ``transformers``: tests/peers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tiny_model import TINY

from workbench.config import ModelConfig
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError, SettingError, UserError
from workbench.model.exchange import export_hf, load_hf, load_transformer
from workbench.model.safetensors_io import narrowed, tensors_in, write_tensors
from workbench.model.tensor_names import own_tensors, tensors_of
from workbench.model.transformer import Transformer

SPARSE = replace(TINY, num_experts=3, moe_intermediate_size=8, num_hidden_layers=2)
MODELS = {
    "llama": TINY,
    "untied": replace(TINY, tie_word_embeddings=False, attention_bias=True, attention_output_bias=True, mlp_bias=True),
    "qwen3": replace(TINY, use_qk_norm=True, head_dim=10),
    "mixtral": SPARSE,
    "qwen2_moe": replace(
        SPARSE, attention_bias=True, shared_expert_intermediate_size=12, mlp_only_layers=(0,), task_dropout=0.1
    ),
}


def weights_of(config, kind="llama"):
    rng = np.random.default_rng(0)
    shapes = {name: t.shape for name, t in tensors_of(config, kind).items()} | own_tensors(config)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == np.float32 and np.array_equal(found[name], array), name


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("limit", [5e9, 1500])
def test_what_is_exported_is_loaded_again(tmp_path, config, limit):
    weights = weights_of(config)
    folder = export_hf(tmp_path / "模型 a", config, weights, max_shard_bytes=limit)
    found, arrays = load_hf(folder)
    assert found == config
    same(arrays, weights)
    files = sorted(folder.glob("model*.safetensors"))
    assert (len(files) > 3) == (limit == 1500) and len(list(tmp_path.iterdir())) == 1
    names = set()
    for file in files:
        with safe_open(file, "np") as opened:  # the library reads what was written by hand
            assert opened.metadata() == {"format": "pt"}
            names |= {(name, opened.get_tensor(name).dtype.name) for name in opened.keys()}
        assert len(tensors_in(file)) == 1 or sum(4 * np.prod(t.shape) for t in tensors_in(file).values()) <= limit
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    assert names == {(n, "float32") for t in tensors_of(config, kind).values() for n in t.on_disk}


def test_experts_lie_on_disk_one_by_one(tmp_path):
    weights = weights_of(SPARSE)
    disk = load_file(export_hf(tmp_path / "a", SPARSE, weights) / "model.safetensors")
    for ours, theirs in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
        array = disk[f"model.layers.1.block_sparse_moe.experts.2.{theirs}.weight"]
        assert np.array_equal(array, weights[f"model.layers.1.mlp.experts.{ours}"][2])
    assert disk["model.layers.0.block_sparse_moe.gate.weight"].shape == (3, 16)


def test_narrow_types(tmp_path):
    weights = weights_of(TINY)
    for dtype, precision in (("bfloat16", 2**-8), ("float16", 2**-11)):
        folder = export_hf(tmp_path / dtype, TINY, weights, dtype=dtype)
        size = (folder / "model.safetensors").stat().st_size
        assert size < 2.2 * sum(t.size for n, t in weights.items() if n not in own_tensors(TINY)) + 3000
        _, arrays = load_hf(folder)
        for name, array in arrays.items():
            exact = name in own_tensors(TINY)
            np.testing.assert_allclose(array, weights[name], rtol=0 if exact else precision, atol=1e-7 * (not exact))


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 1e-40, 0.0], np.float32)
    widened = (narrowed("x", values, "bfloat16").astype(np.uint32) << 16).view(np.float32)
    assert widened[:5].tolist() == [1.0, -2.5, 1.0, 1 + 2**-6, 1 + 2**-7] and widened[6] == 0
    for bad, dtype in ((7e4, "float16"), (3.4e38, "bfloat16"), (np.nan, "bfloat16"), (np.inf, "float32")):
        with pytest.raises(DataError, match=f"x holds values that are not finite in {dtype}"):
            narrowed("x", np.array([1, bad], np.float32), dtype)
    with pytest.raises(DataError, match="not finite"):
        narrowed("x", np.array([0xFFFFFFFF], np.uint32).view(np.float32), "bfloat16")


def test_the_model_is_built_with_every_weight(tmp_path):
    weights = weights_of(TINY)
    folder = export_hf(tmp_path / "a", TINY, weights)
    same({p.name: p.asnumpy() for p in load_transformer(folder).trainable_params()}, weights)
    (folder / "workbench.safetensors").unlink()
    (folder / "workbench.json").unlink()
    fresh = {p.name: p.asnumpy() for p in Transformer(replace(TINY, router_z_loss_coef=0.0), 5).trainable_params()}
    fresh |= {name: array for name, array in weights.items() if name not in own_tensors(TINY)}
    same({p.name: p.asnumpy() for p in load_transformer(folder, seed=5).trainable_params()}, fresh)
    assert not fresh["task_embedding.weight"].any()


def changed(folder, change):
    arrays = load_file(folder / "model.safetensors")
    change(arrays)
    save_file(arrays, folder / "model.safetensors")


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda a: a.pop("model.norm.weight"), "does not fit its config.json: missing: model.norm.weight"),
        (lambda a: a.update(extra=np.ones(2, np.float32)), "unknown: extra"),
        (
            lambda a: a.update({"model.norm.gain": a.pop("model.norm.weight")}),
            "missing: model.norm.weight; unknown: model.norm.gain",
        ),
        (
            lambda a: a.update({"model.embed_tokens.weight": np.ones((70, 16), np.float32)}),
            "wrong shape: model.embed_tokens.weight is (70, 16), expected (64, 16)",
        ),
        (
            lambda a: a.update({"lm_head.weight": np.ones((64, 16), np.float32)}),
            'lm_head.weight differs from model.embed_tokens.weight, but config.json says that they are one; set "tie',
        ),
        (
            lambda a: a.update({"model.norm.weight": np.ones(16, np.int8)}),
            "model.norm.weight is I8, readable are F64, F32, F16, BF16",
        ),
        (lambda a: [a.pop(n) for n in list(a) if "layers.0" in n], "and 1 more"),
        (
            lambda a: a["model.norm.weight"].__setitem__(3, np.nan),
            "model.safetensors: model.norm.weight holds values that are not finite",
        ),
    ],
)
def test_wrong_tensors_are_named(tmp_path, change, told):
    folder = export_hf(tmp_path / "a", TINY, weights_of(TINY))
    changed(folder, change)
    with pytest.raises(DataError) as caught:
        load_hf(folder)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_harmless_extra_tensors_are_read_over(tmp_path):
    folder = export_hf(tmp_path / "a", TINY, weights_of(TINY))
    changed(folder, lambda a: a.update({"lm_head.weight": a["model.embed_tokens.weight"].copy()}))
    changed(folder, lambda a: a.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}))
    same(load_hf(folder)[1], weights_of(TINY))


def test_damaged_folders_are_told_in_one_line(tmp_path):
    def refused(folder):
        with pytest.raises(UserError) as caught:
            load_hf(folder)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "config.json cannot be read (No such file" in refused(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "is not JSON" in refused(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "holds a list" in refused(tmp_path)
    folder = export_hf(tmp_path / "a", TINY, weights_of(TINY), max_shard_bytes=1500)
    shard = sorted(folder.glob("model-0*"))[2]
    whole = shard.read_bytes()
    for broken in (whole[:-1], whole[:100], b"", b"\xff" * 64):
        shard.write_bytes(broken)
        assert f"{shard.name} is not a whole safetensors file" in refused(folder)
    shard.unlink()
    assert f"names files that are not there: {shard.name}" in refused(folder)
    for broken in ({}, {"weight_map": ["a"]}, {"weight_map": {"a": 3}}, {"weight_map": None}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(broken))
        assert "model.safetensors.index.json has no weight_map" in refused(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "holds neither model.safetensors nor model.safetensors.index.json" in refused(folder)
    folder = export_hf(tmp_path / "b", TINY, weights_of(TINY))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"rms_norm_eps": 1e-6}))
    assert "workbench.json and config.json differ in rms_norm_eps (1e-05, there 1e-06)" in refused(folder)
    for changed_value, told in (
        ({"rms_norm_eps": 0.0}, "/config.json: rms_norm_eps=0"),
        ({"hidden_act": "x"}, "hidden_"),
    ):
        (folder / "config.json").write_text(json.dumps(values | changed_value))
        assert refused(folder).startswith(f"{folder}/config.json: ") and told in refused(folder)


def test_nothing_is_written_for_a_wrong_request(tmp_path):
    weights, out = weights_of(TINY), tmp_path / "out"
    with pytest.raises(SettingError, match="dtype='int8'"):
        export_hf(out, TINY, weights, dtype="int8")
    with pytest.raises(SettingError, match="norm_type"):
        export_hf(out, replace(TINY, norm_type="layer_norm"), weights)
    with pytest.raises(DataError, match=r"do not fit the settings: missing: model.layers.1.*and 1 more"):
        export_hf(out, replace(TINY, num_hidden_layers=2), weights)
    with pytest.raises(DataError, match="unknown: model.layers.0.self_attn.q_proj.bias"):
        export_hf(out, TINY, weights | {"model.layers.0.self_attn.q_proj.bias": np.ones(16)})
    with pytest.raises(DataError, match="model.norm.weight holds values that are not finite"):
        export_hf(out, TINY, weights | {"model.norm.weight": np.full(16, np.nan, np.float32)})
    assert not list(tmp_path.iterdir()), "half a folder was left"
    out.mkdir()
    export_hf(out, TINY, weights)
    with pytest.raises(DataError, match="there already and not empty"):
        export_hf(out, TINY, weights)
    (tmp_path / "ordinary").mkdir()
    assert out.stat().st_mode == (tmp_path / "ordinary").stat().st_mode, "others cannot read the folder"


def test_tokenizer_and_generation_settings(tmp_path, samples):
    tokenizer = load_tokenizer(samples / "tokenizer")
    config = ModelConfig(vocab_size=2048, hidden_size=16, num_attention_heads=2, num_key_value_heads=1)
    folder = export_hf(tmp_path / "a", config, weights_of(config), tokenizer, generation={"max_new_tokens": 9})
    settings = json.loads((folder / "generation_config.json").read_text())
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    assert settings == {"do_sample": False, "max_new_tokens": 9, **ids}
    assert json.loads((folder / "config.json").read_text()).items() >= ids.items()
    kept = json.loads((folder / "tokenizer_config.json").read_text())
    assert kept["tokenizer_class"] == "PreTrainedTokenizerFast" and "local_files_only" not in kept
    again = load_tokenizer(folder)
    assert again("猫 and cats<eos>").input_ids == tokenizer("猫 and cats<eos>").input_ids


def test_a_file_of_nothing_and_of_scalars(tmp_path):
    write_tensors(tmp_path / "a", {}, [], "float32")
    assert tensors_in(tmp_path / "a") == {}
    write_tensors(tmp_path / "b", {"x": (), "y": (0, 3)}, [np.float32(2), np.ones((0, 3), np.float32)], "float16")
    found = tensors_in(tmp_path / "b")
    assert found["x"].read() == 2 and found["y"].read().shape == (0, 3)
