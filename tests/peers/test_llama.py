"""The model against ``transformers.LlamaForCausalLM`` with the same random weights, float32 on the CPU."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.config import ModelConfig
from workbench.model.generate import generate
from workbench.model.transformer import Transformer

OURS_ALONE = {"task_embedding.weight", "instruction_head.weight", "fact_head.weight"}
SHARED = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    initializer_range=0.2,
)


def twins(key_value_heads, tied, theta):
    """Both models with Hugging Face's weights, copied by name; also their norms are made uneven."""
    own = dict(num_key_value_heads=key_value_heads, tie_word_embeddings=tied)
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": theta}
    theirs = LlamaForCausalLM(LlamaConfig(**SHARED, **own, rope_parameters=rope, attn_implementation="eager")).float()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
    ours = Transformer(ModelConfig(**SHARED, **own, rope_theta=theta), seed=0)
    weights = {name: weight.detach().numpy() for name, weight in theirs.named_parameters()}
    names = {p.name for p in ours.get_parameters()}
    assert names - OURS_ALONE == set(weights)
    for parameter in ours.get_parameters():
        if parameter.name in weights:
            parameter.set_data(ms.Tensor(weights[parameter.name]))
    return ours, theirs


def arrays_of(ids):
    zeros = np.zeros(ids.shape, np.int32)
    positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    return [ms.Tensor(np.ascontiguousarray(a)) for a in (ids, positions, zeros + 1, zeros)]


@pytest.mark.parametrize("key_value_heads, tied, theta", [(4, True, 10000.0), (2, False, 10000.0), (1, True, 500000.0)])
def test_logits_and_gradients_are_llamas(key_value_heads, tied, theta):
    ours, theirs = twins(key_value_heads, tied, theta)
    ids = np.random.default_rng(1).integers(0, 97, (2, 24)).astype(np.int32)
    labels = np.roll(ids, -1, axis=1).reshape(-1)
    logits = theirs(torch.tensor(ids.astype(np.int64))).logits
    expected = torch.nn.functional.cross_entropy(logits.reshape(-1, 97), torch.tensor(labels.astype(np.int64)))
    expected.backward()
    got = ours.logits(ours(*arrays_of(ids))).asnumpy()
    np.testing.assert_allclose(got, logits.detach().numpy(), atol=1e-4)

    loss_of, target = ops.SparseSoftmaxCrossEntropyWithLogits(), ms.Tensor(labels)

    def loss(*batch):
        return loss_of(ops.reshape(ours.logits(ours(*batch)), (-1, 97)), target)

    weights = [p for p in ours.trainable_params() if p.name not in OURS_ALONE]
    value, gradients = ms.value_and_grad(loss, None, weights)(*arrays_of(ids))
    np.testing.assert_allclose(value.asnumpy(), expected.item(), rtol=1e-5)
    named = dict(theirs.named_parameters())
    for parameter, gradient in zip(weights, gradients):
        want = named[parameter.name].grad.numpy()
        np.testing.assert_allclose(gradient.asnumpy(), want, atol=1e-4 * np.abs(want).max(), err_msg=parameter.name)


def test_greedy_text_is_llamas():
    ours, theirs = twins(2, True, 10000.0)
    prompts = [[5, 6, 7], [90, 1, 2, 3, 4, 5, 6, 7], [11]]
    theirs.generation_config.eos_token_id = None
    expected = []
    for prompt in prompts:
        ids, seen = torch.tensor([prompt]), torch.ones(1, len(prompt))
        text = theirs.generate(ids, attention_mask=seen, max_new_tokens=8, do_sample=False, pad_token_id=0)
        expected.append(text[0, len(prompt) :].tolist())
    assert generate(ours, prompts, 8) == expected
