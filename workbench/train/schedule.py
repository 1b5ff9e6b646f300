"""The learning rate of a step, from the settings alone.

All three begin with a linear warm-up of ``warmup_steps``, then

    cosine               half a cosine to learning_rate * min_lr_ratio, reached at step ``steps``
                         (Loshchilov & Hutter 2017, eq. 5, without restarts)
    warmup_stable_decay  constant, then a straight line to learning_rate * min_lr_ratio over the last
                         ``decay_share`` of the steps, or over what the warm-up leaves of them
                         (Hu et al. 2024, "MiniCPM", section 4)
    constant             constant

Steps are counted by the training state: those that were applied, as in Megatron-LM and transformers'
Trainer, so a run with skipped steps ends before the schedule does; and none while it is frozen
(``TrainState.freeze``).
"""

import math

from workbench.config import TrainConfig


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """The rate of step ``step`` (from 0); beyond ``config.steps`` the last one."""
    peak, low = config.learning_rate, config.learning_rate * config.min_lr_ratio
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    if config.lr_scheduler_type == "cosine":
        done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
        return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if config.lr_scheduler_type == "warmup_stable_decay":
        start = max(config.warmup_steps, config.steps - max(1, round(config.steps * config.decay_share)))
        done = (step - start) / max(1, config.steps - start)
        return peak - (peak - low) * min(1.0, max(0.0, done))
    return peak
