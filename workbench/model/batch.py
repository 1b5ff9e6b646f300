"""What a batch must be before the compiled step gets it.

    B rows   S positions

A compiled function reads past the end of a table without a word, or dies in native code; here the
wrong array is named, with what it holds and which setting to change. Costs a few passes over the batch.
"""

import numpy as np

from workbench.config import ModelConfig
from workbench.errors import DataError
from workbench.model.head_loss import IGNORED
from workbench.model.mask_forms import MOST_DOCUMENTS


def check_batch(batch: dict[str, np.ndarray], config: ModelConfig, flash_attention: bool = False) -> None:
    """Refuse a batch that the compiled step would misread or die on; targets are optional. Raises DataError."""
    shape = np.shape(batch.get("input_ids"))
    if len(shape) != 2:
        raise DataError(f"input_ids has shape {shape}, expected (batch, sequence_length)")
    limits = {
        "input_ids": (config.vocab_size, "vocab_size"),
        "position_ids": (config.max_position_embeddings, "max_position_embeddings"),
        "segment_ids": (2**31 - 1, "int32"),
        "task_ids": (config.num_tasks, "num_tasks"),
    }
    for name, (limit, setting) in limits.items():
        if name not in batch:
            raise DataError(f"the batch has no {name}; it needs {', '.join(limits)}")
        values = np.asarray(batch[name])
        if values.shape != shape:
            raise DataError(f"{name} has shape {values.shape}, expected {shape} like input_ids")
        if values.dtype != np.int32:
            raise DataError(f"{name} is {values.dtype}, expected int32")
        if values.size and not (0 <= values.min() and values.max() < limit):
            wrong = values.max() if values.max() >= limit else values.min()
            raise DataError(f"{name} holds {wrong}, allowed are 0 to {limit - 1}: change the data or {setting}")
    targets = {"labels": config.vocab_size, "instruction_labels": config.num_tasks}
    for name in (name for name in (*targets, "fact_targets") if name in batch):
        values = np.asarray(batch[name])
        if values.shape != shape:
            raise DataError(f"{name} has shape {values.shape}, expected {shape} like input_ids")
        if name in targets and values.dtype.kind not in "iu":
            raise DataError(f"{name} is {values.dtype}, expected int32")
        # A fact target below 0 is none; a NaN is neither that nor a truth.
        if name in targets:
            wrong, allowed = (values != IGNORED) & ((values < 0) | (values >= targets[name])), targets[name] - 1
        else:
            wrong, allowed = ~(values <= 1), 1
        if wrong.any():
            none = IGNORED if name in targets else "-1"
            raise DataError(f"{name} holds {values[wrong][0]}, allowed are 0 to {allowed}, and {none} for no target")
    if flash_attention:
        segments = np.asarray(batch["segment_ids"])
        documents = int((segments[:, 1:] != segments[:, :-1]).sum()) + len(segments)
        if documents > MOST_DOCUMENTS:
            raise DataError(
                f"the batch holds {documents:,} documents and runs of padding, the fused attention kernel takes at "
                f"most {MOST_DOCUMENTS:,}: lower batch_size"
            )
