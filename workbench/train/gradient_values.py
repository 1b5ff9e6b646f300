"""Gradient values against float16's limits: what rounding loses at a loss scale, and what a float16 backward pass does.

    gradient = model_gradient(model, train_config, batch)            float32 values, unscaled
    lost_values(gradient, scale)                                     shares lost when they are rounded
    gradient_error(half_model, train_config, batch, scale, gradient)  of a real float16 backward pass

Too small a scale rounds small gradients to zero, too large a one makes large ones infinite; the
article (section 3.2) has it the other way round. ``lost_values`` rounds the finished gradient once,
exactly; a float16 backward pass rounds at every product on the way.

float16 (IEEE 754-2008): smallest subnormal 2^-24 = 6.0e-8, half of which still rounds up to it;
smallest normal 2^-14 = 6.1e-5, below it bits are lost; largest 65,504, 65,520 and more is infinite.

Costs a forward and a backward pass, not compiled.
"""

from dataclasses import dataclass
from typing import Mapping

import mindspore as ms
import numpy as np

from workbench.config import TrainConfig
from workbench.model.transformer import Transformer
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS

SMALLEST_SUBNORMAL, SMALLEST_NORMAL, LARGEST = 2.0**-24, 2.0**-14, 65504.0


@dataclass(frozen=True)
class Lost:
    """Shares of the values that are not zero: rounded to zero, left with fewer bits, made infinite."""

    to_zero: float
    subnormal: float
    infinite: float


def model_gradient(
    model: Transformer, config: TrainConfig, batch: Mapping[str, np.ndarray], scale: float = 1.0
) -> np.ndarray:
    """All gradients of loss * ``scale``, divided by ``scale`` again, as one float64 array; not finite where they overflow."""
    weights = (config.lm_weight, config.instruction_weight, config.fact_weight)
    parameters = ms.ParameterTuple(model.trainable_params())

    def loss(*tensors):
        return joint_loss(model, weights, tensors[:-1], tensors[-1])[0] * scale

    inputs = [ms.Tensor(np.asarray(batch[name])) for name in INPUTS]
    gradients = ms.grad(loss, None, weights=parameters)(*inputs, ms.Tensor(target_counts(batch)))
    return np.concatenate([g.asnumpy().astype(np.float64).ravel() for g in gradients]) / scale


def lost_values(values: np.ndarray, scale: float) -> Lost:
    """What float16 loses of ``values * scale``, by rounding them; zeros among the values do not count."""
    wanted = np.asarray(values, np.float64)
    wanted = np.abs(wanted[wanted != 0]) * scale
    with np.errstate(over="ignore"):
        got = wanted.astype(np.float16)
    small = (got > 0) & (got < np.float16(SMALLEST_NORMAL))
    return Lost(*(float(share.mean()) if wanted.size else 0.0 for share in (got == 0, small, np.isinf(got))))


def gradient_error(
    model: Transformer, config: TrainConfig, batch: Mapping[str, np.ndarray], scale: float, exact: np.ndarray
) -> float:
    """|gradient - exact| / |exact| of ``model`` (float16) at a loss scale; infinite where it overflows."""
    got = model_gradient(model, config, batch, scale)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact)) if np.isfinite(got).all() else float("inf")


def sizes_by_power(values: np.ndarray, lowest: int = -50, highest: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """(powers p, share of the values that are not zero with 2^p <= |value| < 2^(p + 1)); the ends take what is beyond."""
    sizes = np.abs(np.asarray(values, np.float64))
    powers = np.frexp(sizes[(sizes > 0) & np.isfinite(sizes)])[1] - 1
    counts = np.bincount(np.clip(powers, lowest, highest) - lowest, minlength=highest - lowest + 1)
    return np.arange(lowest, highest + 1), counts / max(1, counts.sum())
