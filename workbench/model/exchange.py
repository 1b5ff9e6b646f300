"""Models in and out of Hugging Face folders: config.json, safetensors, tokenizer, generation config.

    config, weights = load_hf(folder)        settings, and arrays under our names
    model = load_transformer(folder)         the model itself
    export_hf(folder, config, weights, tokenizer)

Families: ``workbench/model/families.py``. Weights come in as float32 whatever they are on disk and
go out as float32, float16 or bfloat16, in one file or in shards.

What no family has (task embedding, the two small heads, training settings) goes into
``workbench.safetensors`` and ``workbench.json`` beside, which other software ignores: to it the
model is the one without a task.

Costs: loading holds the weights once and one more tensor; ``load_transformer`` holds them twice
while it copies. Exporting holds one tensor more. Not here: adapters, quantised weights, .bin files.
"""

import json
import math
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Iterable, Mapping

import numpy as np

from workbench.errors import DataError, UserError
from workbench.model.families import from_hf, to_hf
from workbench.model.safetensors_io import CODES, Stored, tensors_in, write_tensors
from workbench.model.tensor_names import Tensor, own_tensors, tensors_of
from workbench.model.transformer import Transformer
from workbench.model.weights import set_weights
from workbench.model_config import ModelConfig
from workbench.run_folder import write_json
from workbench.settings import require

_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_OWN_SETTINGS, _OWN_WEIGHTS = "workbench.json", "workbench.safetensors"


def load_transformer(folder: str | Path, seed: int = 0, compute_dtype: str = "float32") -> Transformer:
    """The model in ``folder``; heads and task embedding that it does not hold are fresh, drawn from ``seed``.

    Raises DataError and SettingError as load_hf.
    """
    config, weights = load_hf(folder)
    return model_of(config, weights, seed, compute_dtype)


def model_of(
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    seed: int,
    compute_dtype: str = "float32",
    flash_attention: bool = False,
    kernels: str = "stock",
) -> Transformer:
    """The model of ``config`` with ``weights``; heads and task embedding that are not among them are fresh."""
    model = Transformer(config, seed, compute_dtype, flash_attention, kernels)
    parameters = model.trainable_params()
    fresh = own_tensors(config).keys() - weights.keys()
    set_weights(parameters, dict(weights) | {p.name: p.asnumpy() for p in parameters if p.name in fresh})
    return model


def load_hf(folder: str | Path) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Settings and float32 weights, under our names, of a Hugging Face folder.

    With ``workbench.json`` beside, as ``export_hf`` leaves it, the settings are those and the
    weights include the task embedding and the two heads.

    Raises DataError for a folder without config.json or safetensors, a family or setting we do not
    have, a damaged file, and for tensors that are missing, unknown, of another shape (all named) or
    not finite; SettingError for a value that ModelConfig refuses.
    """
    folder = Path(folder).expanduser()
    values = _json(folder / "config.json")
    try:
        config = from_hf(values)
    except UserError as error:
        told = str(error)
        told = told if told.startswith("config.json") else f"config.json: {told}"
        raise type(error)(f"{folder}/{told}") from error
    stored = _stored(folder)
    tensors = tensors_of(config, values["model_type"])
    head = stored.pop("lm_head.weight", None) if config.tie_word_embeddings else None
    expected = {name: tensor.disk_shape for tensor in tensors.values() for name in tensor.on_disk}
    _check({name: s.shape for name, s in stored.items()}, expected, f"{folder} does not fit its config.json")
    weights = {name: _read(tensor, stored) for name, tensor in tensors.items()}
    if head is not None and not np.array_equal(head.read(), weights["model.embed_tokens.weight"]):
        raise DataError(
            f"{folder}: lm_head.weight differs from model.embed_tokens.weight, but config.json says that they are "
            'one; set "tie_word_embeddings" to false'
        )
    return _with_own(folder, config, weights)


def export_hf(
    folder: str | Path,
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    tokenizer=None,
    generation: Mapping[str, Any] | None = None,
    max_shard_bytes: float = 5e9,
    dtype: str = "float32",
) -> Path:
    """Write a folder that ``transformers`` and engines that read its folders load; returns it.

    ``weights`` are float32 arrays under our names, with or without the task embedding and the
    heads. ``tokenizer`` gives the special ids. The generation config is greedy and stops after
    half of the positions; ``generation`` adds to it. The folder appears whole or not at all.

    Raises SettingError for settings no family has; DataError where ``folder`` holds something,
    weights are missing, unknown or of another shape, or a value is not finite in ``dtype``.
    """
    require(dtype in CODES, "dtype", dtype, ", ".join(CODES))
    folder = free_folder(folder)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    ids = {name: getattr(tokenizer, name, None) for name in names}
    values = to_hf(config, dtype, **ids)
    tensors, own = tensors_of(config, values["model_type"]), own_tensors(config)
    own = {name: shape for name, shape in own.items() if name in weights}
    expected = {name: tensor.shape for name, tensor in tensors.items()} | own
    _check({name: a.shape for name, a in weights.items()}, expected, "the weights do not fit the settings")

    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    beside.mkdir(parents=True)
    try:
        write_json(beside / "config.json", values)
        chosen = {"do_sample": False, "max_new_tokens": max(1, config.max_position_embeddings // 2)}
        chosen |= {name: i for name, i in ids.items() if i is not None}
        write_json(beside / "generation_config.json", chosen | dict(generation or {}))
        _write_shards(beside, tensors, weights, max_shard_bytes, dtype)
        write_json(beside / _OWN_SETTINGS, {"model": asdict(config)})
        if own:
            write_tensors(beside / _OWN_WEIGHTS, own, (weights[name] for name in own), "float32")
        if tokenizer is not None:
            _save_tokenizer(tokenizer, beside)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def free_folder(folder: str | Path) -> Path:
    """``folder`` resolved. Raises DataError where it holds something: nothing is exported over it."""
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already and not empty; give another folder")
    return folder


def _stored(folder: Path) -> dict[str, Stored]:
    if (folder / _ONE).is_file():
        return tensors_in(folder / _ONE)
    if not (folder / _INDEX).is_file():
        raise DataError(f"{folder} holds neither {_ONE} nor {_INDEX}; other formats are not read")
    places = _json(folder / _INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise DataError(f"{folder / _INDEX} has no weight_map from tensors to files; copy or download it again")
    names = sorted(set(places.values()))
    absent = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
    if absent:
        raise DataError(f"{folder}: {_INDEX} names files that are not there: {', '.join(absent)}")
    return {name: stored for file in names for name, stored in tensors_in(folder / file).items()}


def _read(tensor: Tensor, stored: Mapping[str, Stored]) -> np.ndarray:
    if len(tensor.shape) < 3:
        return stored[tensor.on_disk[0]].read()
    array = np.empty(tensor.shape, np.float32)
    for expert, name in enumerate(tensor.on_disk):
        array[expert] = stored[name].read()
    return array


def _with_own(folder: Path, config: ModelConfig, weights: dict[str, np.ndarray]):
    """``config`` and ``weights`` with what ``workbench.json`` and its safetensors add."""
    if not (folder / _OWN_SETTINGS).is_file():
        return config, weights
    saved = ModelConfig(**_json(folder / _OWN_SETTINGS).get("model", {}))
    said, found = asdict(from_hf(to_hf(saved))), asdict(config)
    differ = [f"{name} ({said[name]!r}, there {found[name]!r})" for name in said if said[name] != found[name]]
    if differ:
        raise DataError(
            f"{folder}: {_OWN_SETTINGS} and config.json differ in {', '.join(differ)}; remove {_OWN_SETTINGS} and "
            f"{_OWN_WEIGHTS} to follow config.json"
        )
    if (folder / _OWN_WEIGHTS).is_file():
        stored = tensors_in(folder / _OWN_WEIGHTS)
        expected = {name: shape for name, shape in own_tensors(saved).items() if name in stored}
        _check({n: s.shape for n, s in stored.items()}, expected, f"{folder / _OWN_WEIGHTS} does not fit its settings")
        weights = weights | {name: s.read() for name, s in stored.items()}
    return saved, weights


def _write_shards(folder: Path, tensors: Mapping[str, Tensor], weights, limit: float, dtype: str) -> None:
    """``model.safetensors``, or files of at most ``limit`` bytes of data (a tensor is never cut) and their index."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    arrays: dict[str, np.ndarray] = {}
    width, filled, total = {"float32": 4}.get(dtype, 2), 0, 0
    for name, tensor in tensors.items():
        array = weights[name]
        for disk_name, part in zip(tensor.on_disk, array if array.ndim == 3 else (array,)):
            size = math.prod(part.shape) * width
            if shards[-1] and filled + size > limit:
                shards.append({})
                filled = 0
            shards[-1][disk_name], arrays[disk_name] = part.shape, part
            filled, total = filled + size, total + size
    files = [_ONE]
    if len(shards) > 1:
        files = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
        places = {name: file for file, shard in zip(files, shards) for name in shard}
        write_json(folder / _INDEX, {"metadata": {"total_size": total}, "weight_map": places})
    for file, shard in zip(files, shards):
        write_tensors(folder / file, shard, (arrays[name] for name in shard), dtype)


def _save_tokenizer(tokenizer, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    values = _json(file)
    # Transformers 5 names its own class, which engines built on 4 do not know; it reads the old name too.
    if values.get("tokenizer_class") == "TokenizersBackend":
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    for of_this_process in ("is_local", "local_files_only"):
        values.pop(of_this_process, None)
    write_json(file, values)


def _check(found: Mapping[str, tuple], expected: Mapping[str, tuple], what: str) -> None:
    """Raise DataError, naming them, where names are missing, unknown or of another shape."""
    unknown = [n for n in found if n not in expected and not n.endswith("rotary_emb.inv_freq")]
    shapes = [
        f"{name} is {tuple(found[name])}, expected {tuple(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name]) != tuple(shape)
    ]
    told = {"missing": [n for n in expected if n not in found], "unknown": unknown, "wrong shape": shapes}
    problems = [f"{kind}: {_some(names)}" for kind, names in told.items() if names]
    if problems:
        raise DataError(f"{what}: {'; '.join(problems)}")


def _some(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}); give a folder that holds it") from error
    except ValueError as error:
        raise DataError(f"{file} is not JSON ({error}); copy or download it again") from error
    if not isinstance(values, dict):
        raise DataError(f"{file} holds a {type(values).__name__}, expected an object with settings")
    return values
