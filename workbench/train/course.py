"""The course of a run: step after step, with what is due in between.

    course = Course(config, run, corpus, model, surroundings(world))
    course.take_up(checkpoint)       goes on from there; without it, from fresh weights
    course.go(control)

After each step, in this order: its line in ``metrics.jsonl``; alarms; at its time an evaluation and the
alarms of that; what the alarms' policies ask for; a checkpoint if one is due or asked for; requests to
stop or pause. Everything that decides a later step is in the checkpoint (weights, moments, loss scale,
place in the schedule, position in the data, what the alarms remember) or follows from seed and position,
so a run that goes on from one computes the same bits as one that was never stopped.

With several ranks each does all of this; only the first writes checkpoints. What only one rank knows
(a signal, its memory) is voted on inside the step, so that all do the same after the same step.
"""

import shutil
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Iterator, Mapping

from tqdm.auto import tqdm

from workbench.config import RunConfig
from workbench.control import Asked, Control, ask, requests
from workbench.data.pipeline import Corpus
from workbench.errors import AlarmStop, RunStopped
from workbench.evaluate.perplexity import Perplexity, PerplexityMeter
from workbench.model.transformer import Transformer
from workbench.progress import quiet, step_line
from workbench.rewinding import rewind_logs
from workbench.run_folder import RunFolder
from workbench.train.alarms import Alarm, Alarms
from workbench.train.checkpoint import Checkpoint
from workbench.train.feeding import Drill, fed
from workbench.train.meeting import meet
from workbench.train.records import Records
from workbench.train.rollback import Excluded, checkpoint_before, go_back, positions_of
from workbench.train.saving import CheckpointWriter
from workbench.train.state import TrainState
from workbench.train.step import TrainStep
from workbench.train.suspects import suspects

VALIDATION_ROWS = 128  # rows measured at each evaluation
Back = tuple[Alarm, list[dict[str, Any]]]  # an alarm to roll back for, and the samples behind it


class Course:
    """A run under way; see the top of the file.

    ``here``: ``surroundings()``; ``place``: (rank, number of ranks); ``drill`` as in ``fed``.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunFolder,
        corpus: Corpus,
        model: Transformer,
        here: Mapping[str, Any],
        place: tuple[int, int] = (0, 1),
        drill: Drill | None = None,
    ) -> None:
        self.config, self.run, self.corpus, self.model = config, run, corpus, model
        self.here, (self.rank, self.world), self.drill = here, place, drill
        self.state, self.step = TrainState.fresh(model, config.train, run.path), TrainStep(model, config.train)
        validation = corpus.validation
        self.meter = PerplexityMeter(model, validation, max_rows=VALIDATION_ROWS) if len(validation) else None
        self.alarms = Alarms(config.alarms, config.train, self.world)
        self.records = Records(run, config.train)
        self.at = self.position = 0
        self.excluded = Excluded()
        self.perplexities: list[tuple[int, Perplexity]] = []
        self.lineage: list[dict[str, Any]] = []  # what was changed when the run was resumed
        self._saved_at, self._alarms = -1, 0
        self._machine_stop: Alarm | None = None
        self._row: dict[str, Any] = {}

    def take_up(self, checkpoint: Checkpoint, here: bool = False) -> None:
        """Go on from ``checkpoint``: state, logs and all that is remembered are what they were then.

        ``here``: this process wrote it, so what is remembered of speed and memory counts too. Raises
        DataError where its arrays do not fit the model; nothing has been changed then.
        """
        self.state.load(checkpoint.weights, checkpoint.optimizer)
        facts = checkpoint.state
        self.at = self._saved_at = facts["step"]
        self.position = facts["data"]["position"]
        self.lineage = list(facts["lineage"])
        self.alarms.load(facts["alarms"], here)
        self.excluded = Excluded.of(self.run)
        rewind_logs(self.run, self.at)
        self.excluded.tell(self.run)
        self.perplexities = [
            (e["step"], Perplexity(e["perplexity"], e["low"], e["high"], e["tokens"], e["rows"]))
            for e in self.run.events("evaluation")
        ]

    def go(self, control: Control) -> Path:
        """Train to the end; the last checkpoint. Raises RunStopped, AlarmStop and StorageError."""
        train, began, control.noting = self.config.train, time.perf_counter(), True
        with (
            CheckpointWriter(self.run, train.save_total_limit, self._written) as writer,
            tqdm(bar_format="{desc}", disable=quiet()) as bar,
        ):
            try:
                back = None if self.at else self._obey(self._evaluate())
                while back is not None or self.at < train.steps:
                    if back is not None:
                        writer.wait()
                        meet(self.world)  # all see the same checkpoints
                        self._roll_back(*back)
                    back = self._stretch(control, writer, bar)
            except (RunStopped, AlarmStop):
                writer.wait()
                meet(self.world)  # a rank that ends with an error ends the others, and the first may be writing
                raise
            writer.wait()
        meet(self.world)  # the last checkpoint is there for every rank
        self.run.log_event("finish", step=self.at, seconds=round(time.perf_counter() - began, 2))
        return self.run.checkpoints / f"step_{self.at:06d}"

    def _stretch(self, control: Control, writer: CheckpointWriter, bar: tqdm) -> Back | None:
        """Steps until the last one (None), or until an alarm whose policy is to roll back."""
        train, place = self.config.train, (self.rank, self.world)
        given = (self.position, train.steps - self.at, self.excluded.ranges, place, self.drill)
        with closing(fed(self.corpus, self.config, *given)) as batches:
            while self.at < train.steps:
                asked, alarms = self._one_step(batches, control)
                self._tell(bar)
                if self.at % train.eval_steps == 0 or self.at == train.steps:
                    alarms += self._evaluate()
                back = self._obey(alarms)
                if back is not None:
                    return back
                asked = asked or control.poll()  # with several ranks what they voted in the step
                if asked.thaw:
                    self.state.thaw()
                    self.run.log_event("thaw", step=self.at)
                    control.done("thaw")
                if asked.stop or asked.save or self.at % train.save_steps == 0 or self.at == train.steps:
                    self._save(writer)
                if asked.save:
                    control.done("save")
                # With several ranks an alarm of one rank's machine is voted on in the next step.
                stop = asked.stop or (self._machine_stop is not None and self.world == 1)
                if stop and self.at < train.steps:
                    self._stop(asked.stop, control, writer)
                if asked.paused:
                    self._pause(control, writer)
        return None

    def _one_step(self, batches: Iterator, control: Control) -> tuple[Asked | None, list[Alarm]]:
        start = time.perf_counter()
        _, after, batch = next(batches)
        waited = time.perf_counter() - start
        votes: tuple[float, ...] = ()
        if self.world > 1:
            own = control.poll()
            votes = tuple(map(float, (bool(own.stop or self._machine_stop), own.save, own.paused, own.thaw)))
        self.state, metrics = self.step(self.state, batch, limits=self.alarms.limits(), votes=votes)
        seconds = time.perf_counter() - start
        told = metrics.pop("votes", None)
        self.at, self.position = self.at + 1, after
        if self.step.compile_seconds is not None and not self.records.started:
            # Compilation is told apart, so that no statistic of step times has it in it.
            self.run.log_event("compile", step=self.at, seconds=round(self.step.compile_seconds, 3))
        self._row = row = self.records.row(self.at, self.position, metrics, seconds, waited)
        self.run.log_metrics(row)
        for kind in filter(metrics.get, ("overflow", "skipped")):
            samples = batch["sample_ids"].tolist()
            self.run.log_event(kind, step=self.at, loss_scale=metrics["loss_scale"], samples=samples)
        asked = (
            None
            if told is None
            else Asked((own.stop or "another rank") if told[0] else "", *(vote > 0 for vote in told[1:]))
        )
        return asked, self.alarms.after_step(row)

    def _evaluate(self) -> list[Alarm]:
        if self.meter is None:
            return []
        measured = self.meter.measure()
        self.perplexities.append((self.at, measured))
        told = asdict(measured)
        self.run.log_event("evaluation", step=self.at, perplexity=told.pop("value"), **told)
        return self.alarms.after_evaluation(self.at, measured)

    def _obey(self, alarms: list[Alarm]) -> Back | None:
        """Tell the alarms and do what their policies say; the first that asks for a rollback, with its samples."""
        back = stop = None
        self._alarms += len(alarms)
        for alarm in alarms:
            samples = self._suspects(alarm)
            self.run.log_event("alarm", **alarm.event(), samples=samples)
            if alarm.policy == "freeze":
                self.state.freeze()
                self.run.log_event("freeze", step=self.at, learning_rate=self._row.get("learning_rate"))
            elif alarm.policy == "rollback":
                back = back or (alarm, samples)
            elif alarm.policy == "stop" and not alarm.about_data:
                self._machine_stop = alarm  # the state of the run is as good as ever, and is saved
            elif alarm.policy == "stop":
                stop = stop or alarm
        if stop is not None:
            self._give_up(stop)
        return back

    def _give_up(self, alarm: Alarm, why: str = "") -> None:
        """Stop for good: what the weights are now is not saved. Raises AlarmStop."""
        self.run.log_event("stop", step=self.at, by=f"alarm {alarm.kind}")
        raise AlarmStop(
            f"alarm {alarm.kind} at step {alarm.step}: {alarm.message}. The run was stopped{why}; the checkpoints in "
            f"{self.run.checkpoints} are from before. To go on, change the policy or limit in alarms ({alarm.kind}=note)"
        )

    def _roll_back(self, alarm: Alarm, samples: list[dict[str, Any]]) -> None:
        limits, rollbacks = self.config.alarms, len(self.excluded.rollbacks)
        if rollbacks >= limits.max_rollbacks:
            self._give_up(alarm, f" and not rolled back, after max_rollbacks={limits.max_rollbacks}")
        checkpoint = checkpoint_before(self.run, alarm.first_step, limits.rollback_checkpoints)
        if checkpoint is None:
            self._give_up(alarm, " and not rolled back, since no good checkpoint is from before it")
        step, span = checkpoint.state["step"], positions_of(self.run, alarm)
        # Holds the alarm, whose own event is later than the step and goes with the others.
        told = {("alarm" if name == "alarm" else f"alarm_{name}"): value for name, value in alarm.event().items()}
        told |= {"from_step": self.at, "excluded": span, "samples": samples}
        lineage = self.lineage  # of this process: what it was allowed to change stays changed
        go_back(self.run, step, self.excluded.with_one_more(span, {"step": step, **told}), self.rank, self.world)
        self.take_up(checkpoint, here=True)
        self.lineage = lineage

    def _suspects(self, alarm: Alarm) -> list[dict[str, Any]]:
        if not alarm.about_data or not self.at:
            return []
        start, stop = positions_of(self.run, alarm)
        positions = [p for p in range(start, stop) if not any(a <= p < b for a, b in self.excluded.ranges)]
        return suspects(alarm, self.corpus, positions, self.meter.row_losses if self.meter else None)

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint holds beside arrays, JSON-ready."""
        measured = self.perplexities[-1] if self.perplexities else (-1, None)
        return {
            "data": {**self.corpus.state(self.position), "excluded": self.excluded.ranges},
            # No random state beside these two: whatever is drawn is drawn from (seed, position).
            "random": {"seed": self.config.train.seed, "position": self.position},
            "config": self.config.as_dict(),
            "environment": self.here,
            "alarms": self.alarms.state(),
            "perplexity": measured[1].value if measured[0] == self.at else None,
            "lineage": self.lineage,
        }

    def _save(self, writer: CheckpointWriter) -> None:
        if self._saved_at == self.at:
            return
        if self.rank == 0:
            writer.wait()  # before the copy: never two of them
        weights, optimizer = self.state.arrays()
        self._saved_at = self.at
        if self.rank == 0:
            self.records.checkpoint_mb = sum(a.nbytes for a in (*weights.values(), *optimizer.values())) / 2**20
            writer.save(self.at, weights, optimizer, self._facts())

    def _written(self, step: int, path: Path, seconds: float) -> None:
        self.run.log_event("checkpoint", step=step, path=path.name, seconds=round(seconds, 3))

    def _stop(self, by: str, control: Control, writer: CheckpointWriter) -> None:
        """End the run after its step. Raises RunStopped, or AlarmStop for an alarm."""
        self._save(writer)
        writer.wait()
        control.done("stop")
        if alarm := self._machine_stop:
            self.run.log_event("stop", step=self.at, by=f"alarm {alarm.kind}")
            raise AlarmStop(f"alarm {alarm.kind}: {alarm.message}. The run was stopped; step {self.at} is saved")
        by = "a signal" if by.startswith("SIG") else by  # which one is not certain, see control.py
        self.run.log_event("stop", step=self.at, by=by)
        raise RunStopped(f"stopped by {by} after step {self.at}, which is saved; the same call goes on from there")

    def _pause(self, control: Control, writer: CheckpointWriter) -> None:
        self.run.log_event("pause", step=self.at)
        if self.world > 1:
            while "pause" in (waiting := requests(self.run.of_rank(0))) and not waiting & {"stop", "save"}:
                if control.poll().stop:
                    ask(self.run.of_rank(0), "stop")  # else the others would sleep on while this one waits for them
                time.sleep(0.2)
        else:
            while (asked := control.wait_while_paused()).save and not asked.stop:
                self._save(writer)
                control.done("save")
        self.run.log_event("continue", step=self.at)

    def _tell(self, bar: tqdm) -> None:
        if not bar.disable:
            perplexity = self.perplexities[-1][1].value if self.perplexities else None
            width = shutil.get_terminal_size((100, 24)).columns - 1
            bar.set_description_str(step_line(self._row, perplexity, self._alarms, width=width), refresh=False)
            bar.update()
