"""What is left out of a training step by chance: layers, and the task ids of documents.

Drawn on the host from (seed, position in the data), so a resumed run draws what an uninterrupted
one would have, and any number of ranks agrees. The compiled step gets the outcome as arrays and has
neither a branch nor a random number in it.
"""

from typing import Mapping

import numpy as np

from workbench.config import ModelConfig

_LAYERS, _TASKS = 1, 2  # independent streams of one seed


def drop(
    batch: Mapping[str, np.ndarray], config: ModelConfig, seed: int, position: int, first_row: int = 0
) -> dict[str, np.ndarray]:
    """``batch`` (see ``SampleSource.batch``) with ``layer_factors`` and thinned ``task_ids``, where ``config`` asks.

    ``position`` is that of the step's first sample in the data; ``batch`` begins ``first_row``
    samples later, where other ranks have those before.
    """
    changed = dict(batch)
    if config.layer_dropout:
        changed["layer_factors"] = layer_factors(config, seed, position)
    if config.task_dropout:
        ids, segments, start = batch["task_ids"], batch["segment_ids"], position + first_row
        rows = (_without_some(i, s, config, seed, start + row) for row, (i, s) in enumerate(zip(ids, segments)))
        changed["task_ids"] = np.stack(list(rows))
    return changed


def layer_factors(config: ModelConfig, seed: int, position: int) -> np.ndarray:
    """float32 (layers,): 0 with probability ``layer_dropout``, else 1 / (1 - layer_dropout).

    The same probability for every layer (LayerDrop, Fan et al. 2020, section 3.2), scaled so that
    the expected sum is that of evaluation, where no layer is left out.
    """
    draws = np.random.default_rng((seed, _LAYERS, position)).random(config.num_hidden_layers)
    kept = draws >= config.layer_dropout
    return (kept / (1 - config.layer_dropout)).astype(np.float32)


def _without_some(ids: np.ndarray, segments: np.ndarray, config: ModelConfig, seed: int, position: int) -> np.ndarray:
    """One row's task ids (S,), each document's set to 0 (no task) with probability ``task_dropout``."""
    draws = np.random.default_rng((seed, _TASKS, position)).random(int(segments.max(initial=0)) + 1)
    return np.where(draws[segments] < config.task_dropout, 0, ids).astype(ids.dtype)
