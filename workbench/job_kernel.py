"""The kernel of a job: this Python, its own log, time to save, and, on several ranks, joined from start to end.

A rank's kernel joins the others before its first cell and leaves them after its last: one that only
stops is missed by the scheduler for 30 s and called failed. It leaves too when it is stopped in a
cell, but not after a cell that failed: the others wait for it, and are better told at once. Both are
said to the kernel as silent requests, which no notebook shows. Leaving at the kernel's own end would
be too late: about one in a hundred hangs there and is terminated.

Costs, for a rank, the start of MindSpore before the first cell and up to three seconds at the end.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import IO, Any, Mapping

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from traitlets import default

SAVE_SECONDS = 40.0  # what a kernel that is stopped in a cell gets to write a checkpoint
LEAVE_SECONDS = 10.0


@dataclass(frozen=True)
class Rank:
    """Which rank a kernel is, on which device, and how many seconds the others may take to come."""

    number: int
    device: str = "CPU"
    join_seconds: float = 660.0  # msrun gives up after 600


class AtCell:
    """What the kernel does, as its client sees it: ``running`` a cell, or idle; the last one ``failed`` or not."""

    def __init__(self) -> None:
        self.running = self.failed = False

    def begins(self) -> None:
        self.running = True

    def ended(self, reply: Mapping[str, Any]) -> None:
        self.running, self.failed = False, reply["content"]["status"] == "error"


class JoinFailed(Exception):
    """A kernel could not join the other ranks; the message is one line."""


class _ThisPython(KernelSpecManager):
    """Knows one kernel: ipykernel of ``sys.executable``, whatever ``python3`` is registered for the user."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        # A crash in native code then leaves the Python lines it happened in on the process's stderr.
        crashes = "--IPKernelApp.exec_lines=__import__('faulthandler').enable()"
        kernel = get_kernel_dict(extra_arguments=[crashes])
        return KernelSpec(resource_dir=RESOURCES, env={"WORKBENCH_PROGRESS": "log"}, **kernel)


def kernel_of_this_python(log: IO[str], cell: AtCell, rank: Rank | None = None) -> type[AsyncKernelManager]:
    """The kernel manager class for a job; what the kernel's process itself says goes to ``log``.

    Its sockets are encrypted where they can be; ipykernel 7.3 and later warn when they are not.
    Starting it raises JoinFailed.
    """

    class Kernel(AsyncKernelManager):
        @default("kernel_spec_manager")
        def _this_python(self) -> KernelSpecManager:
            return _ThisPython(parent=self)

        @default("transport_encryption")
        def _encrypted(self) -> str:
            return "auto"

        async def start_kernel(self, **options: Any) -> None:
            await super().start_kernel(**options, stdout=log, stderr=log)
            if rank:
                try:
                    join = f"__import__('workbench.device').device.join_as({rank.number}, {rank.device!r})"
                    await _say(self, join, rank.join_seconds)
                except JoinFailed:
                    await super().shutdown_kernel(now=True)
                    raise

        async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
            # A stopped run interrupts the kernel and gives it half of this time to write a checkpoint.
            # An idle one needs none; about one in a hundred hangs at its end (4 of 289 on
            # 2026-11-29: ipykernel's control thread waits for its output thread) and has to be terminated.
            self.shutdown_wait_time = SAVE_SECONDS if cell.running else 4.0
            if rank and not now and not cell.failed:
                # Interrupted once, here: to a loop that saves when it is, a second one means at once.
                if cell.running:
                    await self.interrupt_kernel()
                leave = "__import__('workbench.device').device.leave_ranks()"
                try:
                    await _say(self, leave, SAVE_SECONDS if cell.running else LEAVE_SECONDS)
                    self.shutdown_wait_time = 4.0
                except JoinFailed:
                    now = True
            await super().shutdown_kernel(now=now, restart=restart)

    return Kernel


async def _say(kernel: AsyncKernelManager, code: str, seconds: float) -> None:
    """Have ``kernel`` execute ``code`` before anything else is asked of it, unseen. Raises JoinFailed."""
    client: AsyncKernelClient = kernel.client()
    client.start_channels()
    until = time.monotonic() + seconds
    try:
        await client.wait_for_ready(timeout=60)
        reply = {"status": "aborted"}
        while reply["status"] == "aborted":  # a cell that fails takes what waits behind it along
            wait = client.execute(code, silent=True, reply=True, timeout=until - time.monotonic())
            answer = asyncio.ensure_future(wait)
            while not answer.done():
                await asyncio.wait([answer], timeout=0.5)
                if not answer.done() and not await kernel.is_alive():
                    answer.cancel()
                    raise JoinFailed("the kernel died")
            reply = (await answer)["content"]
    except (TimeoutError, RuntimeError) as error:
        raise JoinFailed(str(error) or f"no answer after {seconds:g} s") from None
    finally:
        client.stop_channels()
    if reply["status"] == "error":
        lines = str(reply["evalue"]).strip().splitlines() or [reply["ename"]]
        raise JoinFailed(lines[0][:300])
