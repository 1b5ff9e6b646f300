"""Every family against ``transformers`` on CPU torch: its folders here, our folders there, float32.

Random weights, uneven norms, biases that are not zero. "Here" is load_transformer, "there" is
AutoModelForCausalLM with nothing missing and nothing left over.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.data.tokenizing import encode, load_tokenizer
from workbench.model.exchange import export_hf, load_hf, load_transformer
from workbench.model.families import from_hf, to_hf
from workbench.model.generate import generate
from workbench.model.tensor_names import own_tensors, tensors_of

V = 97
SIZES = dict(
    vocab_size=V,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    initializer_range=0.2,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
WINDOW = dict(use_sliding_window=True, sliding_window=5)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
CASES = {
    "llama": dict(model_type="llama", attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3),
    "llama-linear": dict(model_type="llama", rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
    "mistral": dict(model_type="mistral", sliding_window=5, head_dim=10),
    "qwen2": dict(model_type="qwen2", rope_parameters=YARN),
    "qwen2-window": dict(model_type="qwen2", max_window_layers=1, **WINDOW),
    "qwen3": dict(model_type="qwen3", head_dim=12, attention_bias=True, max_window_layers=2, **WINDOW),
    "mixtral": dict(model_type="mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe": dict(
        model_type="qwen2_moe",
        shared_expert_intermediate_size=40,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        **WINDOW,
        **EXPERTS,
    ),
    "qwen3_moe": dict(
        model_type="qwen3_moe", head_dim=12, mlp_only_layers=[1], norm_topk_prob=True, **WINDOW, **EXPERTS
    ),
}
IDS = np.random.default_rng(1).integers(0, V, (2, 24)).astype(np.int32)
LABELS = np.roll(IDS, -1, axis=1)


def theirs_of(case, tied):
    """A random model of ``case``; every vector of weights uneven and not zero."""
    torch.manual_seed(0)
    values = {**SIZES, **case, "tie_word_embeddings": tied, "eos_token_id": None, "bos_token_id": None}
    config = AutoConfig.for_model(**values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.copy_(("norm" in name) + 0.3 * torch.randn_like(weight))
            elif "gate.weight" in name or "experts" in name:
                weight.normal_(0, 0.4)
    return model.eval()


def their_logits(model):
    with torch.no_grad():
        return model(torch.tensor(IDS.astype(np.int64))).logits.numpy()


def batch_of(ids):
    zeros = np.zeros(ids.shape, np.int32)
    positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    return [ms.Tensor(np.ascontiguousarray(a)) for a in (ids, positions, zeros + 1, zeros)]


def our_logits(model):
    return model.logits(model(*batch_of(IDS))).asnumpy()


def load_theirs(folder):
    model, told = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not any(told.values()), told
    return model


def weights_in(model):
    return {p.name: p.asnumpy() for p in model.trainable_params()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_agree_both_ways(tmp_path, case, tied):
    theirs = theirs_of(case, tied)
    expected = their_logits(theirs)
    assert np.abs(expected).max() > 0.5, "too small to tell"
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="10KB" if tied else "1GB")
    assert (tmp_path / "theirs/model.safetensors.index.json").is_file() == tied
    ours = load_transformer(tmp_path / "theirs")
    np.testing.assert_allclose(our_logits(ours), expected, atol=1e-4)

    weights = weights_in(ours)
    export_hf(tmp_path / "ours", ours.config, weights, max_shard_bytes=5e9 if tied else 10_000)
    assert (tmp_path / "ours/model.safetensors.index.json").is_file() != tied
    back = load_theirs(tmp_path / "ours")
    assert back.config.model_type == case["model_type"]
    np.testing.assert_allclose(their_logits(back), expected, atol=1e-4)
    _, again = load_hf(tmp_path / "ours")
    assert all(np.array_equal(again[name], weights[name]) for name in weights)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"])
def test_losses_agree_after_a_training_step(tmp_path, name):
    theirs = theirs_of(CASES[name], tied=name in ("qwen2", "mixtral"))
    theirs.save_pretrained(tmp_path / "a")
    ours, rate = load_transformer(tmp_path / "a"), 0.1
    labels, ids = torch.tensor(LABELS.reshape(-1).astype(np.int64)), torch.tensor(IDS.astype(np.int64))
    loss_of, target, batch = ops.SparseSoftmaxCrossEntropyWithLogits(), ms.Tensor(LABELS.reshape(-1)), batch_of(IDS)

    def our_loss(*batch):
        return loss_of(ops.reshape(ours.logits(ours(*batch)), (-1, V)), target)

    def their_loss():
        return torch.nn.functional.cross_entropy(theirs(ids).logits.reshape(-1, V), labels)

    first = their_loss()
    first.backward()
    torch.optim.SGD(theirs.parameters(), lr=rate).step()
    parameters = [p for p in ours.trainable_params() if p.name not in own_tensors(ours.config)]
    start = {p.name: p.asnumpy().copy() for p in parameters}
    value, gradients = ms.value_and_grad(our_loss, None, parameters)(*batch)
    np.testing.assert_allclose(float(value.asnumpy()), first.item(), rtol=1e-5)
    for parameter, gradient in zip(parameters, gradients):
        ops.assign(parameter, ops.sub(parameter, ops.mul(gradient, rate)))
    second = their_loss().item()
    assert second < first.item() - 0.01
    np.testing.assert_allclose(float(our_loss(*batch).asnumpy()), second, rtol=2e-5)
    theirs.save_pretrained(tmp_path / "b")
    _, trained = load_hf(tmp_path / "b")
    for p in parameters:
        step = trained[p.name] - start[p.name]
        assert step.any(), f"{p.name} did not learn"
        np.testing.assert_allclose(p.asnumpy(), trained[p.name], atol=1e-4 * np.abs(step).max() + 1e-6, err_msg=p.name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_transformers_saves_is_what_it_loads_from_us(tmp_path, case):
    """The same file names, tensor for tensor and bit for bit, and the same settings."""
    theirs = theirs_of(case, tied=False)
    theirs.save_pretrained(tmp_path / "theirs")
    config, weights = load_hf(tmp_path / "theirs")
    assert weights.keys() == tensors_of(config, case["model_type"]).keys()
    export_hf(tmp_path / "ours", config, weights)
    mine, its = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs"))
    assert mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in its)
    said, meant = AutoConfig.from_pretrained(tmp_path / "ours").to_dict(), theirs.config.to_dict()
    ignored = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "max_window_layers"}
    ignored |= {"attention_dropout", "head_dim"}  # written where the family's class has no field for it
    differ = {k for k in meant if k not in ignored and said.get(k) != meant[k]}
    assert differ <= {"rope_parameters"}, {k: (said.get(k), meant[k]) for k in differ}
    assert said["rope_parameters"].items() >= meant["rope_parameters"].items()


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"])
def test_keys_left_out_mean_what_transformers_takes(kind):
    sizes = {k: v for k, v in SIZES.items() if k != "initializer_range"}
    spelled_out = json.loads(AutoConfig.for_model(kind, **sizes).to_json_string(use_diff=False))
    experts = {k: v for k, v in spelled_out.items() if "expert" in k or k == "moe_intermediate_size"}
    assert from_hf({"model_type": kind, **sizes, **experts}) == from_hf(spelled_out)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_folders(tmp_path, dtype):
    theirs = theirs_of(CASES["qwen3_moe"], tied=False).to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path / "theirs")
    config, weights = load_hf(tmp_path / "theirs")
    export_hf(tmp_path / "ours", config, weights, dtype=dtype)
    mine, its = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs"))
    assert all(torch.equal(mine[name], its[name]) and mine[name].dtype == its[name].dtype for name in its)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "ours").dtype == getattr(torch, dtype)


def test_narrowing_rounds_as_torch_does(tmp_path):
    config = from_hf({"model_type": "llama", **SIZES})
    rng = np.random.default_rng(0)
    shapes = {name: tensor.shape for name, tensor in tensors_of(config, "llama").items()}
    weights = {n: (rng.normal(size=s) * 10.0 ** rng.integers(-9, 4, s)).astype(np.float32) for n, s in shapes.items()}
    for dtype in ("bfloat16", "float16"):
        stored = load_file(export_hf(tmp_path / dtype, config, weights, dtype=dtype) / "model.safetensors")
        for name, tensor in stored.items():
            assert torch.equal(tensor, torch.tensor(weights[name]).to(getattr(torch, dtype))), name


def test_text_is_the_same_there(tmp_path, samples):
    tokenizer = load_tokenizer(samples / "tokenizer")
    case = {**CASES["qwen2"], "vocab_size": len(tokenizer)}
    theirs_of(case, tied=True).save_pretrained(tmp_path / "theirs")
    ours = load_transformer(tmp_path / "theirs")
    export_hf(tmp_path / "ours", ours.config, weights_in(ours), tokenizer, {"max_new_tokens": 12})
    reader, theirs = AutoTokenizer.from_pretrained(tmp_path / "ours"), load_theirs(tmp_path / "ours")
    assert theirs.generation_config.eos_token_id == tokenizer.eos_token_id == reader.eos_token_id
    prompts = [encode(tokenizer, text).ids.tolist() for text in ("猫坐在垫子上。", "The cat", "1 + 1 =")]
    expected = []
    for prompt, text in zip(prompts, ("猫坐在垫子上。", "The cat", "1 + 1 =")):
        given = reader(text, return_tensors="pt", add_special_tokens=False)
        assert given.input_ids[0].tolist() == prompt
        made = theirs.generate(**{k: given[k] for k in ("input_ids", "attention_mask")})[0, len(prompt) :].tolist()
        expected.append(made[: made.index(reader.eos_token_id)] if reader.eos_token_id in made else made)
    assert max(map(len, expected)) == 12
    assert generate(ours, prompts, 12, stop_ids=[tokenizer.eos_token_id]) == expected


def test_old_readers_find_what_they_look_for(tmp_path):
    """``transformers`` 4 knows ``rope_theta``, ``rope_scaling`` and ``torch_dtype`` only."""
    values = to_hf(from_hf({"model_type": "llama", **SIZES, "rope_parameters": LLAMA3}))
    old = {k: v for k, v in values.items() if k not in ("rope_parameters", "dtype")}
    new = {k: v for k, v in values.items() if k not in ("rope_theta", "rope_scaling", "torch_dtype")}
    assert AutoConfig.for_model(**old).to_dict() == AutoConfig.for_model(**new).to_dict()
    assert from_hf(old) == from_hf(new) == from_hf(values)
