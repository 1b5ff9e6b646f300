"""One arm of the model benchmark in a process of its own, which computes only when told to.

    python -m tests.bench.model_worker ours|eager|compile SHAPE.json

Reads "go STEPS" lines and answers each with one line of JSON: seconds and loss of every step, the
processor seconds of all, and those that passed before, while it should have been idle. "end" ends
it with a line of its peak resident memory. Forward and backward only, no optimizer; every arm
gets the same weights and batches, made here from the shape alone. Does not do: any comparing.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

BATCHES = 4


def weights(shape: dict) -> dict[str, np.ndarray]:
    """float32 arrays by Hugging Face's names: norms near 1, all else normal(0, 0.02)."""
    size, inner, vocabulary = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    kv = size // shape["num_attention_heads"] * shape["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (vocabulary, size), "model.norm.weight": (size,)}
    shapes["lm_head.weight"] = (vocabulary, size)
    for layer in range(shape["num_hidden_layers"]):
        within = {
            "input_layernorm": (size,),
            "self_attn.q_proj": (size, size),
            "self_attn.k_proj": (kv, size),
            "self_attn.v_proj": (kv, size),
            "self_attn.o_proj": (size, size),
            "post_attention_layernorm": (size,),
            "mlp.gate_proj": (inner, size),
            "mlp.up_proj": (inner, size),
            "mlp.down_proj": (size, inner),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": sizes for name, sizes in within.items()}
    rng = np.random.default_rng(0)
    drawn = {name: rng.normal(0, 0.02, sizes).astype(np.float32) for name, sizes in sorted(shapes.items())}
    return {name: values + (1 if values.ndim == 1 else 0) for name, values in drawn.items()}


def batches(shape: dict, rows: int, length: int) -> list[np.ndarray]:
    """``BATCHES`` arrays of token ids, int64 (rows, length)."""
    return [np.random.default_rng(n + 1).integers(0, shape["vocab_size"], (rows, length)) for n in range(BATCHES)]


def ours(shape: dict, rows: int, length: int, threads: int) -> Callable[[int], float]:
    """A function of the batch's number: one compiled forward and backward pass, the mean loss."""
    import workbench  # noqa: F401  (sets MindSpore's environment)
    import mindspore as ms
    from mindspore import ops

    from workbench.config import ModelConfig
    from workbench.device import use_device
    from workbench.model.transformer import Transformer
    from workbench.train.losses import lm_loss_sum

    use_device("CPU")
    settings = shape | {"max_position_embeddings": length, "tie_word_embeddings": False}
    model = Transformer(ModelConfig(**settings), seed=0)
    given = weights(shape)
    parameters = ms.ParameterTuple([p for p in model.trainable_params() if p.name in given])
    for parameter in parameters:
        parameter.set_data(ms.Tensor(given[parameter.name]))

    def loss(input_ids, position_ids, segment_ids, task_ids, labels):
        hidden = model(input_ids, position_ids, segment_ids, task_ids)
        hidden = ops.reshape(hidden, (rows * length, shape["hidden_size"]))
        return lm_loss_sum(model, hidden, ops.reshape(labels, (-1,))) / float(rows * (length - 1))

    compiled = ms.jit(ms.value_and_grad(loss, None, weights=parameters))
    inputs = []
    for ids in batches(shape, rows, length):
        labels = np.concatenate([ids[:, 1:], np.full((rows, 1), -100)], 1)
        positions = np.tile(np.arange(length), (rows, 1))
        arrays = ids, positions, np.ones_like(ids), np.zeros_like(ids), labels
        inputs.append([ms.Tensor(np.ascontiguousarray(a, dtype=np.int32)) for a in arrays])
    last = [p.name for p in parameters].index("model.layers.0.input_layernorm.weight")

    def step(number: int) -> float:
        value, gradients = compiled(*inputs[number])
        gradients[last].asnumpy()  # nearly the last thing that the backward pass computes
        return float(value.asnumpy())

    return step


def theirs(shape: dict, rows: int, length: int, threads: int, compiled: bool) -> Callable[[int], float]:
    """The same by ``transformers.LlamaForCausalLM`` under CPU torch."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    settings = shape | {"max_position_embeddings": length, "tie_word_embeddings": False, "use_cache": False}
    model = LlamaForCausalLM(LlamaConfig(**settings, rms_norm_eps=1e-5, attn_implementation="sdpa")).float().train()
    given = {name: torch.from_numpy(values) for name, values in weights(shape).items()}
    model.load_state_dict(given, strict=True)
    function = torch.compile(model) if compiled else model
    inputs = [torch.from_numpy(ids) for ids in batches(shape, rows, length)]

    def step(number: int) -> float:
        model.zero_grad(set_to_none=True)
        value = function(input_ids=inputs[number], labels=inputs[number]).loss
        value.backward()
        return value.item()

    return step


def serve(build: Callable[[dict], Callable[[int], float]], path: str) -> None:
    """Build the step of the job in file ``path``, say so, and answer lines until "end".

    A step with an attribute ``allocator_mb`` is asked for it at the end.
    """
    job = json.loads(Path(path).read_text())
    start = time.perf_counter()
    step = build(job)
    say({"built_seconds": time.perf_counter() - start} | getattr(step, "told", {}))
    spent, done = processor_seconds(), 0
    for line in sys.stdin:
        if line.strip() == "end":
            break
        idle = processor_seconds() - spent
        seconds, losses = [], []
        for _ in range(int(line.split()[1])):
            begin = time.perf_counter()
            losses.append(step(done % BATCHES))
            seconds.append(time.perf_counter() - begin)
            done += 1
        now = processor_seconds()
        used, spent = now - spent - idle, now
        say({"seconds": seconds, "losses": losses, "processor_seconds": used, "idle_processor_seconds": idle})
    peaks = {"peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if hasattr(step, "allocator_mb"):
        peaks["peak_allocator_mb"] = step.allocator_mb()
    say(peaks)


def main(arm: str, path: str) -> None:
    def build(job: dict) -> Callable[[int], float]:
        sizes = job["shape"], job["rows"], job["length"], job["threads"]
        return ours(*sizes) if arm == "ours" else theirs(*sizes, compiled=arm == "compile")

    serve(build, path)


def processor_seconds() -> float:
    used = os.times()
    return used.user + used.system


def say(told: dict) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
