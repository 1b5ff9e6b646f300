"""Is every parameter reached by the loss? And is a norm layer's epsilon too small for float16?

MindSpore gives a parameter that the loss does not reach a gradient of exact zeros, never None, in
PyNative and in graph mode alike (2.10.0). So the check is: exactly zero in every one of K batches.
Costs K forward and backward passes in PyNative mode and one copy of the gradients. It changes no
weight. A row of an embedding that no batch used is not seen, only whole parameters are.
"""

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence

import mindspore as ms
import numpy as np
from mindspore import nn

from workbench.diagnose.findings import Finding
from workbench.errors import DataError, SettingError

# Measured on CPU, MindSpore 2.10.0 (tests/test_gradients.py): float16 nn.LayerNorm on a constant
# row has finite gradients at 1e-7 and none at 1e-8, which is 0 in float16.
SMALLEST_BUILT_IN_EPS = 1e-7
# A norm written by hand computes (var + eps)^(-3/2) in its gradient; in float16 that stays under the
# largest number 65504 only for eps >= 65504^(-2/3).
SMALLEST_MANUAL_EPS = 65504 ** (-2 / 3)


@dataclass(frozen=True)
class GradientReport:
    """One parameter over all batches: largest absolute gradient (None if not differentiated) and flags."""

    name: str
    shape: tuple[int, ...]
    max_abs: float | None
    batches: int
    requires_grad: bool
    in_optimizer: bool | None  # None where no optimizer was given

    @property
    def flags(self) -> tuple[str, ...]:
        """Any of ``zero``, ``non-finite``, ``frozen``, ``not in optimizer``; empty if all is well."""
        flags = []
        if not self.requires_grad:
            flags.append("frozen")
        elif self.max_abs == 0:
            flags.append("zero")
        elif not math.isfinite(self.max_abs):
            flags.append("non-finite")
        if self.requires_grad and self.in_optimizer is False:
            flags.append("not in optimizer")
        return tuple(flags)


def inspect_gradients(
    loss_fn: Callable[..., ms.Tensor],
    parameters: Iterable[ms.Parameter],
    batches: Iterable[Any],
    optimizer_parameters: Iterable[ms.Parameter] | None = None,
) -> tuple[GradientReport, ...]:
    """Largest absolute gradient of each parameter over ``batches``, in the order of ``parameters``.

    ``loss_fn(*batch)`` gives a scalar loss; a batch that is not a tuple or list is passed alone.
    ``optimizer_parameters`` (``optimizer.parameters``) adds who is missing there. Raises DataError
    without batches, SettingError without parameters or with two of one name.
    """
    parameters = tuple(parameters)
    names = [p.name for p in parameters]
    if not names:
        raise SettingError("parameters is empty: give net.get_parameters()")
    if doubles := sorted({n for n in names if names.count(n) > 1}):
        raise SettingError(f"two parameters are called {doubles[0]!r}: give each a name of its own")
    held = None if optimizer_parameters is None else {p.name for p in optimizer_parameters}
    trained = tuple(p for p in parameters if p.requires_grad)
    largest = {p.name: 0.0 for p in trained}
    count = 0
    gradient = ms.value_and_grad(loss_fn, None, weights=trained) if trained else None
    for batch in batches:
        count += 1
        if gradient is None:
            continue
        _, grads = gradient(*(batch if isinstance(batch, (tuple, list)) else (batch,)))
        for parameter, grad in zip(trained, grads):
            # nan wins over any number here, and stays: a later finite batch does not hide it.
            peak = np.abs(grad.asnumpy().astype(np.float64)).max(initial=0.0)
            largest[parameter.name] = float(np.maximum(largest[parameter.name], peak))
    if count == 0:
        raise DataError("batches is empty: give at least one batch (3 or more tell unused from unlucky)")
    return tuple(
        GradientReport(
            name=p.name,
            shape=tuple(p.shape),
            max_abs=largest.get(p.name),
            batches=count,
            requires_grad=bool(p.requires_grad),
            in_optimizer=None if held is None else p.name in held,
        )
        for p in parameters
    )


def gradient_findings(reports: Sequence[GradientReport]) -> list[Finding]:
    """One finding for each kind of flag, naming every parameter that carries it."""
    kinds = {
        "non-finite": (
            "non-finite gradient",
            "fatal",
            "run lint_eps, then this batch in float32, to find the operation",
        ),
        "zero": (
            "gradient cut off",
            "fatal",
            "unused or cut off (stop_gradient, asnumpy, an integer cast): follow it from the loss back",
        ),
        "not in optimizer": (
            "parameter not in optimizer",
            "fatal",
            "give it to the optimizer, or set requires_grad=False",
        ),
        "frozen": ("parameter frozen", "note", "requires_grad is False: right if it is meant to stay as it is"),
    }
    found = []
    for flag, (cause, severity, next_step) in kinds.items():
        named = [r for r in reports if flag in r.flags]
        if named:
            evidence = tuple(f"{r.name} {r.shape}: max |gradient| {r.max_abs} in {r.batches} batches" for r in named)
            found.append(Finding(cause, "numerics", severity, evidence, next_step))
    return found


def lint_eps(cell: nn.Cell) -> list[Finding]:
    """Norm layers in ``cell`` whose epsilon does not survive float16.

    Built-in ``nn.LayerNorm`` below 1e-7: a warning, its gradient is not finite on a constant row and
    nothing says so. Any other cell with Norm in its class name and an ``eps`` / ``epsilon`` below
    6.2e-4: a note, which holds only if it computes in float16; casting to float32 inside is the cure,
    a larger epsilon or a clamp changes the result.
    """
    found = []
    for name, part in cell.cells_and_names():
        kind = type(part).__name__
        value = next((getattr(part, n) for n in ("epsilon", "eps", "variance_epsilon") if hasattr(part, n)), None)
        if "Norm" not in kind or not isinstance(value, float):
            continue
        where = f"{name or 'the cell itself'} ({kind}): epsilon {value:g}"
        if isinstance(part, nn.LayerNorm):
            if value < SMALLEST_BUILT_IN_EPS:
                found.append(
                    Finding(
                        "epsilon too small",
                        "numerics",
                        "warning",
                        (
                            where,
                            f"in float16 its gradient is not finite on a constant row below {SMALLEST_BUILT_IN_EPS:g}",
                        ),
                        "set epsilon=1e-5",
                    )
                )
        elif value < SMALLEST_MANUAL_EPS:
            found.append(
                Finding(
                    "epsilon small for float16",
                    "numerics",
                    "note",
                    (
                        where,
                        f"(var + eps)^(-3/2) passes 65504 below {SMALLEST_MANUAL_EPS:.2g} if it computes in float16",
                    ),
                    "see that it casts to float32 before the variance; then 1e-5 is fine",
                )
            )
    return found
