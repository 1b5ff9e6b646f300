"""One arm of the training benchmark in a process of its own, which computes only when told to.

    python -m tests.bench.train_worker stock|native|eager|compile JOB.json
    python -m tests.bench.train_worker data JOB.json

A step is forward, backward, clip by global norm, AdamW with decay on matrices. Weights and batches
are those of ``model_worker``. "data" trains on the real pipeline with batches as the training loop
takes them and says the seconds that each step waited for data, and those of the step. MindSpore's
peak is of its allocator; torch's is its allocator's as well, from the profiler's record of one
step, on top of weights, moments and batches. Neither sees what oneDNN takes for itself.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .model_worker import batches, say, serve, weights

RATE, DECAY, CLIP, BETAS, EPSILON = 1e-3, 0.1, 1.0, (0.9, 0.95), 1e-8


def ours(job: dict, kernels: str) -> Callable[[int], float]:
    """A function of the batch's number: one whole step of ``TrainStep``, the mean loss before it."""
    import workbench  # noqa: F401  (sets MindSpore's environment)

    from workbench.config import ModelConfig, TrainConfig
    from workbench.device import use_device
    from workbench.model.transformer import Transformer
    from workbench.model.weights import set_weights
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    use_device("CPU")
    shape, length = job["shape"], job["length"]
    settings = shape | {"max_position_embeddings": length, "tie_word_embeddings": False}
    config = TrainConfig(
        weight_decay=DECAY, max_grad_norm=CLIP, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPSILON
    )
    model = Transformer(ModelConfig(**settings), seed=0, kernels=kernels)
    given = weights(shape)
    set_weights([p for p in model.trainable_params() if p.name in given], given)
    state, whole = TrainState.fresh(model, config), TrainStep(model, config)
    inputs = [whole_batch(ids) for ids in batches(shape, job["rows"], length)]

    def step(number: int) -> float:
        return whole(state, inputs[number], RATE)[1]["lm_loss"]

    return step


def whole_batch(ids: np.ndarray) -> dict[str, np.ndarray]:
    """A batch of ``TrainStep`` of one document a row, without tasks."""
    ids = ids.astype(np.int32)
    return {
        "input_ids": ids,
        "position_ids": np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1)),
        "segment_ids": np.ones_like(ids),
        "task_ids": np.zeros_like(ids),
        "labels": np.concatenate([ids[:, 1:], np.full((len(ids), 1), -100, np.int32)], 1),
        "instruction_labels": np.full_like(ids, -100),
        "fact_targets": np.full(ids.shape, -1, np.float32),
    }


def theirs(job: dict, compiled: bool) -> Callable[[int], float]:
    """The same by ``transformers.LlamaForCausalLM`` under CPU torch, with its fused AdamW."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(job["threads"])
    shape, length = job["shape"], job["length"]
    settings = shape | {"max_position_embeddings": length, "tie_word_embeddings": False, "use_cache": False}
    model = LlamaForCausalLM(LlamaConfig(**settings, rms_norm_eps=1e-5, attn_implementation="sdpa")).float().train()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in weights(shape).items()}, strict=True)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if (p.ndim >= 2) == matrices], "weight_decay": DECAY * matrices}
        for matrices in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, fused=True)
    function = torch.compile(model) if compiled else model
    inputs = [torch.from_numpy(ids) for ids in batches(shape, job["rows"], length)]

    def step(number: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        value = function(input_ids=inputs[number], labels=inputs[number]).loss
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return value.item()

    def allocator_mb() -> float:
        optimizer.zero_grad(set_to_none=True)  # what was allocated before the profiler is freed unseen
        moments = [x for state in optimizer.state.values() for x in state.values() if torch.is_tensor(x)]
        total = sum(x.numel() * x.element_size() for x in (*parameters, *moments, *inputs))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
            step(0)
        changes = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
        peak = total
        for change in sorted(changes, key=lambda e: e.start_ns()):
            total += change.nbytes()
            peak = max(peak, total)
        return peak / 2**20

    step.allocator_mb = allocator_mb
    return step


def data(job: dict) -> None:
    """Say seconds waited for data and seconds of the step, of ``job["steps"]`` real steps after the first."""
    import workbench  # noqa: F401  (sets MindSpore's environment)

    from workbench.config import DataConfig, ModelConfig, RunConfig, TrainConfig
    from workbench.data.pipeline import open_corpus
    from workbench.data.tokenizing import load_tokenizer
    from workbench.device import use_device
    from workbench.train.dropping import drop
    from workbench.train.prefetching import prefetched
    from workbench.train.starting import starting_model
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    shape = {k: v for k, v in job["shape"].items() if k != "vocab_size"}
    model = ModelConfig(**shape, max_position_embeddings=job["length"])
    config = RunConfig(
        data=DataConfig(sequence_length=job["length"]), model=model, train=TrainConfig(batch_size=job["rows"])
    )
    tokenizer = load_tokenizer(config.data.tokenizer)
    config, model = starting_model(config, tokenizer, use_device(config.device))
    state, step = TrainState.fresh(model, config.train), TrainStep(model, config.train)
    waits, computes = [], []
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_corpus(config.data, tokenizer, Path(folder), config.model.num_tasks)
        given = prefetched(corpus.batches(job["rows"], position=0, steps=job["steps"] + 1))
        for at in range(job["steps"] + 1):
            start = time.perf_counter()
            batch = drop(next(given), config.model, config.train.seed, at * job["rows"])
            ready = time.perf_counter()
            step(state, batch, RATE)
            waits.append(ready - start)
            computes.append(time.perf_counter() - ready)
    say({"wait_seconds": waits[1:], "compute_seconds": computes[1:]})


def main(arm: str, path: str) -> None:
    if arm == "data":
        data(json.loads(Path(path).read_text()))
    elif arm in ("stock", "native"):
        serve(lambda job: ours(job, arm), path)
    else:
        serve(lambda job: theirs(job, arm == "compile"), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
