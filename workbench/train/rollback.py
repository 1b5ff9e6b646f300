"""Back to a checkpoint from before a fault, and on from there without the suspected data.

(Chowdhery et al. 2022, "PaLM", section 5.1: loss spikes were mended by going back some hundred steps
before one and skipping the batches around it; the same batches at another time made no spike.)
``excluded.json`` is written first: from then on no checkpoint that has trained on the excluded data, or is
later than the one gone back to, is used, so a run that dies half-way through a rollback goes on as
if it had come to its end.
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
    """Half-open ranges of data positions that a run skips, and the rollbacks that they come from.

    Positions and not samples: in another epoch, in other company and at other weights, the same samples
    come again. PaLM's spikes were no property of the data alone either.
    """

    ranges: Ranges = ()
    rollbacks: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, run: RunFolder) -> "Excluded":
        """What ``excluded.json`` of the first rank says; nothing where there is none."""
        file = run.of_rank(0).path / "excluded.json"
        if not file.is_file():
            return cls()
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return cls(tuple((start, stop) for start, stop in found["ranges"]), tuple(found["rollbacks"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file} is damaged: write it again from the rollback events, or begin anew with resume='never'"
            ) from error

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise DataError for a checkpoint that one of the rollbacks went back from."""
        data = checkpoint.state["data"]
        for back in self.rollbacks:
            start, stop = back["excluded"]
            known = any(a <= start and stop <= b for a, b in data["excluded"])
            if not known and (start < data["position"] or checkpoint.state["step"] > back["step"]):
                raise DataError(
                    f"checkpoint {checkpoint.path} is from before the rollback from step {back['from_step']} to "
                    f"step {back['step']}, which excluded samples {start} to {stop}"
                )

    def tell(self, run: RunFolder) -> None:
        """Log the rollbacks that the events of ``run`` lack: all but the newest are there."""
        told = [(e["from_step"], e["excluded"]) for e in run.events("rollback")]
        for back in self.rollbacks:
            if (back["from_step"], back["excluded"]) not in told:
                run.log_event("rollback", **back)

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
        told = {"ranges": excluded.ranges, "rollbacks": excluded.rollbacks}
        write_json(run.path / "excluded.json", told, flush=True)
        for path in list_checkpoints(run):
            if step_of(path) > step:
                set_aside(path, "rolled-back")
    meet(world)
