"""From files to token stores on disk, once: streamed, on all cores, and continued when it was interrupted.

    1 read       files → documents; what cannot be read is quarantined with its reason
    2 stages     clean, branch, instruct, tokenise (see ``stages``), a block of documents at a time
    3 write      four stores: base, validation, tasks, perturbed

A prepared folder holds the stores, ``quarantine.jsonl`` (what was left out: source, line, reason)
and ``prepared.json``, which is written last: a folder that has it is whole. Until then it holds
``journal.json``, and preparing again continues there. One process at a time prepares a folder;
another one waits and then finds the work done. Memory does not grow with the input.

Costs: see ``tests/bench``. Neither MindSpore nor a GPU or NPU is needed.
"""

import json
import logging
import os
import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Iterator

from filelock import AcquireReturnProxy, FileLock, Timeout

from workbench.config import DataConfig, fingerprint
from workbench.data.building import STORES, Building, Place
from workbench.data.documents import Document, Reading, read_documents
from workbench.data.files import find_files
from workbench.data.fingerprints import file_digest, names_of, require_same, token_fingerprints
from workbench.data.stages import SHORT, SMALL, StageSpec
from workbench.data.store import TokenStore
from workbench.data.rendered import Rendered
from workbench.data.tasks import read_tasks
from workbench.data.templates import templates_for
from workbench.data.tokenizing import spec_of
from workbench.data.workers import Run, WorkerDied, stage_runner
from workbench.errors import DataError, SettingError, UserError
from workbench.run_folder import write_json

_DOCUMENTS, _CHARACTERS = 256, 1 << 20  # of a block, whichever is reached first
_WORTH_PROCESSES = 16 << 20  # bytes of input; below, starting processes takes longer than it saves
_SHOWN = 100  # quarantined things kept in prepared.json

# Called with (bytes done, bytes in all, documents, tokens) as the work goes on.
Watch = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Preparation:
    """What was read, changed and left out; ``read = base + validation - split + dropped`` was checked."""

    fingerprint: str
    fingerprints: dict[str, str]  # data, tokenizer, cleaning, settings
    documents_read: int
    rejected: dict[str, int]  # reason → count, of things that never became a document
    quarantine: list[dict]  # the first of them, each with source, line and reason; all are in quarantine.jsonl
    cleaning_changes: dict[str, int]  # rule → number of changes
    characters_raw: int
    characters_clean: int
    dropped: dict[str, int]  # reason → documents
    validation_by: str
    split: int  # documents of which the end went to validation
    documents: dict[str, int]  # store → documents
    tokens: dict[str, int]  # store → tokens
    contents: dict[str, str]  # store → fingerprint of its tokens
    instructions: int  # of the base documents, turned into instruction and response
    perturbations: dict[str, int]  # kind → copies
    task_ids: dict[str, int]
    domains: list[str]  # by the numbers in the stores


def prepare(
    config: DataConfig,
    tokenizer,
    folder: Path,
    num_tasks: int = 16,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
    marks: dict[str, str] | None = None,
) -> tuple[dict[str, TokenStore], Preparation]:
    """The stores ``base``, ``validation``, ``tasks`` and ``perturbed`` of ``config`` in ``folder``, made once.

    Raises DataError, in one line, where nothing is found or nothing is left, and where ``folder``
    holds a preparation of other data, another tokenizer or other settings, with both fingerprints.
    ``marks`` are the fingerprints, where they are known already.
    """
    marks = marks or token_fingerprints(config, tokenizer, folder.parent / "digests.json")
    if (done := open_prepared(folder)) is None:
        folder.mkdir(parents=True, exist_ok=True)
        strange = [
            p.name for p in folder.iterdir() if p.name not in ("journal.json", "quarantine.jsonl", ".lock", *STORES)
        ]
        if strange:
            raise DataError(
                f"{folder} holds other things ({', '.join(sorted(strange)[:3])}); name a new or empty folder"
            )
        with _locked(folder):
            if (done := open_prepared(folder)) is None:
                try:
                    _build(config, tokenizer, folder, marks, num_tasks, workers, watch)
                except WorkerDied:
                    raise
                except UserError:
                    _discard(folder)  # the data or a setting has to change, so this could not be continued
                    raise
                done = open_prepared(folder)
    require_same(done[1].fingerprints, marks, f"the corpus in {folder}")
    return done


def open_prepared(folder: str | Path) -> tuple[dict[str, TokenStore], Preparation] | None:
    """The prepared corpus in ``folder``, or None where there is no whole one."""
    folder = Path(folder).expanduser()
    if not (folder / "prepared.json").is_file():
        return None
    facts = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
    return {name: TokenStore.open(folder / name) for name in STORES}, Preparation(**facts)


def _locked(folder: Path) -> AcquireReturnProxy:
    """The lock of ``folder``, held; the system lets go of it when its process ends, however that ends."""
    lock = FileLock(folder / ".lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        logging.getLogger("workbench").warning("%s is being prepared by another process; waiting for it", folder)
        return lock.acquire()


def _discard(folder: Path) -> None:
    for name in STORES:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("journal.json", "quarantine.jsonl"):
        (folder / name).unlink(missing_ok=True)


def _build(
    config: DataConfig,
    tokenizer,
    folder: Path,
    marks: dict[str, str],
    num_tasks: int,
    workers: int | None,
    watch: Watch | None,
) -> None:
    templates = templates_for(tokenizer, config.templates)
    files = find_files(config.data)
    size = sum(file.stat().st_size for file in files)
    workers = _workers(workers, size)
    with Building(folder, fingerprint(marks), num_tasks, config.instruction_share) as building:
        if building.small is None:
            first = read_documents(config.data, **how_to_read(config), on_reject=lambda rejected: None)
            building.small = sum(1 for _ in islice(first, SMALL)) < SMALL
        spec = StageSpec(config, spec_of(tokenizer), templates, building.small)
        with stage_runner(spec, workers) as run:
            reading = building.reading()
            if building.phase == "documents":
                _documents(building, config, run, reading, size, watch)
                _require_some(building, config, reading)
                building.begin_tasks(reading)
            if config.tasks:
                tasks = read_tasks(config.tasks, building.reject, templates, config.instruction_loss)
                for block, _ in run("tasks", ((batch, None) for batch in _batched(tasks))):
                    building.take(block, None)
    facts = _facts(building, marks)
    write_json(folder / "prepared.json", asdict(facts))
    building.journal.unlink()


def _documents(
    building: Building, config: DataConfig, run: Run, reading: Reading, size: int, watch: Watch | None
) -> None:
    documents = read_documents(
        config.data, **how_to_read(config), on_reject=building.reject, start=reading.position, reading=reading
    )

    def batches() -> Iterator[tuple[list[Document], tuple[Place, int]]]:
        for batch in _batched(documents):
            yield batch, (building.note(reading), reading.file_bytes)
        yield [], (building.note(reading), reading.file_bytes)  # what was rejected after the last document

    for block, (place, done) in run("documents", batches()):
        building.take(block, place)
        if watch is not None:
            watch(done, size, building.counts.read, sum(building.counts.tokens.values()))


def _batched(samples: Iterator[Any]) -> Iterator[list[Any]]:
    """Blocks of samples: the same ones wherever reading begins anew after a block."""
    batch, characters = [], 0
    for sample in samples:
        batch.append(sample)
        characters += sum(map(len, sample.parts)) if isinstance(sample, Rendered) else len(sample.text)
        if len(batch) == _DOCUMENTS or characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def how_to_read(config: DataConfig) -> dict[str, Any]:
    """What ``config`` says to ``read_documents``."""
    return {"text_field": config.text_field, "paragraphs": config.paragraphs, "strict": config.strict}


def _workers(workers: int | None, size: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers is None:
        return cores if size >= _WORTH_PROCESSES else 1
    if workers < 1:
        raise SettingError(f"workers={workers} is not allowed: at least 1 (this machine has {cores} cores)")
    return workers


def _require_some(building: Building, config: DataConfig, reading: Reading) -> None:
    c = building.counts
    if not reading.rejected and not c.read:
        raise DataError(f"data={names_of(config.data)}: no documents in it")
    if not (c.documents["base"] or c.documents["validation"]):
        reasons = Counter(reading.rejected) + c.dropped
        told = ", ".join(f"{count} × {reason}" for reason, count in reasons.most_common(5))
        raise DataError(f"data={names_of(config.data)}: no usable text is left ({told})")


def _facts(building: Building, marks: dict[str, str]) -> Preparation:
    c = building.counts
    documents = {name: c.documents[name] for name in STORES}
    dropped = sum(n for reason, n in c.dropped.items() if not reason.endswith("(task)"))
    if c.read != documents["base"] + documents["validation"] - c.split + dropped:
        raise AssertionError("document ledger does not close")
    with (building.folder / "quarantine.jsonl").open(encoding="utf-8") as lines:
        quarantine, rejected = [], Counter()
        for line in lines:
            entry = json.loads(line)
            rejected[entry["reason"].partition(":")[0]] += 1
            if len(quarantine) < _SHOWN:
                quarantine.append(entry)
    return Preparation(
        fingerprint=fingerprint(marks),
        fingerprints=marks,
        documents_read=c.read,
        rejected=dict(rejected),
        quarantine=quarantine,
        cleaning_changes=dict(c.changes),
        characters_raw=c.characters_raw,
        characters_clean=c.characters_clean,
        dropped=dict(c.dropped),
        validation_by=f"the end of each document over {SHORT} characters"
        if building.small
        else "hash of the clean text",
        split=c.split,
        documents=documents,
        tokens={name: c.tokens[name] for name in STORES},
        contents={name: file_digest(building.folder / name / "tokens.bin")[:16] for name in STORES},
        instructions=c.instructions,
        perturbations=dict(c.perturbations),
        task_ids=building.task_types,
        domains=list(building.domains),
    )
