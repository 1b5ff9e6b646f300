"""A batch cut into parts of one fixed shape, so that nothing is ever compiled twice.

    B rows of the batch   b rows of a part   S positions of a part

The first batch decides b and S. A later batch with fewer rows, or shorter ones, is filled up with
padding, which has no loss and is seen by nothing; what is larger is refused.
"""

from typing import Mapping

import numpy as np

from workbench.errors import DataError
from workbench.model.head_loss import IGNORED

INPUTS = ("input_ids", "position_ids", "segment_ids", "task_ids", "labels", "instruction_labels", "fact_targets")
_EMPTY = {"labels": IGNORED, "instruction_labels": IGNORED, "fact_targets": -1}


def part_shape(batch: Mapping[str, np.ndarray], parts: int) -> tuple[int, int]:
    """(b, S) for a batch that is to be computed in ``parts``."""
    rows, length = batch["input_ids"].shape
    return -(-rows // parts), length


def micro_batches(batch: Mapping[str, np.ndarray], parts: int, shape: tuple[int, int]) -> list[tuple[np.ndarray, ...]]:
    """``parts`` tuples of arrays (b, S), in the order of ``INPUTS``. Raises DataError for a batch that is larger."""
    rows, length = batch["input_ids"].shape
    if rows > parts * shape[0] or length > shape[1]:
        raise DataError(
            f"a batch of {rows} x {length} positions does not fit the compiled step, which takes up to "
            f"{parts * shape[0]} x {shape[1]}: begin with the largest batch, or make a new TrainStep"
        )
    wide = {}
    for name in INPUTS:
        values = np.asarray(batch[name])
        # One type whatever is given: another one would compile the step again.
        kind = np.float32 if name == "fact_targets" else np.int32
        filled = np.full((parts * shape[0], shape[1]), _EMPTY.get(name, 0), kind)
        filled[:rows, :length] = values
        wide[name] = filled
    return [tuple(wide[name][i * shape[0] : (i + 1) * shape[0]] for name in INPUTS) for i in range(parts)]
