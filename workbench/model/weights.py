"""Weights set by name, in place.

``Parameter.set_data`` gives a parameter new memory. A function that was compiled before keeps
computing on the old one and neither sees the new values nor shows its own updates (seen on
MindSpore 2.10, CPU). ``ops.assign`` writes into the memory that is there, so it is the only way
that is right before and after compilation.
"""

from typing import Iterable, Mapping

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.errors import DataError


def set_weights(parameters: Iterable[ms.Parameter], arrays: Mapping[str, np.ndarray]) -> None:
    """Write ``arrays`` into ``parameters`` by name.

    Raises DataError, naming them, where names are missing, left over or of another shape; then
    nothing has been written.
    """
    by_name = {p.name: p for p in parameters}
    missing, unknown = sorted(by_name.keys() - arrays.keys()), sorted(arrays.keys() - by_name.keys())
    shapes = [
        f"{n} has shape {arrays[n].shape}, expected {tuple(by_name[n].shape)}"
        for n in sorted(by_name.keys() & arrays.keys())
        if tuple(arrays[n].shape) != tuple(by_name[n].shape)
    ]
    problems = [f"missing {', '.join(missing[:4])}"] * bool(missing)
    problems += [f"unknown {', '.join(unknown[:4])}"] * bool(unknown) + shapes[:4]
    if problems:
        raise DataError(f"the weights do not fit the model: {'; '.join(problems)}")
    for name, parameter in by_name.items():
        ops.assign(parameter, ms.Tensor(np.ascontiguousarray(arrays[name]), parameter.dtype))
