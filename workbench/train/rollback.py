"""Back to a checkpoint from before a fault, and on from there without the suspected data.

(Chowdhery et al. 2022, "PaLM", section 5.1: loss spikes were mended by going back some hundred steps
before one and skipping the batches around it; the same batches at another time made no spike.)
``excluded.json`` is written first: from then on no checkpoint that has trained on the excluded data
is used, so a run that dies half-way through a rollback goes on as if it had come to its end.
"""

import json
from dataclasses import dataclass
from typing import Any, Mapping

from workbench.errors import DataError
from workbench.run_folder import RunFolder, write_json
from workbench.train.alarms import Alarm
from workbench.train.checkpoint import Checkpoint, list_checkpoints, load_checkpoint, set_aside, step_of
from workbench.train.meeting import agree, meet
from workbench.train.positions import Ranges, merged


@dataclass(frozen=True)
class Excluded:
    """Half-open ranges of data positions that a run skips, and the rollbacks that they come from."""

    ranges: Ranges = ()
    rollbacks: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, run: RunFolder) -> "Excluded":
        """What ``excluded.json`` of the first rank says; nothing where there is none."""
        file = run.of_rank(0).path / "excluded.json"
        if not file.is_file():
            return cls()
        found = json.loads(file.read_text(encoding="utf-8"))
        return cls(tuple((start, stop) for start, stop in found["ranges"]), tuple(found["rollbacks"]))

    def with_one_more(self, span: tuple[int, int], rollback: Mapping[str, Any]) -> "Excluded":
        return Excluded(merged((*self.ranges, span)), (*self.rollbacks, dict(rollback)))


def checkpoint_before(run: RunFolder, step: int, back: int) -> Checkpoint | None:
    """The ``back``-th newest checkpoint from before ``step`` (the oldest where there are fewer); None without one.

    A damaged one is told in the events and passed over to an older one.
    """
    older = [path for path in list_checkpoints(run) if step_of(path) < step]
    for path in reversed(older[: max(1, len(older) - back + 1)]):
        try:
            return load_checkpoint(path)
        except DataError as error:
            run.log_event("damaged checkpoint", step=step, path=path.name, reason=str(error))
    return None


def positions_of(run: RunFolder, alarm: Alarm) -> tuple[int, int]:
    """The half-open range of data positions that the steps which ``alarm`` suspects consumed."""
    after = {row["step"]: row["position"] for row in run.metrics()}
    return after.get(alarm.first_step - 1, 0), after[alarm.last_step]


def go_back(run: RunFolder, step: int, excluded: Excluded, rank: int, world: int) -> None:
    """Make the folder as if the run had not gone beyond ``step``, and keep what is excluded; every rank calls it.

    Later checkpoints are set aside. The logs are the caller's.
    """
    agree(step, world, "the checkpoint to roll back to")
    if rank == 0:
        write_json(run.path / "excluded.json", {"ranges": excluded.ranges, "rollbacks": excluded.rollbacks})
        for path in list_checkpoints(run):
            if step_of(path) > step:
                set_aside(path, "rolled-back")
    meet(world)
