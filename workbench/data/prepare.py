"""From files to token stores, through one ``mindspore.dataset`` pipeline.

    1 read       files → documents; what cannot be read is quarantined with its reason
    2 clean      markup, mojibake, control characters, Unicode form
    3 branch     a document → base, or validation; some also as a perturbed copy
    4 tokenise   a Hugging Face fast tokenizer; begin and end of text around each document

A row of the pipeline carries a batch of documents as one array of UTF-8 bytes with lengths
beside it: mindspore.dataset costs about half a millisecond a row, and its string arrays lose
trailing NUL characters, neither of which a batch of bytes does.

Validation documents are chosen by the hash of their clean text, so the choice does not depend
on order, file names or ranks. A corpus of fewer than ``SMALL`` documents gives the end of each
longer document instead: a single book would otherwise be all training or all validation.

The stores are kept in a folder named by the fingerprint of the files' contents, the tokenizer
and the settings; the same preparation is done once.
"""

import hashlib
import itertools
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterable, Iterator

import numpy as np

from workbench.config import DataConfig, fingerprint
from workbench.data.cleaning import CleaningPolicy, clean
from workbench.data.documents import Document, Rejected, find_files, read_documents
from workbench.data.store import CUT, LOSS, StoreWriter, TokenStore, open_stores, save_stores
from workbench.data.tasks import Rendered, perturb, plain, read_tasks, task_file, task_ids_of
from workbench.data.tokenizing import begin_id, cut_points, encode
from workbench.errors import DataError

SMALL = 200  # documents; below it a 5 % hash split would often be empty
_SHORT = 400  # characters; the end of a shorter document is too little to validate on
_BATCH = 64  # documents a pipeline row


@dataclass(frozen=True)
class Preparation:
    """What was read, changed and left out; ``in = base + validation + dropped`` is checked."""

    fingerprint: str
    documents_read: int
    rejected: dict[str, int]  # reason → count, of things that never became a document
    quarantine: list[dict]  # the same, each with its source and line
    cleaning_changes: dict[str, int]  # rule → number of changes
    characters_raw: int
    characters_clean: int
    dropped: dict[str, int]  # reason → documents
    validation_by: str
    documents: dict[str, int]  # store → documents
    tokens: dict[str, int]  # store → tokens
    perturbations: dict[str, int]  # kind → copies
    task_ids: dict[str, int]


def prepare(
    config: DataConfig, tokenizer, folder: Path, num_tasks: int = 16
) -> tuple[dict[str, TokenStore], Preparation]:
    """The stores ``base``, ``validation``, ``tasks`` and ``perturbed`` of ``config``, made once.

    ``folder`` holds one sub-folder a fingerprint. Raises DataError, in one line, where nothing
    is found or nothing is left.
    """
    mark = data_fingerprint(config, tokenizer)
    done = open_stores(folder / mark)
    if done is None:
        stores, facts = _build(config, tokenizer, mark, num_tasks)
        save_stores(folder / mark, stores, asdict(facts))
        done = open_stores(folder / mark)
    stores, facts = done
    return stores, Preparation(**{k: v for k, v in facts.items() if k != "stores"})


def data_fingerprint(config: DataConfig, tokenizer) -> str:
    """A name for the contents of the files, the tokenizer and every setting that shapes tokens."""
    digest = hashlib.blake2b(digest_size=16)
    files = find_files(config.data) + ([task_file(config.tasks)] if config.tasks else [])
    for file in files:
        with file.open("rb") as data:
            digest.update(hashlib.file_digest(data, "blake2b").digest())
    elsewhere = ("data", "tasks", "tokenizer", "sequence_length", "overlap")
    shaping = {k: v for k, v in asdict(config).items() if k not in elsewhere}
    policy = CleaningPolicy(unicode_form=config.unicode_form)
    return fingerprint(digest.hexdigest(), tokenizer.backend_tokenizer.to_str(), policy.fingerprint, shaping)


def _build(config: DataConfig, tokenizer, mark: str, num_tasks: int) -> tuple[dict[str, TokenStore], Preparation]:
    rejected: list[Rejected] = []
    documents = read_documents(config.data, on_reject=rejected.append)
    head = list(itertools.islice(documents, SMALL))
    run = _Stages(config, tokenizer, small=len(head) < SMALL)
    writers = {name: StoreWriter() for name in ("base", "validation", "tasks", "perturbed")}
    for source, tokens, flags, _, _ in _run_pipeline(run, (plain(d) for d in itertools.chain(head, documents))):
        writers[source].add(tokens, flags)
    if not rejected and not run.read:
        raise DataError(f"data={config.data!r}: no documents in it")
    if not (run.kept["base"] or run.kept["validation"]):
        reasons = Counter(r.kind for r in rejected) + run.dropped
        told = ", ".join(f"{count} × {reason}" for reason, count in reasons.most_common(5))
        raise DataError(f"data={config.data!r}: no usable text is left ({told})")

    task_rejected: list[Rejected] = []
    tasks = read_tasks(config.tasks, task_rejected.append) if config.tasks else []
    ids = task_ids_of([t.task_type for t in tasks], num_tasks)
    task_run = _Stages(config, tokenizer, small=False)
    for _, tokens, flags, task, truth in _run_pipeline(task_run, tasks, tasks=True):
        writers["tasks"].add(tokens, flags, ids[task], truth)

    if run.read != run.kept["base"] + run.kept["validation"] - run.split + sum(run.dropped.values()):
        raise AssertionError("document ledger does not close")
    stores = {name: writer.store() for name, writer in writers.items()}
    everything = rejected + task_rejected
    dropped = run.dropped + Counter({f"{reason} (task)": n for reason, n in task_run.dropped.items()})
    return stores, Preparation(
        fingerprint=mark,
        documents_read=run.read,
        rejected=dict(Counter(r.kind for r in everything)),
        quarantine=[asdict(r) for r in everything],
        cleaning_changes=dict(run.changes + task_run.changes),
        characters_raw=run.characters_raw + task_run.characters_raw,
        characters_clean=run.characters_clean + task_run.characters_clean,
        dropped=dict(dropped),
        validation_by=f"the end of each document over {_SHORT} characters" if run.small else "hash of the clean text",
        documents={name: store.documents for name, store in stores.items()},
        tokens={name: len(store.tokens) for name, store in stores.items()},
        perturbations=dict(run.perturbations),
        task_ids=ids,
    )


class _Stages:
    """The three stages with their counts; each is the function of one ``map`` of the pipeline."""

    def __init__(self, config: DataConfig, tokenizer, small: bool) -> None:
        self.config, self.tokenizer, self.small = config, tokenizer, small
        self.policy = CleaningPolicy(unicode_form=config.unicode_form)
        self.read = self.split = self.characters_raw = self.characters_clean = 0
        self.changes, self.dropped, self.kept, self.perturbations = Counter(), Counter(), Counter(), Counter()
        self.begin = begin_id(tokenizer)

    def clean(self, row: list[Rendered]) -> list[Rendered]:
        out = []
        for sample in row:
            self.read += 1
            parts = []
            for part in sample.parts:
                done = clean(part, self.policy)
                self.changes.update(done.counts)
                self.characters_raw += len(part)
                self.characters_clean += len(done.text)
                parts.append(done.text)
            if "".join(parts).strip():
                out.append(Rendered(tuple(parts), sample.loss, sample.task_type, sample.truth))
            else:
                self.dropped["nothing left after cleaning"] += 1
        return out

    def branch(self, row: list[Rendered]) -> list[tuple[str, Rendered]]:
        return [pair for sample in row for pair in self._branches(sample.parts[0])]

    def _branches(self, text: str) -> Iterator[tuple[str, Rendered]]:
        share = self.config.validation_share
        chance = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
        if self.small:
            at = _sentence_end(text, int(len(text) * (1 - share))) if share and len(text) > _SHORT else len(text)
            if text[at:].strip():
                self.split += 1
                yield self._keep("validation", Rendered((text[at:],), (True,)))
                text = text[:at]
        elif chance < share:
            yield self._keep("validation", Rendered((text,), (True,)))
            return
        yield self._keep("base", Rendered((text,), (True,)))
        # As many copies as the mixture will ask for; of a few documents, one of each.
        uniform = (chance - share) / (1 - share)
        if self.config.perturbed_share and (
            self.small or uniform < self.config.perturbed_share / self.config.base_share
        ):
            copy = perturb(Document(text, "", 0, {}), self.config.seed)
            self.perturbations[copy.meta["perturbation"]] += 1
            yield self._keep("perturbed", copy)

    def _keep(self, source: str, sample: Rendered) -> tuple[str, Rendered]:
        self.kept[source] += 1
        return source, sample

    def tokenise(self, sample: Rendered) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, flags) with begin and end of text; each part is encoded by itself."""
        tokens, flags = [np.asarray([self.begin], np.int32)], [np.asarray([CUT], np.uint8)]
        for part, loss in zip(sample.parts, sample.loss):
            encoded = encode(self.tokenizer, part)
            tokens.append(encoded.ids)
            flags.append(np.where(cut_points(encoded)[:-1], CUT, 0).astype(np.uint8) | (LOSS if loss else 0))
        tokens.append(np.asarray([self.tokenizer.eos_token_id], np.int32))
        flags.append(np.asarray([CUT | LOSS], np.uint8))
        return np.concatenate(tokens), np.concatenate(flags)


def _sentence_end(text: str, at: int) -> int:
    """The end of the sentence or line that position ``at`` lies in (the end of the text if the last)."""
    end = re.compile(r"[。！？!?\n]|\.\s").search(text, at)
    return end.end() if end else len(text)


def _run_pipeline(
    stages: _Stages, samples: Iterable[Rendered], tasks: bool = False
) -> Iterator[tuple[str, np.ndarray, np.ndarray, str, float]]:
    """Run the stages over ``samples``; yields (source, tokens, flags, task_type, truth) a document."""
    import mindspore.dataset as ds

    samples = iter(samples)

    def rows() -> Iterator[tuple[np.ndarray]]:
        while batch := list(itertools.islice(samples, _BATCH)):
            yield (_pack(batch),)

    def clean_row(row: np.ndarray) -> np.ndarray:
        return _pack(stages.clean(_unpack(row)))

    def branch_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [("tasks", s) for s in _unpack(row)] if tasks else stages.branch(_unpack(row))
        names = json.dumps([[source, s.task_type, s.truth] for source, s in pairs])
        return _pack([s for _, s in pairs]), np.frombuffer(names.encode(), np.uint8)

    def tokenise_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        done = [stages.tokenise(s) for s in _unpack(row)] or [(np.empty(0, np.int32), np.empty(0, np.uint8))]
        lengths = np.asarray([len(t) for t, _ in done], np.int64)
        return np.concatenate([t for t, _ in done]), np.concatenate([f for _, f in done]), lengths

    pipeline = ds.GeneratorDataset(rows, ["text"], shuffle=False, num_parallel_workers=1, python_multiprocessing=False)
    pipeline = pipeline.map(clean_row, ["text"], num_parallel_workers=1)
    pipeline = pipeline.map(branch_row, ["text"], ["text", "about"], num_parallel_workers=1)
    pipeline = pipeline.map(tokenise_row, ["text"], ["tokens", "flags", "lengths"], num_parallel_workers=1)
    for row in pipeline.create_dict_iterator(output_numpy=True, num_epochs=1):
        ends = np.cumsum(row["lengths"])
        for (source, task, truth), start, end in zip(json.loads(bytes(row["about"])), ends - row["lengths"], ends):
            truth = np.nan if truth is None else truth
            yield source, row["tokens"][start:end].copy(), row["flags"][start:end].copy(), task, truth


def _pack(samples: list[Rendered]) -> np.ndarray:
    """Samples as one uint8 array, the only shape of text that passes a dataset row unharmed."""
    plain_rows = [[s.parts, s.loss, s.task_type, s.truth] for s in samples]
    return np.frombuffer(json.dumps(plain_rows).encode("utf-8"), np.uint8)


def _unpack(row: np.ndarray) -> list[Rendered]:
    return [Rendered(tuple(p), tuple(x), t, truth) for p, x, t, truth in json.loads(bytes(row))]
