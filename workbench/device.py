"""CPU or Ascend: which device a process computes on, what exists there, and which rank it is.

The only file that knows that there are two kinds of device. The CPU with float32 is the default
and is what everything is tested on. What is chosen for Ascend here has not been run on Ascend.
This file reads the environment that ``msrun`` sets; it starts no cluster and seeds nothing.
"""

import os
import sys
from dataclasses import dataclass

from workbench.errors import SettingError, unknown_name


@dataclass(frozen=True)
class Device:
    """A device in use, and what exists there.

    ``matmul_dtypes`` are the types its matrix multiplication computes in; ``flash_attention`` says
    whether it has the fused attention kernel (``workbench.model.flash``).
    """

    name: str
    matmul_dtypes: tuple[str, ...]
    flash_attention: bool

    @property
    def is_ascend(self) -> bool:
        return self.name == "Ascend"


DEVICES = {
    "CPU": Device("CPU", matmul_dtypes=("float32", "float16"), flash_attention=False),
    # Not run on Ascend: taken from the operators' documentation.
    "Ascend": Device("Ascend", matmul_dtypes=("float32", "float16", "bfloat16"), flash_attention=True),
}


def use_device(name: str = "CPU") -> Device:
    """Make ``name`` the device of this process, in PyNative mode, with deterministic kernels on Ascend.

    Call it before the first operator; a process keeps its device. Raises SettingError for an
    unknown name, for Ascend where there is none, and for another device than the one in use.
    """
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    import mindspore as ms

    if name == "Ascend" and not ms.device_context.ascend.is_available():
        raise SettingError(
            "device='Ascend' is not available here: MindSpore finds no Ascend driver and CANN toolkit; "
            "set device='CPU' or run where `npu-smi info` lists a card"
        )
    current = ms.get_context("device_target")
    try:
        ms.set_device(name)
    except RuntimeError as error:
        # MindSpore refuses once a kernel has run, also for the device on which it ran.
        if current != name:
            raise SettingError(f"device={name!r}: this process computes on {current}; start a new one") from error
    ms.set_context(mode=ms.PYNATIVE_MODE)
    if name == "Ascend":
        ms.set_deterministic(True)  # not run on Ascend; the CPU has no such switch to turn
    _start_quietly()
    return DEVICES[name]


def _start_quietly() -> None:
    """Run a first operator and a first compiled function, whose banners MindSpore prints on stdout.

    Only the file descriptor of stdout is set aside, and only meanwhile: errors go to stderr or are
    raised. Otherwise the banners land in whichever notebook cell computes first.
    """
    import mindspore as ms

    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        ms.jit(_successor)(ms.Tensor(1.0)).asnumpy()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _successor(x):
    return x + 1


def ranks() -> tuple[int, int]:
    """``(rank, world size)`` of this process as ``msrun`` started it; ``(0, 1)`` when it did not."""
    if os.environ.get("MS_ROLE") != "MS_WORKER":
        return 0, 1
    return int(os.environ.get("RANK_ID", "0")), int(os.environ.get("MS_WORKER_NUM", "1"))
