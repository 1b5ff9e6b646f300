"""context.py: the plan against arrays that are really made, the measured peaks against their growth."""

import shutil
import sys
from dataclasses import asdict

import pytest
from tiny_model import TINY

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
import numpy as np

from workbench.config import ModelConfig
from workbench.errors import SettingError, UserError
from workbench.model.context import context_plan, prefill_peaks
from workbench.model.generate import _empty_cache
from workbench.model.mask_forms import kernel_mask
from workbench.model.masks import Mask, additive, causal
from workbench.model.transformer import Transformer

GROUPED = ModelConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2)


def test_the_plan_counts_what_the_arrays_hold():
    plan = context_plan(GROUPED, 96, chunk=32)
    mask, scores = causal(96), np.zeros((8, 96, 96), np.float16)
    assert (plan.boolean_mask, plan.additive_mask) == (mask.nbytes, additive(mask).nbytes)
    assert (plan.head_scores_float16, plan.scores_float16) == (scores[0].nbytes, scores.nbytes)
    assert (plan.head_scores_float32, plan.scores_float32) == (2 * scores[0].nbytes, 2 * scores.nbytes)
    model = Transformer(GROUPED, seed=0)
    # As ``Transformer.decode`` lays it out for a chunk: (B*K, G*Q, L).
    laid_out = model.for_heads(ms.Tensor(additive(mask)[None, :32]))
    assert laid_out.shape == (2, 4 * 32, 96)
    assert plan.chunk_mask == plan.chunk_scores == laid_out.asnumpy().nbytes
    cache = _empty_cache(model, 1, 96)
    assert plan.cache_float32 == 2 * plan.cache_float16 == sum(array.asnumpy().nbytes for array in cache)


def test_the_kernels_mask_is_its_tile_and_a_chunk_is_no_longer_than_the_prompt():
    assert context_plan(GROUPED, 131072).kernel_mask == kernel_mask(Mask(), 131072, 131072).attn_mask.nbytes
    assert context_plan(GROUPED, 10, chunk=512).chunk_mask == 4 * 8 * 10 * 10


@pytest.mark.parametrize("length", [2048, 4096, 65536])
def test_what_grows_with_the_square_and_what_with_the_length(length):
    short, long = (asdict(context_plan(GROUPED, size)) for size in (length, 2 * length))
    for name, size in short.items():
        growth = {"kernel_mask": 1, "length": 2}.get(name, 2 if name.startswith(("chunk", "cache")) else 4)
        assert long[name] == growth * size, name
    assert context_plan(GROUPED, 131072).boolean_mask == 16 << 30


def test_chunked_memory_grows_with_the_length_and_one_pass_with_its_square():
    long, double = prefill_peaks(TINY, [2048, 4096], chunk=256)
    (whole,) = prefill_peaks(TINY, [2048], chunk=2048)
    assert 1.7 * long < double < 2.2 * long
    assert whole > 4 * long
    plan = context_plan(TINY, 2048, chunk=256)
    assert plan.chunk_mask + plan.chunk_scores < long
    assert context_plan(TINY, 2048).scores_float32 < whole


def test_wrong_lengths_are_refused():
    with pytest.raises(SettingError, match="length=0 is not allowed"):
        context_plan(TINY, 0)
    with pytest.raises(SettingError, match="chunk=0 is not allowed"):
        prefill_peaks(TINY, [8], chunk=0)


@pytest.mark.parametrize("program, said", [("false", "exit 1.: no output"), ("echo", "exit 0.: -m workbench.model")])
def test_a_measurement_that_fails_says_why(monkeypatch, program, said):
    monkeypatch.setattr(sys, "executable", shutil.which(program))
    with pytest.raises(UserError, match=f"the memory measurement failed .{said}"):
        prefill_peaks(TINY, [8])
