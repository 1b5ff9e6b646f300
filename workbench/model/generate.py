"""Cached decoding, greedy or sampled, of many prompts of different lengths at once.

    B rows   S prompt length   V vocabulary

Prompts are padded on the right and every row fills its own cache slots in order: a new token of a
row overwrites the padding slot at its position before any query can see it, so padding needs no
mask of its own. Prompts longer than ``prefill_chunk`` enter the cache chunk by chunk. Two functions
are compiled, one for the prompts or a chunk of them and one for a single token, for each (rows,
prompt or chunk length, cache length), which are rounded up to keep those few.

Cost: a forward pass over the prompts, then one position a row and token; the cache takes
2 * layers * rows * key/value heads * cache length * head dimension numbers and is copied once a
call. A chunk holds mask and scores of rows * heads * chunk * cache length: memory grows linearly
with the length (``context.py`` has it measured). Every chunk computes against the whole cache,
which is twice the products that are needed; caches that double as they fill would bring that to
4/3 times, and a compilation for each size. No beam search; a row that has stopped is computed
along until its whole batch has.
"""

from typing import Iterator, Sequence

import numpy as np
import mindspore as ms

from workbench.config import ModelConfig, require
from workbench.errors import DataError, SettingError
from workbench.model.transformer import Transformer

LENGTH_STEP = 32  # prompt and cache lengths are rounded up to a multiple of it
PREFILL_CHUNK = 512  # positions of each prompt that are computed at once


def generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    rng: np.random.Generator | None = None,
    task_ids: Sequence[int] | None = None,
    batch_size: int = 64,
    length_step: int = LENGTH_STEP,
    prefill_chunk: int = PREFILL_CHUNK,
) -> list[list[int]]:
    """New tokens of each prompt, in the prompts' order, without the prompt and the stop id.

    A row ends at its first token of ``stop_ids`` or after ``max_new_tokens``. ``temperature`` 0 is
    greedy; above it, tokens are drawn by ``rng`` from softmax(logits / temperature) cut to the
    smallest set of tokens that holds ``top_p`` of the probability (Holtzman et al. 2020, section
    3.1). ``task_ids`` has one id a prompt, default 0. The result does not depend on the last three:
    lengths are rounded up to a multiple of ``length_step``, so a larger one compiles fewer functions
    and computes more padding; a smaller ``prefill_chunk`` or ``batch_size`` takes less memory.

    Raises DataError for an empty prompt, an id outside the vocabulary or the tasks, and a prompt
    that does not fit with its new tokens; SettingError for a wrong option.
    """
    require(max_new_tokens >= 1, "max_new_tokens", max_new_tokens, "at least 1")
    require(batch_size >= 1, "batch_size", batch_size, "at least 1")
    require(length_step >= 1, "length_step", length_step, "at least 1")
    require(prefill_chunk >= 1, "prefill_chunk", prefill_chunk, "at least 1")
    require(temperature >= 0, "temperature", temperature, "0 (greedy) or more")
    require(0 < top_p <= 1, "top_p", top_p, "above 0, at most 1")
    if temperature > 0 and rng is None:
        raise SettingError(f"temperature={temperature} needs rng=numpy.random.default_rng(SEED) to draw from")
    task_ids = [0] * len(prompts) if task_ids is None else list(task_ids)
    _check(model.config, prompts, task_ids, max_new_tokens)
    if not prompts:
        return []
    # All draws at once, a row for each prompt: a prompt's text does not depend on its neighbours.
    draws = rng.random((len(prompts), max_new_tokens)) if temperature > 0 else None
    longest = max(map(len, prompts))
    limit = model.config.max_position_embeddings
    prompt_length = min(_round_up(longest, length_step), limit)
    cache_length = min(_round_up(max(prompt_length, longest + max_new_tokens), length_step), limit)
    rows = min(batch_size, 1 << (len(prompts) - 1).bit_length())
    texts: list[list[int]] = []
    for start in range(0, len(prompts), rows):
        part = slice(start, start + rows)
        steps = _decode(model, prompts[part], task_ids[part], rows, prompt_length, cache_length, prefill_chunk)
        texts += _collect(steps, None if draws is None else draws[part], max_new_tokens, stop_ids, temperature, top_p)
    return texts


def _decode(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    task_ids: Sequence[int],
    rows: int,
    prompt_length: int,
    cache_length: int,
    prefill_chunk: int,
) -> Iterator[np.ndarray]:
    """Yields float32 logits (len(prompts), V) of the next token, and is sent the chosen tokens."""
    tokens = np.zeros((rows, prompt_length), np.int32)
    lengths, tasks = np.ones(rows, np.int32), np.zeros((rows, 1), np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
        lengths[row], tasks[row] = len(prompt), task_ids[row]
    # Not bound to a name here, where it would outlive the first chunk.
    logits, cache = _prefill(model, tokens, lengths, tasks, _empty_cache(model, rows, cache_length), prefill_chunk)
    none = np.zeros(rows, np.int32)
    while True:
        chosen = yield logits[: len(prompts)]
        column = np.zeros((rows, 1), np.int32)
        column[: len(prompts), 0] = chosen
        logits, cache = _call(model, column, lengths[:, None], none, tasks, cache)
        lengths = lengths + 1


def _empty_cache(model: Transformer, rows: int, length: int) -> tuple[ms.Tensor, ...]:
    config = model.config
    shape = (rows * config.num_key_value_heads, length, config.head_size)
    empty = np.zeros(shape, np.float32)
    return tuple(ms.Tensor(empty).astype(model.compute_dtype) for _ in range(2 * config.num_hidden_layers))


def _prefill(model: Transformer, tokens, lengths, tasks, cache, chunk: int):
    """Prompts (B, S) of ``lengths`` (B,) into the cache: logits (B, V) after each prompt's last token, cache."""
    size = min(chunk, tokens.shape[1])
    wanted = np.empty((len(tokens), model.config.vocab_size), np.float32)
    for start in range(0, int(lengths.max()), size):
        # The last chunk is as long as the others, so that one function does for all: it begins
        # earlier and computes some positions again, which gives what the cache already holds.
        start = min(start, tokens.shape[1] - size)
        part = tokens[:, start : start + size]
        positions = np.broadcast_to(np.arange(start, start + size, dtype=np.int32), part.shape)
        last = lengths - 1 - start
        here = (0 <= last) & (last < size)
        last = np.where(here, last, 0).astype(np.int32)
        logits, cache = _call(model, part, positions, last, np.broadcast_to(tasks, part.shape), cache)
        wanted[here] = logits[here]
    return wanted, cache


def _call(model: Transformer, tokens, positions, last, tasks, cache):
    """``Transformer.next_logits`` with numpy in and the logits as numpy out."""
    arrays = (ms.Tensor(np.ascontiguousarray(array)) for array in (tokens, positions, last, tasks))
    logits, cache = model.next_logits(*arrays, *cache)
    return logits.asnumpy(), cache


def _collect(steps, draws, max_new_tokens, stop_ids, temperature, top_p) -> list[list[int]]:
    """Run one batch of ``_decode`` to its end."""
    logits = next(steps)
    texts: list[list[int]] = [[] for _ in logits]
    running = np.ones(len(texts), bool)
    for index in range(max_new_tokens):
        if draws is None:
            chosen = logits.argmax(axis=1)
        else:
            chosen = sample(logits, draws[:, index], temperature, top_p)
        running &= ~np.isin(chosen, stop_ids)
        for row in np.flatnonzero(running):
            texts[row].append(int(chosen[row]))
        if not running.any() or index + 1 == max_new_tokens:
            break
        logits = steps.send(chosen)
    steps.close()
    return texts


def sample(logits: np.ndarray, draws: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """Token of each row: logits (B, V), uniform ``draws`` (B,) in [0, 1) -> int (B,), by inverse distribution."""
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1)
    ranked /= ranked.sum(axis=1, keepdims=True)
    before = np.cumsum(ranked, axis=1) - ranked
    ranked[before >= top_p] = 0  # the likeliest token has 0 before it and always stays
    heights = np.cumsum(ranked, axis=1)
    picked = (heights <= draws[:, None] * heights[:, -1:]).sum(axis=1)
    return np.take_along_axis(order, picked[:, None], axis=1)[:, 0]


def _check(config: ModelConfig, prompts, task_ids, max_new_tokens: int) -> None:
    if len(task_ids) != len(prompts):
        raise DataError(f"task_ids: {len(task_ids)} ids for {len(prompts)} prompts, give one for each")
    for index, (prompt, task) in enumerate(zip(prompts, task_ids)):
        if len(prompt) == 0:
            raise DataError(f"prompt {index} is empty, it needs at least one token")
        if len(prompt) + max_new_tokens > config.max_position_embeddings:
            raise DataError(
                f"prompt {index} has {len(prompt)} tokens and max_new_tokens is {max_new_tokens}, together above "
                f"max_position_embeddings={config.max_position_embeddings}: shorten the prompt or ask for fewer tokens"
            )
        wrong = next((token for token in prompt if not 0 <= token < config.vocab_size), None)
        if wrong is not None:
            raise DataError(f"prompt {index} holds token {wrong}, allowed are 0 to {config.vocab_size - 1}")
        if not 0 <= task < config.num_tasks:
            raise DataError(f"prompt {index} has task id {task}, allowed are 0 to {config.num_tasks - 1}")


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
