"""What a run watches for, and what it does then: one policy an alarm, and the limits.

    AlarmConfig(loss_spike="rollback")
    AlarmConfig.from_text("loss_spike=rollback, scale_floor=freeze, rollback_checkpoints=2")

Policies, each doing what those before it in this list do not:

    note      an event in the log, nothing else
    freeze    the learning rate is held where it is
    skip      a step above the limit is computed and not applied; for what is known before the update
    rollback  back by ``rollback_checkpoints``, and the suspected data is left out
    stop      the run stops, to be resumed when somebody has looked

By default an alarm only notes, so that nothing happens to a run which nobody asked for, with one
exception: a loss that is not finite and stays so stops the run, since every further step is paid
for and lost. The limits are chosen; tests/test_alarms.py counts the alarms on clean runs.
"""

import math
from dataclasses import fields
from typing import get_type_hints

from workbench.errors import SettingError, unknown_name
from workbench.settings import require, settings

_ALL = ("note", "freeze", "skip", "rollback", "stop")
_AFTER = ("note", "freeze", "rollback", "stop")
_MACHINE = ("note", "stop")
# Which policies make sense. A NaN is neither mended by a held rate nor skipped twice (the loss scale has done
# that); memory, disk and speed are one rank's own and are not in the data.
POLICIES = {
    "perplexity_jump": _AFTER,
    "loss_spike": _ALL,
    "non_finite_loss": ("note", "rollback", "stop"),
    "scale_floor": _AFTER,
    "rank_divergence": _AFTER,
    "dead_gradient": _AFTER,
    "exploding_gradient": _ALL,
    "throughput": _MACHINE,
    "memory": _MACHINE,
    "disk": _MACHINE,
}


@settings
class AlarmConfig:
    """A policy for each alarm, the limits above which it is raised, and how far a rollback goes."""

    perplexity_jump: str = "note"  # validation perplexity far above the best so far
    loss_spike: str = "note"  # the loss of a step far above those before it
    non_finite_loss: str = "stop"  # NaN or infinite, where the loss scale does not excuse it
    scale_floor: str = "note"  # an overflow at the smallest loss scale allowed
    rank_divergence: str = "note"  # the ranks' losses are apart and stay so
    dead_gradient: str = "note"  # a gradient norm of zero, or next to it
    exploding_gradient: str = "note"  # a gradient norm far above those before it
    throughput: str = "note"  # tokens a second far below what they were
    memory: str = "note"  # this process keeps growing
    disk: str = "note"  # no room for the next checkpoints

    perplexity_factor: float = 1.5  # times the best perplexity so far
    spike_window: int = 50  # steps that the noise of the loss is taken from, and that end a spike
    spike_deviations: float = 8.0  # robust deviations of the loss from step to step
    spike_nats: float = 0.5  # and at least so many nats
    rank_nats: float = 0.5  # nats between two ranks, median over rank_window
    rank_window: int = 20  # steps
    norm_window: int = 50  # steps whose median norm a norm is compared with
    norm_factor: float = 10.0  # times that median on 3 of 10 steps, or ten times as much once
    vanishing_share: float = 0.001  # of that median, on 5 steps in a row
    throughput_share: float = 0.5  # of the median speed before
    throughput_window: int = 50  # steps whose median is the speed now
    throughput_seconds: float = 300.0  # of slow steps before it is an alarm
    memory_mb: float = 16.0  # MiB of growth that goes on
    memory_share: float = 0.02  # and at least this share of the level
    memory_warmup_steps: int = 100  # steps of a process before its memory is looked at
    disk_checkpoints: float = 2.0  # checkpoints that must still fit
    disk_reserve_mb: float = 256.0  # MiB beside them
    max_skips_in_row: int = 10  # steps not applied, one after the other, before skipping gives up and stops the run
    rollback_checkpoints: int = 1  # how many checkpoints back a rollback goes
    max_rollbacks: int = 3  # of a run; the next one stops it

    def __post_init__(self) -> None:
        for kind, allowed in POLICIES.items():
            told = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            require(getattr(self, kind) in allowed, kind, getattr(self, kind), told)
        for name, value in vars(self).items():
            require(type(value) is not float or math.isfinite(value), name, value, "a finite number")
        require(self.perplexity_factor > 1, "perplexity_factor", self.perplexity_factor, "above 1")
        require(self.norm_factor > 1, "norm_factor", self.norm_factor, "above 1")
        for name in ("spike_window", "norm_window"):
            require(11 <= getattr(self, name) <= 1000, name, getattr(self, name), "11 to 1000 steps")
        for name in ("rank_window", "throughput_window"):
            require(5 <= getattr(self, name) <= 1000, name, getattr(self, name), "5 to 1000 steps")
        for name in ("throughput_share", "vanishing_share"):
            require(0 < getattr(self, name) < 1, name, getattr(self, name), "between 0 and 1")
        for name in ("spike_deviations", "spike_nats", "rank_nats", "memory_mb"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in (
            "throughput_seconds",
            "memory_share",
            "memory_warmup_steps",
            "disk_checkpoints",
            "disk_reserve_mb",
        ):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in ("max_skips_in_row", "rollback_checkpoints"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.max_rollbacks >= 0, "max_rollbacks", self.max_rollbacks, "0 or more; 0 stops at the first")

    @classmethod
    def from_text(cls, text: str) -> "AlarmConfig":
        """The settings that ``text`` names as ``name=value, name=value``; "" for the defaults. Raises SettingError."""
        hints, names = get_type_hints(cls), [f.name for f in fields(cls)]
        values: dict = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, equals, value = (p.strip() for p in part.partition("="))
            if not equals or not value:
                raise SettingError(f"alarms: {part!r} is not allowed: name=value, such as loss_spike=rollback")
            if name not in names:
                raise unknown_name("alarm setting", name, names)
            if name in values:
                raise SettingError(f"alarms: {name} is given twice: keep one of them")
            try:
                values[name] = hints[name](value)
            except ValueError as error:
                raise SettingError(f"{name}: {value!r} is not allowed: expected {hints[name].__name__}") from error
        return cls(**values)
