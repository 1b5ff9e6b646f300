"""CPU or Ascend: which device a process computes on, what exists there, and which rank it is.

The only file that knows that there are two kinds of device. The CPU with float32 is the default
and is what everything is tested on. What is chosen for Ascend here has not been run on Ascend.
This file reads the environment that ``msrun`` sets, joins the cluster that it started and leaves it;
it starts none and seeds nothing.

    with joined_ranks() as (rank, world):     under msrun; (0, 1) without it
        ...                                   collectives work from here on

A process joins once: having left, it cannot join again. Who joined leaves: in a process that is a
rank from start to end (a notebook's kernel under ``workbench run --workers``) the block above finds
itself joined and changes nothing at its end. Leaving costs up to three seconds (a worker tells the
scheduler, which answers at its next beat).
"""

import ctypes
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

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


def named_device(name: str) -> Device:
    """What is known of a device before it is used. Raises SettingError for an unknown name."""
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    return DEVICES[name]


def use_device(name: str = "CPU") -> Device:
    """Make ``name`` the device of this process, in PyNative mode, with deterministic kernels on Ascend.

    Call it before the first operator; a process keeps its device. Raises SettingError for an
    unknown name, for Ascend where there is none, and for another device than the one in use.
    """
    device = named_device(name)
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
    if "MS_ROLE" not in os.environ:  # else joining comes first: a scheduler that has computed cannot end cleanly
        _start_quietly()
    return device


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


def join_ranks() -> tuple[int, int]:
    """Join the cluster of ``msrun`` and return ``(rank, world size)``; without ``msrun`` ``(0, 1)`` and nothing done.

    Call it after ``use_device`` and before anything else is computed. ``msrun`` runs the same program
    as a scheduler too: in that process this does not return, it ends the process with the job.
    """
    if "MS_ROLE" not in os.environ:
        return 0, 1
    from mindspore import communication

    _finalize_cluster()  # that leaving is possible is known before the work is done
    communication.init()
    if os.environ["MS_ROLE"] == "MS_SCHED":
        sys.exit(0)
    os.environ["RANK_ID"] = str(communication.get_rank())  # over several machines it is assigned just now
    _start_quietly()
    return ranks()


def leave_ranks() -> None:
    """Tell the scheduler that this rank is done. Nothing can be sent to other ranks afterwards.

    A process that ends without it in any way but its own normal end (a notebook's kernel is
    stopped from outside) is waited for: 30 s later the scheduler calls the whole job failed.
    """
    if _joined():
        _finalize_cluster()()


def join_as(rank: int, device: str) -> None:
    """Use ``device`` and join; for a process that was told beforehand which rank it will be.

    Raises SettingError for the device, RuntimeError when the cluster gives it another rank: its
    files would be another's.
    """
    use_device(device)
    given, world = join_ranks()
    if given != rank:
        raise RuntimeError(f"this process was started as rank {rank} but joined as rank {given} of {world}")


@contextmanager
def joined_ranks() -> Iterator[tuple[int, int]]:
    """``join_ranks`` and, whatever happens meanwhile, ``leave_ranks``; neither in a process that has joined already."""
    if _joined():
        yield ranks()
        return
    here = join_ranks()
    try:
        yield here
    finally:
        leave_ranks()


def check_joined() -> None:
    """Raise SettingError for one of several ranks that has not joined them; its first collective would crash it."""
    rank, world = ranks()
    if world > 1 and not _joined():
        raise SettingError(
            f"this is rank {rank} of {world}, but it has not joined the others: "
            "call workbench.device.join_ranks() before a TrainState is made"
        )


def _joined() -> bool:
    if "mindspore" not in sys.modules:
        return False
    from mindspore.communication import GlobalComm

    return GlobalComm.INITED


def _finalize_cluster():
    """MindSpore's own function for leaving, which only the end of its process calls.

    Nothing of its Python interface does (tried with 2.10 on 2026-11-30: ``release``,
    ``destroy_process_group`` and ``_finalize_comm`` leave the scheduler waiting), so it is taken
    from the library under its C++ name.
    """
    import mindspore

    library = ctypes.CDLL(str(Path(mindspore.__file__).parent / "lib" / "libmindspore_cluster.so"))
    return library._ZN9mindspore11distributed15FinalizeClusterEv
