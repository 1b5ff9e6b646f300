"""``workbench budget``: the memory of a step for settings given by name, of a run, or of a Hugging Face folder.

Costs nothing: no MindSpore, no weights. The table is plain text; ``train/budget.py`` computes it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping

from workbench.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from workbench.errors import DataError, SettingError, unknown_name
from workbench.model.families import from_hf
from workbench.parameters import Parameter
from workbench.train.budget import Budget, memory_budget, parameter_count
from workbench.train.large_models import CARDS_GB


def budget_of(settings: Mapping[str, str], ranks: int, device: str, folder: Path | None) -> str:
    """The table for ``settings`` (of ModelConfig, TrainConfig, and sequence_length, as text) on top of ``folder``'s.

    ``folder`` is a run folder or a Hugging Face model's. Raises SettingError and DataError.
    """
    model, train, length, told = _starting(folder)
    rooms: dict[str, dict[str, Any]] = {"model": {}, "train": {}, "length": {}}
    known = {"sequence_length": ("length", length)}
    for room, config in (("model", model), ("train", train)):
        known |= {name: (room, value) for name, value in vars(config).items() if name not in ("rope_scaling", "seed")}
    for name, text in settings.items():
        if name not in known:
            raise unknown_name("setting", name, known)
        room, default = known[name]
        rooms[room][name] = Parameter(name, default).value(text, Path.cwd())
    # A longer sample than the model has positions for is a question, not a mistake.
    length = rooms["length"].get("sequence_length", length)
    rooms["model"].setdefault("max_position_embeddings", max(length, model.max_position_embeddings))
    model, train = replace(model, **rooms["model"]), replace(train, **rooms["train"])
    if model.max_position_embeddings < length:
        raise SettingError(
            f"max_position_embeddings={model.max_position_embeddings} is below sequence_length={length}: raise it"
        )
    budget = memory_budget(model, train, length, ranks, device)
    head = (
        f"{told}{parameter_count(model):,} parameters, {model.num_hidden_layers} layers, hidden {model.hidden_size}; "
        f"a step of {train.batch_size} x {length} positions over {ranks} rank{'s' if ranks > 1 else ''}, "
        f"{train.precision}, recompute={train.recompute}, on {device}"
    )
    return f"{head}\n\n{table(budget)}"


def table(budget: Budget) -> str:
    """What one rank holds at the peak, by part, in MiB; the other moments; what was not measured."""
    lines, layers = budget.lines(), [m for m in budget.lines() if m.startswith("activations")]
    shown = [name for name in lines if name not in layers]
    rows = [f"{name:38}{lines[name]:14,.1f} MiB" for name in shown if name in budget.state]
    rows += [f"{'gradients there at the peak':38}{lines.get('gradients', 0):14,.1f} MiB"]
    if layers:
        sizes = [lines[name] for name in layers]
        spread = f"{min(sizes):,.1f}" + (f" to {max(sizes):,.1f}" if max(sizes) > 1.001 * min(sizes) else "")
        rows.append(
            f"{f'activations of {len(layers)} layer' + 's' * (len(layers) > 1):38}{sum(sizes):14,.1f} MiB   {spread} a layer"
        )
    rows += [f"{name:38}{lines[name]:14,.1f} MiB" for name in shown if name not in budget.state and name != "gradients"]
    rows.append(f"{'peak: ' + budget.peak.name:38}{budget.peak_mb:14,.1f} MiB   {budget.peak_bytes / 1e9:,.1f} GB")
    if budget.device == "CPU":
        rows.append(f"{'of it in the allocator':38}{budget.allocator_mb:14,.1f} MiB")
    rows += [f"{name:38}{size / 2**20:14,.1f} MiB   not counted" for name, size in budget.elsewhere.items()]
    if budget.device == "Ascend":
        fits = [f"{card} GB {'yes' if budget.peak_bytes <= card * 1e9 else 'no'}" for card in CARDS_GB]
        rows.append(f"fits a card of: {', '.join(fits)}")
    return "\n".join(rows + [f"note: {note}" for note in budget.notes])


def _starting(folder: Path | None) -> tuple[ModelConfig, TrainConfig, int, str]:
    """Settings to start from, the sequence length, and where they are from."""
    if folder is None:
        return ModelConfig(), TrainConfig(), DataConfig().sequence_length, ""
    file = folder if folder.is_file() else folder / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({error}); give a run folder or a Hugging Face model's") from error
    if not isinstance(values, dict):
        raise DataError(f"{file}: holds no settings; give a run folder or a Hugging Face model's")
    if "model_type" in values:
        model = from_hf(values)
        return model, TrainConfig(), min(model.max_position_embeddings, 4096), f"{folder}: "
    run = RunConfig.from_dict(values)
    return run.model, run.train, run.data.sequence_length, f"{folder}: "
