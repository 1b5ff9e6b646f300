"""Dynamic loss scale: what is decided after each backward pass, and nothing else.

    the loss is multiplied by the scale, so that small half-precision gradients survive
    finite?  yes  unscale by the scale that was used, clip, update; after ``loss_scale_window``
                  good steps in a row the scale grows
             no   nothing is updated: parameters, moments and counters stay as they are;
                  the scale shrinks, not below ``min_loss_scale``

(Micikevicius et al. 2018, "Mixed precision training", section 3.2.) A scale that is a power of
two (as it stays with the default factor) changes no bit of a float32 gradient when it is applied
and taken off again: an update is the same at any scale.

``next_scale`` is written once for numbers and for tensors inside the compiled step; the
simulations of notebook 03 run the very function that training runs.
"""

from dataclasses import dataclass

import numpy as np

from workbench.config import TrainConfig


def next_scale(scale, good_steps, finite, config: TrainConfig):
    """(scale, good_steps) after a step; ``finite`` 1.0 or 0.0, all three floats or () tensors.

    Written in arithmetic instead of branches, so that it compiles into the step as it is.
    """
    good_steps = (good_steps + 1.0) * finite
    grow = (good_steps >= config.loss_scale_window) * 1.0
    grown = scale * (1.0 + (config.loss_scale_factor - 1.0) * grow)
    wanted = grown * finite + scale / config.loss_scale_factor * (1.0 - finite)
    over = (wanted > config.max_loss_scale) * 1.0
    under = (wanted < config.min_loss_scale) * 1.0
    wanted = wanted * (1.0 - over) * (1.0 - under) + config.max_loss_scale * over + config.min_loss_scale * under
    return wanted, good_steps * (1.0 - grow)


@dataclass(frozen=True)
class ScaleTrace:
    """A loss scale over a run: the scale used at each step, and whether the step was skipped."""

    scale: np.ndarray
    skipped: np.ndarray


def simulate_limit(limit: np.ndarray, config: TrainConfig) -> ScaleTrace:
    """The scale where step i overflows whenever the scale is above ``limit[i]`` (steps,)."""
    scale, good = config.init_loss_scale, 0.0
    scales, skipped = [], []
    for bound in np.asarray(limit, np.float64):
        finite = float(scale <= bound)
        scales.append(scale)
        skipped.append(not finite)
        scale, good = next_scale(scale, good, finite, config)
    return ScaleTrace(np.asarray(scales), np.asarray(skipped))


def article_policy(limit: np.ndarray, init: float = 1024.0) -> tuple[ScaleTrace, np.ndarray]:
    """The article's rule, for comparison: double after every good step (at most 1024), halve else.

    Also returns (steps,) the factor by which its gradients are wrong: it unscales by the scale
    already changed instead of the one that was used. Overflowed steps count as skipped here,
    though its code applies an optimizer step with zeroed (in truth NaN) gradients.
    """
    scale, scales, skipped, wrong = init, [], [], []
    for bound in np.asarray(limit, np.float64):
        used = scale
        finite = used <= bound
        scale = min(scale * 2.0, 1024.0) if finite else max(scale * 0.5, 1.0)
        scales.append(used)
        skipped.append(not finite)
        wrong.append(used / scale if finite else np.nan)
    return ScaleTrace(np.asarray(scales), np.asarray(skipped)), np.asarray(wrong)
