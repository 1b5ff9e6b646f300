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
    """Write ``arrays`` into ``parameters`` by name. Raises as ``check_fit``; then nothing has been written."""
    by_name = {p.name: p for p in parameters}
    check_fit({name: tuple(p.shape) for name, p in by_name.items()}, arrays)
    for name, parameter in by_name.items():
        ops.assign(parameter, ms.Tensor(np.ascontiguousarray(arrays[name]), parameter.dtype))


def check_fit(shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise DataError, naming them, where names are missing, left over or of another shape than ``shapes`` says."""
    missing, unknown = sorted(shapes.keys() - arrays.keys()), sorted(arrays.keys() - shapes.keys())
    differ = [
        f"{n} has shape {arrays[n].shape}, expected {shapes[n]}"
        for n in sorted(shapes.keys() & arrays.keys())
        if tuple(arrays[n].shape) != shapes[n]
    ]
    problems = [f"missing {', '.join(missing[:4])}"] * bool(missing)
    problems += [f"unknown {', '.join(unknown[:4])}"] * bool(unknown) + differ[:4]
    if problems:
        raise DataError(f"the weights do not fit the model: {'; '.join(problems)}")
