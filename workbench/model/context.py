"""What a long context costs: a plan in bytes, and the measured peak of a prompt's way into the cache.

    S positions   H query heads   K key/value heads   C head dimension   Q positions of a chunk

    plan = context_plan(config, 131072)            bytes, from the configuration alone
    peaks = prefill_peaks(config, [1024, 2048])    bytes, of the allocator, one process a length

Whatever is S x S is out of reach long before 131,072 positions: one boolean mask is 16 GiB there, and
one head's float16 scores 32 GiB. Chunks of Q positions against the whole cache (``generate.py``)
hold Q x S a head instead, which grows linearly; the fused kernel of Ascend (not run) keeps no
scores at all.

Measured 2026-11-30 on two CPU cores (hidden 64, 2 layers, 4 heads, 2 key/value heads, float32; one
run each), peak in MiB:

    positions          1,024   2,048   4,096   8,192  16,384  32,768
    chunks of 512         26      51     101     201     401     801
    one pass                     197     778   3,091

25 MiB for every 1,024 positions, exactly a line; one pass takes four times as much for twice the
length, which would be 48 GiB at 32,768. A smaller chunk lowers the slope: it is H x Q x S x 4 bytes
about three times, and the cache twice. The time stays quadratic.

A measurement costs an import, a compilation and a forward pass over the prompt. The peak is that of
MindSpore's allocator, in whole MiB; what a kernel keeps outside it is not seen (the process of the
16,384 positions had 1,033 MiB resident, 530 of them for any length). Not here: training, whose
activations are measured in ``workbench/train/memory.py``.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Sequence

import numpy as np

from workbench.config import ModelConfig, require
from workbench.device import use_device
from workbench.errors import UserError
from workbench.model.generate import PREFILL_CHUNK, generate
from workbench.model.mask_forms import TILE
from workbench.model.transformer import Transformer

_STATISTICS = "memory_statistics:True"  # MindSpore then prints the allocator's peak when the process ends


@dataclass(frozen=True)
class ContextPlan:
    """Bytes for one sequence of ``length`` positions. Masks and scores are those of one layer at a time."""

    length: int
    boolean_mask: int  # S x S, shared by all heads
    additive_mask: int  # S x S, float32
    head_scores_float16: int  # S x S, of one head
    head_scores_float32: int
    scores_float16: int  # S x S, of all heads
    scores_float32: int
    chunk_mask: int  # H x Q x S, float32, laid out for all heads
    chunk_scores: int  # H x Q x S, float32
    cache_float16: int  # keys and values of all layers
    cache_float32: int
    kernel_mask: int  # the fused kernel's tile, whatever the length


def context_plan(config: ModelConfig, length: int, chunk: int = PREFILL_CHUNK) -> ContextPlan:
    """The plan for one sequence; ``config.max_position_embeddings`` may be shorter.

    Raises SettingError for a length or chunk below 1.
    """
    _check(length, chunk)
    heads, square = config.num_attention_heads, length * length
    chunked = 4 * heads * min(chunk, length) * length
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_size * length
    return ContextPlan(
        length=length,
        boolean_mask=square,
        additive_mask=4 * square,
        head_scores_float16=2 * square,
        head_scores_float32=4 * square,
        scores_float16=2 * heads * square,
        scores_float32=4 * heads * square,
        chunk_mask=chunked,
        chunk_scores=chunked,
        cache_float16=2 * cache,
        cache_float32=4 * cache,
        kernel_mask=TILE * TILE,
    )


def prefill_peaks(config: ModelConfig, lengths: Sequence[int], chunk: int = PREFILL_CHUNK) -> list[int]:
    """Peak bytes of the allocator while a prompt of each length is read in chunks and one token is made.

    Random weights and tokens, one row, float32, weights included; ``chunk`` = length is one pass.
    Raises SettingError for a length or chunk below 1, UserError with the last line the measuring
    process wrote when it fails.
    """
    for length in lengths:
        _check(length, chunk)
    return [_prefill_peak(config, length, chunk) for length in lengths]


def _prefill_peak(config: ModelConfig, length: int, chunk: int) -> int:
    runtime = [os.environ.get("MS_DEV_RUNTIME_CONF", ""), _STATISTICS]
    done = subprocess.run(
        [sys.executable, "-m", "workbench.model.context"],
        input=json.dumps([asdict(config), length, chunk]),
        env={**os.environ, "MS_DEV_RUNTIME_CONF": ",".join(filter(None, runtime))},
        capture_output=True,
        text=True,
    )
    peak = re.search(r"peak used mem:(\d+)M", done.stdout)
    if done.returncode or not peak:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"the memory measurement failed (exit {done.returncode}): {said[-1] if said else 'no output'}")
    return int(peak[1]) << 20


def _check(length: int, chunk: int) -> None:
    require(length >= 1, "length", length, "at least 1")
    require(chunk >= 1, "chunk", chunk, "at least 1")


def _measured_process() -> None:
    """The measuring process: a job on standard input, the allocator's line on standard output at its end."""
    values, length, chunk = json.load(sys.stdin)
    config = ModelConfig(**values)
    use_device("CPU")
    model = Transformer(replace(config, max_position_embeddings=length + 1), seed=0)
    prompt = np.random.default_rng(0).integers(0, config.vocab_size, length).tolist()
    generate(model, [prompt], 1, prefill_chunk=chunk)


if __name__ == "__main__":
    _measured_process()
