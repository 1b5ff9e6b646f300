"""The loss scale: what a step does with it, and the policies that choose the next one.

    loss * scale  →  gradients, multiplied by the scale, so that small half-precision gradients survive
    finite?  yes  unscale by the scale that was used, clip, update; after ``loss_scale_window``
                  good steps in a row the scale grows
             no   nothing is updated: parameters, moments and counters stay as they are; the scale
                  shrinks, not below ``min_loss_scale``

(Micikevicius et al. 2018, "Mixed precision training", section 3.2.) With a hysteresis of h the first
h - 1 overflows since the scale last grew are skipped without shrinking it, as in Megatron-LM. A
scale that is a power of two (as it stays with the default factor) changes no bit of a float32
gradient when it is applied and taken off again: an update is the same at any scale.

A policy is one function, for numbers and for tensors inside the compiled step alike; what the
simulations of notebook 03 run is the very function that training runs. ``constant`` never changes
the scale. ``article`` is the article's rule, kept for comparison and wrong on purpose.
"""

from dataclasses import dataclass

import numpy as np

from workbench.config import TrainConfig

ARTICLE_CAP = 1024.0


def dynamic(scale, good_steps, patience, finite, config: TrainConfig):
    """(next scale, good steps, patience, unscale by, apply) after a step whose gradients were ``finite``, 1.0 or 0.0.

    Floats or () tensors. ``patience``: overflows left before the scale shrinks; it is full again
    when the scale grows. ``unscale by`` is the scale that was used, ``apply`` says whether the
    update is made (1.0 or 0.0). Written in arithmetic instead of branches, so that it compiles
    into the step as it is.
    """
    bad = 1.0 - finite
    good_steps = (good_steps + 1.0) * finite
    grow = (good_steps >= config.loss_scale_window) * 1.0
    patience = patience - bad
    shrink = (patience < 0.5) * bad
    wanted = scale * (1.0 + (config.loss_scale_factor - 1.0) * grow) * (1.0 - shrink)
    wanted = wanted + scale / config.loss_scale_factor * shrink
    over = (wanted > config.max_loss_scale) * 1.0
    under = (wanted < config.min_loss_scale) * 1.0
    wanted = wanted * (1.0 - over) * (1.0 - under) + config.max_loss_scale * over + config.min_loss_scale * under
    full = float(config.loss_scale_hysteresis)
    patience = patience * (patience > 0.5)
    return wanted, good_steps * (1.0 - grow), patience * (1.0 - grow) + full * grow, scale, finite


def constant(scale, good_steps, patience, finite, config: TrainConfig):
    """As ``dynamic``; the scale stays, overflows are skipped."""
    return scale, (good_steps + 1.0) * finite, patience, scale, finite


def article(scale, good_steps, patience, finite, config: TrainConfig):
    """As ``dynamic``, by the article's section 3.2: doubled after every good step up to 1,024, else halved.

    It unscales by the scale it has just changed, and it never skips: an overflow's gradients are
    multiplied by 0, which makes NaN of infinity, and applied.
    """
    bad = 1.0 - finite
    doubled, halved = scale * 2.0, scale * 0.5
    high, low = (doubled > ARTICLE_CAP) * 1.0, (halved < 1.0) * 1.0
    wanted = (doubled * (1.0 - high) + ARTICLE_CAP * high) * finite + (halved * (1.0 - low) + low) * bad
    return wanted, good_steps * 0.0, patience, wanted, finite * 0.0 + 1.0


POLICIES = {"dynamic": dynamic, "constant": constant, "article": article}


def at_floor(metrics: dict, config: TrainConfig) -> bool:
    """Whether a step overflowed though its scale was already the smallest allowed: nothing is left to try."""
    return bool(metrics["overflow"]) and metrics["loss_scale"] <= config.min_loss_scale


@dataclass(frozen=True)
class ScaleTrace:
    """A loss scale over a run, (steps,) each: the scale used, whether the update was skipped, and
    ``wrong_by``, how many times too large its gradients were (NaN where they were not finite)."""

    scale: np.ndarray
    skipped: np.ndarray
    wrong_by: np.ndarray


def simulate_limit(limit: np.ndarray, config: TrainConfig, policy=dynamic) -> ScaleTrace:
    """The scale where step i overflows whenever the scale is above ``limit[i]`` (steps,)."""
    scale, good, patience = config.init_loss_scale, 0.0, float(config.loss_scale_hysteresis)
    scales, skipped, wrong = [], [], []
    for bound in np.asarray(limit, np.float64):
        used, finite = scale, float(scale <= bound)
        scale, good, patience, divisor, applied = policy(used, good, patience, finite, config)
        scales.append(used)
        skipped.append(not applied)
        wrong.append(used / divisor if finite else np.nan)
    return ScaleTrace(np.asarray(scales), np.asarray(skipped), np.asarray(wrong))
