"""Optional kernels in C++ for what a training step on the CPU does between its matrix products.

    kernels, said = native_kernels()          None and the reason where they cannot be had
    name, said = use_kernels(model, "native")  what the model really computes with, and why

Stock operators are the default, the definition that tests compare with, and what runs where there
is no compiler. The kernels compute in float32, which is also what their stock counterparts do when
the products are in half precision; there the loss has no kernel (``train/losses.py``). A recomputed
block takes plain gradients and with them stock operators.

What lies between the products took 0.6 of the stock operators' time in MindSpore's operator profile,
and the first step, compilation included, 0.5 to 0.9 (2026-11-30, 2 cores, other work on them, 4 layers of
hidden size 256, 8 x 256 positions; one profile of 3 steps, three first steps). Sums are in another order than the
stock ones': losses agree to 1e-5 over ten steps, not to the bit. Not here: products, optimizer.
"""

from functools import lru_cache

from mindspore import nn
import mindspore as ms

from workbench.model.native.build import compiled_library
from workbench.model.native.cells import Kernels
from workbench.settings import require


@lru_cache(maxsize=1)
def native_kernels() -> tuple[Kernels | None, str]:
    """The kernels and where they are, or None and the reason, in one line. Compiles at the first call of a process."""
    path, said = compiled_library()
    return (Kernels(path) if path else None), said


def use_kernels(model: nn.Cell, kernels: str) -> tuple[str, str]:
    """Give ``model``'s cells the kernels named; ("stock" or "native", one line for the log).

    Raises SettingError for another name, and for native on another device than the CPU.
    """
    require(kernels in ("stock", "native"), "kernels", kernels, "stock or native")
    if kernels == "stock":
        return "stock", "MindSpore's operators"
    device = ms.get_context("device_target")
    require(device == "CPU", "kernels", kernels, f"stock on {device}; native is for the CPU")
    found, said = native_kernels()
    if found is None:
        return "stock", f"MindSpore's operators, since {said}"
    for _, cell in model.cells_and_names():
        if hasattr(cell, "use_kernels"):
            cell.use_kernels(found)
    return "native", said
