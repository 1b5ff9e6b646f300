"""Arrays that visit a staging buffer to be worked on: the loop, and what the copies cost here.

    visit(link, count, bring, work, carry_home)      double-buffered with a link (one thread), else one after the other
    measured = measure_staging(megabytes=64, repeats=9)
    measured.milliseconds("fresh"), measured.milliseconds("reused"), ...

The article's section 4.2 claims that pinned memory takes a transfer to the device from 12.4 to 3.1 ms
and training to +19 %; it states no size, and nothing of it can be shown without a device. What is
true on any machine is behind it: memory that is there already takes a copy sooner than memory whose
pages have to be made first (by how much depends on their size), and a disk that is waited for takes
it later. That is measured here, in one CPU's memory: no link to a device, no pinning, Linux only. A
measurement costs a second or two and some five times ``megabytes`` of memory.
"""

import mmap
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.errors import DataError
from workbench.settings import require

ARMS = {
    "fresh": "copy into new memory, pages of 4 KiB",
    "huge": "copy into new memory, huge pages",
    "reused": "copy into memory used before",
    "disk": "copy into a mapped file and flush it",
    "single": "in, AdamW, out; one buffer",
    "double": "in, AdamW, out; two buffers and a thread",
}
ARTICLE_MS = (12.4, 3.1)  # section 4.2: without and with pinned memory, size not stated
_CHUNKS = 8


def visit(
    link: ThreadPoolExecutor | None,
    count: int,
    bring: Callable[[int], None],
    work: Callable[[int], None],
    carry_home: Callable[[int], None],
) -> None:
    """Do ``bring(i)``, ``work(i)``, ``carry_home(i)`` for each i below ``count``; what they raise is raised.

    With a ``link`` of one thread the first and the last are done there: while i is worked on, i - 1
    is carried home and i + 1 brought. Two neighbours must not share a buffer; any others may, because
    the thread does its tasks in order and i is carried home before i + 2 is brought.
    """
    if link is None:
        for i in range(count):
            bring(i)
            work(i)
            carry_home(i)
        return
    coming = [link.submit(bring, i) for i in range(min(2, count))]
    going = []
    for i in range(count):
        coming[i].result()
        work(i)
        going.append(link.submit(carry_home, i))
        if i + 2 < count:
            coming.append(link.submit(bring, i + 2))
    for task in going:
        task.result()


@dataclass(frozen=True)
class Staging:
    """Seconds of every repeat of each of ``ARMS``, in the order measured; ``megabytes`` (MiB) are copied or visit."""

    megabytes: float
    seconds: dict[str, tuple[float, ...]]

    def milliseconds(self, arm: str) -> tuple[float, float, float]:
        """The median and the quartiles around it: (median, lower, upper)."""
        lower, median, upper = np.percentile(self.seconds[arm], (25, 50, 75)) * 1e3
        return float(median), float(lower), float(upper)


def measure_staging(megabytes: float = 64, repeats: int = 9, folder: Path | None = None) -> Staging:
    """Time the arms in turns, ``repeats`` times after one that does not count; ``folder`` is where the file lies.

    ``single`` and ``double`` bring ``megabytes`` of AdamW moments in eight parts into staging buffers,
    update with the kernel and carry them home. Raises SettingError for values below what can be timed,
    DataError for a folder that cannot hold the file.
    """
    require(megabytes >= 1, "megabytes", megabytes, "at least 1")
    require(repeats >= 1, "repeats", repeats, "at least 1")
    part = int(megabytes * 2**20) // (4 * 2 * _CHUNKS)
    home = np.ones((_CHUNKS, 2, part), np.float32)
    reused = np.zeros_like(home)
    mapped = mapped_file(home.size, folder).reshape(home.shape)
    with ThreadPoolExecutor(1) as link:

        def fresh(advice: int = mmap.MADV_NOHUGEPAGE) -> None:
            # Mapped by hand: an allocator might hand out pages it had before, and NumPy asks for huge ones.
            with mmap.mmap(-1, home.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
                pages.madvise(advice)
                np.copyto(np.frombuffer(pages, np.float32).reshape(home.shape), home)

        def disk() -> None:
            np.copyto(mapped, home)
            mapped.flush()

        update = _update(home, part)
        arms = {
            "fresh": fresh,
            "huge": lambda: fresh(mmap.MADV_HUGEPAGE),
            "reused": lambda: np.copyto(reused, home),
            "disk": disk,
            "single": lambda: update(None),
            "double": lambda: update(link),
        }
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        for round in range(repeats + 1):
            for name, arm in arms.items():
                start = time.perf_counter()
                arm()
                if round:
                    seconds[name].append(time.perf_counter() - start)
    return Staging(home.nbytes / 2**20, {name: tuple(found) for name, found in seconds.items()})


def _update(home: np.ndarray, part: int) -> Callable[[ThreadPoolExecutor | None], None]:
    """A function that lets every part (2, part) of ``home`` visit two buffers (one without a link) for AdamW."""
    gradient = ops.ones(part, ms.float32)
    weight = staging_parameter((part,), "staging_weight")
    buffers = [[staging_parameter((part,), f"staging_{i}_moment{k}") for k in (1, 2)] for i in (0, 1)]
    numbers = [ms.Tensor(n, ms.float32) for n in (1e-3, 0.9, 0.95, 1e-8, 0.1)]
    adam = ops.AdamWeightDecay()
    views = [[moment.asnumpy() for moment in buffer] for buffer in buffers]

    def run(link: ThreadPoolExecutor | None) -> None:
        used = 2 if link else 1

        def bring(i):
            for view, kept in zip(views[i % used], home[i]):
                np.copyto(view, kept)

        def work(i):
            adam(weight, *buffers[i % used], *numbers, gradient)[0].asnumpy()

        def carry_home(i):
            for view, kept in zip(views[i % used], home[i]):
                np.copyto(kept, view)

        visit(link, len(home), bring, work, carry_home)

    return run


def staging_parameter(shape: tuple[int, ...], name: str) -> ms.Parameter:
    """A Parameter of zeros whose memory is the allocator's; on the CPU ``asnumpy()`` is a view of that memory."""
    made = ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)), name=name, requires_grad=False)
    made.set_data(ops.zeros(shape, ms.float32))  # what it was made with is host memory, which nothing counts
    return made


def mapped_file(elements: int, folder: Path | None) -> np.memmap:
    """(elements,) float32 zeros in a file without a name in ``folder``, all of its room taken at once.

    Raises DataError where that is not possible.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="moments-") as file:
            # A sparse file would end the process with SIGBUS when the disk is full later.
            os.posix_fallocate(file.fileno(), 0, 4 * elements)
            return np.memmap(file, np.float32, "r+", shape=(elements,))
    except OSError as error:
        raise DataError(
            f"optimizer_offload='disk': {folder or tempfile.gettempdir()} cannot hold {4 * elements / 2**20:,.1f} MiB "
            f"of moments: {error.strerror}; give another folder, or set optimizer_offload='host'"
        ) from error
