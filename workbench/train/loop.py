"""The run: from settings to a trained model, or from where it was stopped.

    result = pretrain(config, RunFolder.at("runs/demo"))

Everything that happened is in the run folder; the returned ``Trained`` is for the notebook that
called. The same call goes on with a run that was killed or stopped, from its newest good checkpoint,
and computes the same bits as if it had never been. What happens between start and end is in
``course.py``. Costs besides the steps: one forward pass over the validation rows at each evaluation,
a copy of weights and moments at each checkpoint, which a thread writes, and well under a
hundredth of each step for logging, alarms and requests.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from workbench.config import RunConfig, TrainConfig
from workbench.control import Control
from workbench.data.pipeline import Corpus, open_corpus
from workbench.data.tokenizing import load_tokenizer
from workbench.device import Device, joined_ranks, use_device
from workbench.errors import SettingError
from workbench.evaluate.perplexity import Perplexity
from workbench.model.precision import check_precision
from workbench.model.transformer import Transformer
from workbench.model.weights import set_weights
from workbench.progress import preparing
from workbench.run_folder import RunFolder
from workbench.train.beginning import log_beginning
from workbench.train.checkpoint import Checkpoint, clear_half_written, latest_checkpoint, set_aside
from workbench.train.course import VALIDATION_ROWS, Course
from workbench.train.feeding import Drill
from workbench.train.meeting import agree, meet
from workbench.train.optimizers import check_optimizer
from workbench.train.resuming import check_surroundings, checkpoint_to_resume, surroundings
from workbench.train.starting import starting_model

__all__ = ["VALIDATION_ROWS", "Trained", "check_ranks", "load_model", "pretrain"]


@dataclass(frozen=True)
class Trained:
    """A finished run: what was trained on what, and the perplexities measured on the way."""

    config: RunConfig
    corpus: Corpus
    model: Transformer
    perplexities: list[tuple[int, Perplexity]]  # (step, perplexity); step 0 is before training
    compile_seconds: float | None  # of this call; None when there was no step left to do
    checkpoint: Path
    resumed_from: int | None = None  # the step of the checkpoint that this call went on from
    changes: tuple[dict, ...] = ()  # what differed from then, see ``check_surroundings``


def pretrain(
    config: RunConfig,
    run: RunFolder,
    resume: str = "auto",
    allow_changes: Sequence[str] = (),
    drill: Drill | None = None,
) -> Trained:
    """Train as ``config`` says, from fresh weights or from ``init_from``, and leave everything in ``run``.

    ``resume``: ``auto`` goes on with the run in the folder if it did not finish, and otherwise begins anew,
    setting an earlier run's logs and checkpoints aside; ``always`` goes on or is refused; ``never``
    begins anew. What is gone on with must have the same data, tokenizer and settings, but for those named in
    ``allow_changes`` (see ``resuming.py``). Under ``msrun`` each rank computes its rows of every batch;
    the first writes to ``run``, the others their logs to ``run.of_rank(rank)``. The first SIGTERM
    or SIGINT, or a request through the folder, saves and stops after the step. ``drill`` as in ``fed``.

    Raises UserError for settings and data that cannot work, before anything is trained; RunStopped (a
    KeyboardInterrupt) when stopped, AlarmStop by an alarm, StorageError for a full disk.
    """
    device = use_device(config.device)
    check_precision(config.train.precision, device)
    with joined_ranks() as (rank, world):
        check_ranks(config.train, world)
        folder = run.of_rank(rank)
        with Control(folder, noting=False) as control:
            return _pretrain(config, folder, device, (rank, world), resume, allow_changes, drill, control)


def check_ranks(train: TrainConfig, world: int) -> None:
    """Raise SettingError for what ``world`` ranks cannot run, as far as the settings tell."""
    check_optimizer(train)
    if train.batch_size % world:
        raise SettingError(f"batch_size={train.batch_size} is not a multiple of the {world} ranks")


def _pretrain(
    config: RunConfig,
    run: RunFolder,
    device: Device,
    place: tuple[int, int],
    resume: str,
    allow: Sequence[str],
    drill: Drill | None,
    control: Control,
) -> Trained:
    rank, world = place
    tokenizer = load_tokenizer(config.data.tokenizer)
    config, model = starting_model(config, tokenizer, device)
    with preparing() as watch:
        corpus = open_corpus(config.data, tokenizer, run.path / "data", config.model.num_tasks, watch=watch)
    checkpoint, damaged = checkpoint_to_resume(run, resume)
    here = surroundings(world)
    changes = check_surroundings(checkpoint.state, config, corpus, allow, here) if checkpoint else []
    agree(checkpoint.state["step"] if checkpoint else 0, world, "the checkpoint to go on from")

    course = Course(config, run, corpus, model, here, place, drill)
    if checkpoint is None:
        meet(world)  # no rank reads checkpoints any more, which the first now sets aside
        run.start_logs()
    else:
        course.take_up(checkpoint)
        meet(world)
        if rank == 0:
            for error, path in damaged:
                run.log_event("unusable checkpoint", step=course.at, path=path.name, reason=str(error))
                set_aside(path, "unusable")
    for name in clear_half_written(run) if rank == 0 else ():
        run.log_event("half-written checkpoint", step=course.at, path=name, reason="its process died; removed")
    run.write_config(config.as_dict())
    tokenizer.save_pretrained(run.path / "tokenizer")
    at = course.at if checkpoint else None
    if checkpoint:
        course.lineage.append({"step": at, "changes": changes})
    log_beginning(run, config, model, course.state, corpus.fingerprint, world, at, changes)
    path = course.go(control)
    return Trained(
        config,
        corpus,
        model,
        course.perplexities,
        course.step.compile_seconds,
        path,
        checkpoint.state["step"] if checkpoint else None,
        tuple(changes),
    )


def load_model(run: RunFolder) -> tuple[Transformer, Checkpoint]:
    """The model of the newest whole checkpoint of ``run``, its weights checked name by name."""
    checkpoint = latest_checkpoint(run)
    config = RunConfig.from_dict(checkpoint.state["config"])
    device = use_device(config.device)
    model = Transformer(config.model, config.train.seed, config.train.precision, device.flash_attention)
    set_weights(model.trainable_params(), checkpoint.weights)
    return model, checkpoint
