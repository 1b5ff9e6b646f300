"""AdamW with bias correction through MindSpore's fused kernel, and the learning rate.

The kernel ``AdamWeightDecay`` updates parameter and both moments in one pass but lacks bias
correction. Decoupled AdamW (Loshchilov and Hutter 2019, algorithm 2) with correction

    p -= lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd * p)

is the kernel's  p -= lr_t * (m / (sqrt(v) + eps_t) + wd_t * p)  with

    lr_t = lr * sqrt(1 - b2^t) / (1 - b1^t)    eps_t = eps * sqrt(1 - b2^t)    wd_t = wd * lr / lr_t

so the exact optimizer costs no more than the kernel. Weight decay is for matrices only; norms
and the task embedding (rows of rare tasks would fade) have none.
"""

import math

from workbench.config import TrainConfig


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """The rate of step ``step`` (from 0): linear warm-up, then a cosine to learning_rate * min_lr_ratio."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    rest = max(1, config.steps - config.warmup_steps)
    done = min(1.0, (step - config.warmup_steps) / rest)
    low = config.learning_rate * config.min_lr_ratio
    return low + (config.learning_rate - low) * 0.5 * (1 + math.cos(math.pi * done))


def decays(name: str, ndim: int) -> bool:
    """Whether weight decay applies to the parameter: matrices, but not the task embedding."""
    return ndim >= 2 and not name.startswith("task_embedding")
