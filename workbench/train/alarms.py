"""The alarms of a run: rows of metrics in, alarms with their policy out.

    alarms = Alarms(config.alarms, config.train)
    limits = alarms.limits()                     to the compiled step, which does not apply what is above
    for alarm in alarms.after_step(row): ...     the row as it goes into metrics.jsonl
    checkpoint["alarms"] = alarms.state()

Nothing is done here: who runs the loop does what ``alarm.policy`` says. An alarm is raised once an
episode; it can be raised again only after its condition has cleared. All that is remembered is in
``state``, so a run that was resumed raises what an uninterrupted one does. Costs 0.06 ms a step of
processor time, 0.10 with four ranks (2026-11-30, 20,000 made-up rows, three times, 2 cores that others used).
"""

import copy
import math
from dataclasses import asdict, dataclass
from typing import Any, Mapping

from workbench.alarm_config import AlarmConfig
from workbench.config import TrainConfig
from workbench.evaluate.perplexity import Perplexity
from workbench.train import detectors, machine
from workbench.train.detectors import Row, Told
from workbench.train.scaling import at_floor

_OF_THE_MACHINE = ("throughput", "memory", "disk")
_OF_A_PROCESS = ("throughput", "memory")
_OF_THESE_RANKS = ("throughput", "rank_divergence")  # of no use on another number of ranks


@dataclass(frozen=True)
class Alarm:
    """One alarm at ``step``; ``first_step`` to ``last_step`` are the steps that are suspected."""

    kind: str
    step: int
    policy: str
    message: str
    first_step: int
    last_step: int

    @property
    def about_data(self) -> bool:
        """Whether the samples of the suspected steps may have to do with it."""
        return self.kind not in _OF_THE_MACHINE

    def event(self) -> dict[str, Any]:
        """The fields of an event of kind "alarm", which is why the alarm's own kind is called ``alarm``."""
        values = asdict(self)
        return {"alarm": values.pop("kind"), **values}


class Alarms:
    """The state of all alarms of one run; see the top of the file."""

    def __init__(self, config: AlarmConfig, train: TrainConfig, world: int = 1) -> None:
        self.config, self.train, self.world = config, train, world
        self._watchers = {
            "loss_spike": detectors.loss_spike,
            "non_finite_loss": detectors.non_finite_loss,
            "scale_floor": self._scale_floor,
            "rank_divergence": detectors.rank_divergence,
            "dead_gradient": detectors.dead_gradient,
            "exploding_gradient": detectors.exploding_gradient,
            "throughput": machine.throughput,
            "memory": machine.memory_growth,
            "disk": machine.disk,
        }
        self._memory: dict[str, dict[str, Any]] = {kind: {} for kind in (*self._watchers, "perplexity_jump")}
        self._active: set[str] = set()
        self._skips = 0

    def limits(self) -> tuple[float, float]:
        """(loss, gradient norm) above which the coming step is not applied; both are exact in float32.

        inf where the alarm's policy is not ``skip``, and while too few steps are known.
        """
        loss, norm = math.inf, math.inf
        if self.config.loss_spike == "skip":
            loss = detectors.loss_limit(self._memory["loss_spike"], self.config)
        if self.config.exploding_gradient == "skip":
            norm = detectors.norm_limit(self._memory["exploding_gradient"], self.config)
        return loss, norm

    def after_step(self, row: Row) -> list[Alarm]:
        """The alarms that ``row`` raises, a row of metrics.jsonl; fields that it lacks are not watched.

        After ``max_skips_in_row`` steps in a row that were not applied, the alarm says ``stop``: the
        data has changed for good, and a run that applies nothing stands still.
        """
        found = []
        for kind, watch in self._watchers.items():
            found += self._raised(kind, row["step"], watch(self._memory[kind], row, self.config))
        if row.get("skipped"):
            self._skips += 1
            if self._skips == self.config.max_skips_in_row:
                found.append(self._given_up(row["step"]))
        elif not row.get("overflow"):
            self._skips = 0
        return found

    def after_evaluation(self, step: int, perplexity: Perplexity) -> list[Alarm]:
        """The alarm, if any, that an evaluation after ``step`` steps raises."""
        memory = self._memory["perplexity_jump"]
        told = detectors.perplexity_jump(memory, step, perplexity.value, perplexity.high, self.config)
        return self._raised("perplexity_jump", step, told)

    def state(self) -> dict[str, Any]:
        """All that is remembered, JSON-ready."""
        return {
            "memory": copy.deepcopy(self._memory),
            "active": sorted(self._active),
            "skips": self._skips,
            "world": self.world,
        }

    def load(self, state: Mapping[str, Any], same_process: bool = True) -> None:
        """Go on from a ``state``; what another number of ranks, or another process, does not share with it begins anew."""
        foreign = (*(_OF_THESE_RANKS if state["world"] != self.world else ()), *(() if same_process else _OF_A_PROCESS))
        self._memory = {
            kind: {} if kind in foreign else copy.deepcopy(state["memory"].get(kind, {})) for kind in self._memory
        }
        self._active = set(state["active"]) - set(foreign)
        self._skips = state["skips"]

    def _scale_floor(self, memory: dict[str, Any], row: Row, config: AlarmConfig) -> Told | None:
        if "overflow" not in row or "loss_scale" not in row:
            return None
        if not at_floor(row, self.train):
            return None if row["overflow"] else Told(False)
        message = (
            f"overflow at loss scale {row['loss_scale']:g}, the smallest allowed is {self.train.min_loss_scale:g}: the "
            "gradients themselves overflow; run inspect_gradients and lint_eps, lower learning_rate, or use float32"
        )
        return Told(True, message)

    def _raised(self, kind: str, step: int, told: Told | None) -> list[Alarm]:
        if told is None:
            return []
        if not told.raised:
            self._active.discard(kind)
            return []
        if kind in self._active:
            return []
        self._active.add(kind)
        first = step if told.first_step is None else told.first_step
        return [Alarm(kind, step, getattr(self.config, kind), told.message, first, step)]

    def _given_up(self, step: int) -> Alarm:
        kind = "loss_spike" if "loss_spike" in self._active else "exploding_gradient"
        message = (
            f"{self._skips} steps in a row were above the limit and not applied (max_skips_in_row): the data or the "
            "run has changed for good, look at both before going on"
        )
        return Alarm(kind, step, "stop", message, step - self._skips + 1, step)
