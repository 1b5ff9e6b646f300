"""Names for everything that decides what the model sees, part by part, so that a refusal can say which part changed.

    data        the contents of the files, in their order
    tokenizer   its vocabulary, rules, special tokens and chat template
    cleaning    the cleaning policy and its libraries
    settings    every other setting that shapes tokens
    order       sequence length, overlap, shares and seed: which sample comes at which position

A file's digest is kept with its size and time of change, so a prepared corpus of any size is
recognised without reading it again. A file that is changed without either is not noticed.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Sequence

from workbench.config import DataConfig, fingerprint
from workbench.data.files import find_files
from workbench.data.stages import policy_of
from workbench.data.templates import templates_for
from workbench.data.tokenizing import tokenizer_fingerprint
from workbench.errors import DataError
from workbench.run_folder import write_json

_PIPELINE = 2  # raise it when the same data and settings give other tokens than before
_PLACES = ("data", "tasks", "tokenizer", "strict")  # where things are, not what they are
_CLEANING = ("clean", "markup", "unicode_form", "fold_width", "fold_quotes", "chinese")
_ORDER = (
    "sequence_length",
    "overlap",
    "overlap_loss",
    "base_share",
    "task_share",
    "perturbed_share",
    "mixture_unit",
    "stopping_strategy",
    "seed",
)
# Of these, what also shapes tokens: the seed, and how many perturbed copies are made.
_BOTH = ("base_share", "perturbed_share", "seed")


def token_fingerprints(config: DataConfig, tokenizer, digests: Path | None) -> dict[str, str]:
    """The fingerprints of ``data``, ``tokenizer``, ``cleaning`` and ``settings``.

    ``digests`` is the file that remembers the files' digests; with None ``data`` is left out.
    """
    shaping = {
        name: value
        for name, value in asdict(config).items()
        if name not in (*_PLACES, *_CLEANING) and (name not in _ORDER or name in _BOTH)
    }
    return {
        "data": "" if digests is None else _data_fingerprint(config, digests),
        # A chat template is not part of the vocabulary, but it is of the text.
        "tokenizer": fingerprint(tokenizer_fingerprint(tokenizer), templates_for(tokenizer, config.templates)),
        "cleaning": policy_of(config).fingerprint,
        "settings": fingerprint(_PIPELINE, shaping),
    }


def _data_fingerprint(config: DataConfig, digests: Path) -> str:
    known = _Digests(digests)
    tasks = find_files(config.tasks) if config.tasks else []
    marks = [[known.of(file) for file in files] for files in (find_files(config.data), tasks)]
    known.save()
    return fingerprint(marks)


def order_fingerprint(config: DataConfig) -> str:
    """The fingerprint of what decides the order of samples, given the tokens."""
    return fingerprint({name: getattr(config, name) for name in _ORDER})


def parts_of(setting: str) -> set[str]:
    """The parts that another value of a ``DataConfig`` ``setting`` changes; none where it only says a place."""
    if setting in _PLACES:
        return set()
    if setting in _CLEANING:
        return {"cleaning"}
    parts = {"order"} if setting in _ORDER else {"settings"}
    return parts | ({"settings"} if setting in _BOTH else set()) | ({"tokenizer"} if setting == "templates" else set())


def require_same(saved: dict[str, str], now: dict[str, str], what: str) -> None:
    """Raise DataError, with both fingerprints of each part that differs, unless all are the same."""
    names = [name for name in {**saved, **now} if saved.get(name) != now.get(name)]
    if names:
        told = "; ".join(f"{name}: {saved.get(name, 'none')} then, {now.get(name, 'none')} now" for name in names)
        raise DataError(
            f"{what} was made with other {' and '.join(names)} ({told}); put back what was changed, or begin anew"
        )


def file_digest(path: Path) -> str:
    """32 hex digits that name the content of a file."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "blake2b").hexdigest()[:32]


class _Digests:
    """Digests of files, remembered by path, size and time of change."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self.used: dict[str, list] = {}

    def of(self, path: Path) -> str:
        seen = path.stat()
        state = [seen.st_size, seen.st_mtime_ns]
        entry = self.known.get(str(path.resolve()))
        if entry is None or entry[:2] != state:
            entry = [*state, file_digest(path)]
        self.used[str(path.resolve())] = entry
        return entry[2]

    def save(self) -> None:
        if self.used != self.known:
            write_json(self.file, {**self.known, **self.used})


def names_of(patterns: str | Sequence[str]) -> str:
    """``patterns`` as a person wrote them, for messages."""
    return repr(patterns) if isinstance(patterns, str) else ", ".join(map(repr, patterns))
