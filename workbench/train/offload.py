"""AdamW whose moments are kept off the device, on the host or on disk, and visit it to be updated.

    the compiled step    backward, reduce, judge   → gradients, and the numbers of the update
    outside of it        for each parameter: moments into a staging buffer, kernel, moments back

There are two staging buffers for each shape of parameter that occurs twice or more, one for a shape
that occurs once. While the kernel updates parameter i, a thread carries the moments of i - 1 home
and brings those of i + 1. Kernel and numbers are those of the plain optimizer: the result is the
same to the bit.

Memory on the device: the staging buffers instead of 8 bytes an element, that is the moments of two
layers and of the embedding instead of those of all layers. Costs in time: every byte of the moments
is copied twice a step (``staging.py`` measures how fast), and the update waits for the whole
backward pass, because clipping needs the norm of all gradients. On disk the moments are a mapped
file without a name, so that nothing is left behind however the process ends; it is flushed while
the next step computes. A ``folder`` on tmpfs would be memory, not disk.

CPU only: a Parameter's ``asnumpy()`` is its memory there. What Ascend offers instead is in
``ascend_optimizer.py``. Not here: gradients or weights off the device, sharded moments off the device.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Mapping, Sequence

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.config import TrainConfig
from workbench.errors import DataError, SettingError
from workbench.model.weights import check_fit
from workbench.train.optimizing import Replicated
from workbench.train.staging import mapped_file, staging_parameter, visit


class OffloadedAdamW(Replicated):
    """AdamW with moments on the host or on disk; the protocol of ``optimizing.py``, and ``apply``.

    ``folder``: where the file of ``optimizer_offload="disk"`` is made (None: the system's temporary
    folder). Raises SettingError on another device than the CPU; DataError where the folder cannot
    hold the file.
    """

    on_host = True

    def __init__(
        self, parameters: ms.ParameterTuple, config: TrainConfig, ranks: int = 1, folder: Path | None = None
    ) -> None:
        super().__init__(parameters, config, ranks)
        if ms.get_context("device_target") != "CPU":
            raise SettingError(
                f"optimizer_offload={config.optimizer_offload!r} works on the CPU only: set it to 'none' and see "
                "workbench/train/ascend_optimizer.py"
            )
        shapes = [tuple(p.shape) for p in parameters]
        self.on_disk = config.optimizer_offload == "disk"
        elements = 2 * sum(p.size for p in parameters)
        # np.full writes, np.zeros would leave the pages to be made in the first step.
        self.kept = mapped_file(elements, folder) if self.on_disk else np.full(elements, 0.0, np.float32)
        ends = np.cumsum([2 * p.size for p in parameters])[:-1]
        # (2, ...) for each parameter: views, so that writing into them is writing home.
        self.homes = [part.reshape(2, *shape) for part, shape in zip(np.split(self.kept, ends), shapes)]
        buffers = {shape: _buffers(shape, min(2, shapes.count(shape))) for shape in dict.fromkeys(shapes)}
        seen = [shapes[:i].count(shape) for i, shape in enumerate(shapes)]
        self.stage = [buffers[shape][n % 2] for shape, n in zip(shapes, seen)]
        self.staged_bytes = sum(8 * int(np.prod(shape)) * len(found) for shape, found in buffers.items())
        self.link = ThreadPoolExecutor(1, "moments")
        self.flushing: Future | None = None

    def construct(self, gradients, factor, learning_rate, updates, apply):
        """What ``apply`` needs: (apply, factor, and the kernel's numbers) as one tensor, and the gradients."""
        rate, kept1, kept2, epsilon, per_rate, _ = self.kernel.numbers(learning_rate, updates, apply)
        return (ops.stack((apply, factor, rate, kept1, kept2, epsilon, per_rate)),) + tuple(gradients)

    def apply(self, left: Sequence[ms.Tensor]) -> None:
        """Update weights and moments with what the call returned. Raises DataError when the disk fails."""
        numbers, gradients = left[0].asnumpy(), left[1:]
        if numbers[0] < 0.5:
            return
        self._settle()
        factor, rate, kept1, kept2, epsilon, per_rate = (ms.Tensor(n, ms.float32) for n in numbers[1:])
        views = [[part.asnumpy() for part in pair] for pair in self.stage]

        def bring(i):
            for view, home in zip(views[i], self.homes[i]):
                np.copyto(view, home)

        def work(i):
            decay, gradient = self.decay[i] * per_rate, gradients[i] * factor
            done = self.kernel.adam(self.weights[i], *self.stage[i], rate, kept1, kept2, epsilon, decay, gradient)
            done[0].asnumpy()  # waits for the kernel

        def carry_home(i):
            for view, home in zip(views[i], self.homes[i]):
                np.copyto(home, view)

        visit(self.link, len(self.homes), bring, work, carry_home)
        if self.on_disk:
            self.flushing = self.link.submit(self.kept.flush)

    def moments(self) -> dict[str, np.ndarray]:
        """Both moments, whole, as ``moment1.NAME`` and ``moment2.NAME``; copies on the host."""
        self._settle()
        return {
            f"moment{k + 1}.{p.name}": np.array(home[k]) for k in (0, 1) for p, home in zip(self.weights, self.homes)
        }

    def load(self, moments: Mapping[str, np.ndarray]) -> None:
        """Take over the moments of another state. Raises DataError for names or shapes that differ."""
        check_fit({f"moment{k}.{p.name}": tuple(p.shape) for k in (1, 2) for p in self.weights}, moments)
        self._settle()
        for weight, home in zip(self.weights, self.homes):
            for k in (0, 1):
                np.copyto(home[k], moments[f"moment{k + 1}.{weight.name}"])

    def resident_bytes(self) -> dict[str, int]:
        """Bytes of moments by where they are kept: ``device`` (the staging buffers), ``host``, ``disk``."""
        kept = self.kept.nbytes
        return {
            "device": self.staged_bytes,
            "host": 0 if self.on_disk else kept,
            "disk": kept if self.on_disk else 0,
        }

    def _settle(self) -> None:
        if self.flushing is not None:
            flushing, self.flushing = self.flushing, None
            try:
                flushing.result()
            except OSError as error:
                raise DataError(
                    f"optimizer_offload='disk': the moments cannot be written: {error.strerror}; "
                    "give a folder on another disk, or set optimizer_offload='host'"
                ) from error


def _buffers(shape: tuple[int, ...], count: int) -> list[list[ms.Parameter]]:
    """``count`` pairs of staging buffers for the moments of a parameter of ``shape``."""
    name = "_".join(["staging", *map(str, shape)])
    return [[staging_parameter(shape, f"{name}_{i}_moment{k}") for k in (1, 2)] for i in range(count)]
