"""The run: data in, steps, evaluations, checkpoints, and a line of metrics for each step.

    result = pretrain(config, RunFolder.at("runs/demo"))

Everything that happened is in the run folder; the returned ``Trained`` is for the notebook that
called. Costs besides the steps: one forward pass over the validation rows at each evaluation,
and a synchronous write at each checkpoint.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from tqdm.auto import tqdm

from workbench.config import RunConfig, TrainConfig, fingerprint
from workbench.data.pipeline import Corpus, open_corpus
from workbench.data.tokenizing import load_tokenizer
from workbench.device import Device, joined_ranks, use_device
from workbench.errors import SettingError
from workbench.evaluate.perplexity import Perplexity, PerplexityMeter
from workbench.model.precision import check_precision
from workbench.model.transformer import Transformer
from workbench.model.weights import set_weights
from workbench.progress import preparing, quiet
from workbench.run_folder import RunFolder
from workbench.train.checkpoint import Checkpoint, latest_checkpoint, save_checkpoint
from workbench.train.dropping import drop
from workbench.train.optimizers import check_optimizer
from workbench.train.prefetching import prefetched
from workbench.train.scaling import at_floor
from workbench.train.starting import starting_model
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

VALIDATION_ROWS = 128  # rows measured at each evaluation


@dataclass(frozen=True)
class Trained:
    """A finished run: what was trained on what, and the perplexities measured on the way."""

    config: RunConfig
    corpus: Corpus
    model: Transformer
    perplexities: list[tuple[int, Perplexity]]  # (step, perplexity); step 0 is before training
    compile_seconds: float
    checkpoint: Path | None  # None on all ranks but the first


def pretrain(config: RunConfig, run: RunFolder) -> Trained:
    """Train as ``config`` says, from fresh weights or from ``init_from``, and leave everything in ``run``.

    Under ``msrun`` each rank computes its rows of every batch; the first writes to ``run``, the
    others their logs to ``ranks/RANK/`` in it. An earlier run's logs in the same folder are set
    aside. Raises UserError for settings and data that cannot work, before anything is trained.
    """
    device = use_device(config.device)
    check_precision(config.train.precision, device)
    with joined_ranks() as (rank, world):
        check_ranks(config.train, world)
        folder = RunFolder.at(run.path / "ranks" / str(rank)) if rank else run
        return _pretrain(config, folder, device, rank, world)


def check_ranks(train: TrainConfig, world: int) -> None:
    """Raise SettingError for what ``world`` ranks cannot run, as far as the settings tell."""
    check_optimizer(train)
    if train.batch_size % world:
        raise SettingError(f"batch_size={train.batch_size} is not a multiple of the {world} ranks")


def _pretrain(config: RunConfig, run: RunFolder, device: Device, rank: int, world: int) -> Trained:
    tokenizer = load_tokenizer(config.data.tokenizer)
    config, model = starting_model(config, tokenizer, device)
    with preparing() as watch:
        corpus = open_corpus(config.data, tokenizer, run.path / "data", config.model.num_tasks, watch=watch)
    run.start_logs()
    run.write_config(config.as_dict())
    tokenizer.save_pretrained(run.path / "tokenizer")

    train = config.train
    state, step = TrainState.fresh(model, train, run.path), TrainStep(model, train)
    meter = PerplexityMeter(model, corpus.validation, max_rows=VALIDATION_ROWS) if len(corpus.validation) else None
    perplexities: list[tuple[int, Perplexity]] = []
    run.log_event(
        "start",
        steps=train.steps,
        parameters=sum(p.size for p in state.parameters),
        ranks=world,
        kernels=_kernels(model, train),
        moments=state.optimizer.resident_bytes(),
        data=corpus.fingerprint,
        settings=fingerprint(config.as_dict()),
    )

    def evaluate(at: int) -> None:
        if meter is not None:
            measured = meter.measure()
            perplexities.append((at, measured))
            run.log_event("evaluation", step=at, perplexity=measured.value, low=measured.low, high=measured.high)

    def save(at: int) -> Path | None:
        weights, optimizer = state.arrays()
        if rank:
            return None
        facts = {"data": corpus.state(at * train.batch_size), "config": config.as_dict()}
        path = save_checkpoint(run, at, weights, optimizer, facts, train.save_total_limit)
        run.log_event("checkpoint", step=at, path=path.name)
        return path

    evaluate(0)
    process = psutil.Process()
    process.cpu_percent()
    began, path, alarmed = time.perf_counter(), None, False
    own = rank * (train.batch_size // world)
    made = corpus.batches(train.batch_size, position=0, steps=train.steps, rank=rank, ranks=world)
    batches = prefetched(
        drop(batch, config.model, train.seed, number * train.batch_size, own) for number, batch in enumerate(made)
    )
    with tqdm(total=train.steps, unit="step", disable=quiet()) as bar:
        for at in range(1, train.steps + 1):
            start = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - start
            state, metrics = step(state, batch)
            seconds = time.perf_counter() - start
            if at == 1:
                # Compilation is told apart, so that no statistic of step times has it in it.
                run.log_event("compile", step=1, seconds=round(step.compile_seconds, 3))
                began = time.perf_counter()
            per_step = (time.perf_counter() - began) / (at - 1) if at > 1 else None
            run.log_metrics(
                {
                    "step": at,
                    "steps": train.steps,
                    **metrics,
                    "step_seconds": round(seconds, 5) if at > 1 else None,
                    "data_seconds": round(waited, 6) if at > 1 else None,
                    "tokens_per_second": round(metrics["tokens"] / seconds, 1) if at > 1 else None,
                    "seconds_left": round(per_step * (train.steps - at), 1) if per_step else None,
                    "rss_mb": round(process.memory_info().rss / 2**20, 1),
                    "cpu_percent": process.cpu_percent(),
                    "position": at * train.batch_size,
                }
            )
            if metrics["overflow"]:
                run.log_event(
                    "overflow",
                    step=at,
                    loss_scale=metrics["loss_scale"],
                    samples=batch["sample_ids"].tolist(),
                )
            floor = at_floor(metrics, train)
            if floor and not alarmed:
                run.log_event("alarm", alarm="loss scale at its floor", step=at, loss_scale=metrics["loss_scale"])
                if train.freeze_on_alarm:
                    state.freeze()
                    run.log_event("freeze", step=at, learning_rate=metrics["learning_rate"])
            alarmed = floor or (alarmed and bool(metrics["overflow"]))
            if at % train.eval_steps == 0 or at == train.steps:
                evaluate(at)
            if at % train.save_steps == 0 or at == train.steps:
                path = save(at)
            bar.update()
            bar.set_postfix(
                loss=f"{metrics['loss']:.3f}",
                scale=f"{metrics['loss_scale']:g}",
                norm=f"{metrics['grad_norm']:.2f}",
                refresh=False,
            )
    run.log_event("finish", step=train.steps, seconds=round(time.perf_counter() - began, 2))
    return Trained(config, corpus, model, perplexities, step.compile_seconds, path)


def _kernels(model: Transformer, train: TrainConfig) -> str:
    """What the model computes with, for the log."""
    stock = model.kernels == "native" and train.recompute != "none"
    return model.kernels_said + ("; what is recomputed, by MindSpore's operators" if stock else "")


def load_model(run: RunFolder) -> tuple[Transformer, Checkpoint]:
    """The model of the newest whole checkpoint of ``run``, its weights checked name by name."""
    checkpoint = latest_checkpoint(run)
    config = RunConfig.from_dict(checkpoint.state["config"])
    device = use_device(config.device)
    model = Transformer(config.model, config.train.seed, config.train.precision, device.flash_attention)
    set_weights(model.trainable_params(), checkpoint.weights)
    return model, checkpoint
