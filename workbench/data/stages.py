"""What happens to a block of documents: clean, branch, tokenise. A pure function, run in any process.

    1 clean      markup, mojibake, control characters, Unicode form; empty ones are dropped
    2 branch     a document → base, or validation; some also as a perturbed copy
    3 instruct   an exact share of the base documents becomes instruction and response
    4 tokenise   each part by itself, with begin and end of text around the document

A document's fields ``task_type`` and ``truth`` become its task id and its truth label.

Validation documents are chosen by the hash of their clean text, so the choice does not depend on
order, file names or workers, and copies of one text are never on both sides. A corpus of fewer
than ``SMALL`` documents gives the end of each longer document instead: a single book would
otherwise be all training or all validation.

Of the base documents of a block those with the smallest hashes become instructions. The share is
exact over the whole corpus: a block leaves its last candidate open, prepared in both forms, and
``Block.decide``, called in the order of the blocks, settles it with the fraction carried over
from those before.

Imports neither MindSpore nor transformers, so that a worker process starts quickly.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Iterator, Sequence

import numpy as np

from workbench.config import DataConfig
from workbench.data.cleaning import CleaningPolicy, clean
from workbench.data.documents import Document
from workbench.data.encoding import Encoder, EncoderSpec
from workbench.data.order import key_of
from workbench.data.perturb import perturb
from workbench.data.selection import candidates, choose, content_hash
from workbench.data.store import CUT, LOSS, Entry
from workbench.data.rendered import Rendered
from workbench.data.templates import Templates, inject

SMALL = 200  # documents; below it a 5 % hash split would often be empty
SHORT = 400  # characters; the end of a shorter document is too little to validate on


def policy_of(config: DataConfig) -> CleaningPolicy:
    """The cleaning that ``config`` asks for."""
    if not config.clean:
        rules = ("mojibake", "line_ends", "control_characters", "zero_width")
        return CleaningPolicy(markup="never", unicode_form="none", **dict.fromkeys(rules, False))
    return CleaningPolicy(
        markup=config.markup,
        unicode_form=config.unicode_form,
        fold_width=config.fold_width,
        fold_quotes=config.fold_quotes,
        chinese=config.chinese,
    )


@dataclass(frozen=True)
class StageSpec:
    """All that the stages depend on; can be sent to a worker process."""

    config: DataConfig
    encoder: EncoderSpec
    templates: Templates
    small: bool  # validation is cut from the documents' ends


@dataclass
class Block:
    """What became of one block of documents; ``entries`` by store, counts by what they count."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    plain: list[Entry] = field(default_factory=list)  # base documents as they are ...
    instructed: dict[int, Entry] = field(default_factory=dict)  # ... and some of them as instructions
    hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # of the base documents
    read: int = 0
    split: int = 0  # documents that are in base and in validation
    characters_raw: int = 0
    characters_clean: int = 0
    changes: Counter = field(default_factory=Counter)
    dropped: Counter = field(default_factory=Counter)
    perturbations: Counter = field(default_factory=Counter)

    def decide(self, share: float, carried: Fraction) -> tuple[int, Fraction]:
        """Fill ``entries["base"]``; returns the instructions among them and the fraction to carry on."""
        chosen, carried = choose(self.hashes, share, carried)
        self.entries["base"] = [
            self.instructed[i] if taken else entry for i, (entry, taken) in enumerate(zip(self.plain, chosen))
        ]
        return int(chosen.sum()), carried


class Stages:
    """The stages for one ``spec``; holds the tokenizer, which is costly to make."""

    def __init__(self, spec: StageSpec) -> None:
        self.config, self.spec, self.policy = spec.config, spec, policy_of(spec.config)
        self.encoder = Encoder(spec.encoder)

    def documents(self, documents: Sequence[Document]) -> Block:
        """A block of documents through all stages."""
        block, planned = Block(read=len(documents)), []
        for document in documents:
            text = self._clean(document.text, block)
            if not text.strip():
                block.dropped["nothing left after cleaning"] += 1
                continue
            planned += self._branches(document, text, block)
        base = [text for store, text, _ in planned if store == "base"]
        salt = instruction_salt(self.config.seed)
        block.hashes = np.asarray([content_hash(text, salt) for text in base], np.uint64)
        possible = candidates(block.hashes, self.config.instruction_share).tolist()
        origins = [document for store, _, document in planned if store == "base"]
        instructions = [self._instruct(base[i], origins[i]) for i in possible]
        samples = [self._sample(*plan, block) for plan in planned]
        made = self.entries(samples + instructions, [p[2] for p in planned] + [origins[i] for i in possible])
        block.plain = [entry for (store, _, _), entry in zip(planned, made) if store == "base"]
        block.instructed = dict(zip(possible, made[len(planned) :]))
        for name in ("validation", "perturbed"):
            block.entries[name] = [entry for (store, _, _), entry in zip(planned, made) if store == name]
        return block

    def tasks(self, tasks: Sequence[Rendered]) -> Block:
        """A block of task samples: their texts cleaned, then tokenised."""
        block, kept = Block(read=len(tasks)), []
        for task in tasks:
            control = task.control or (False,) * len(task.parts)
            parts = tuple(p if c else self._clean(p, block) for p, c in zip(task.parts, control))
            if "".join(parts).strip():
                kept.append(Rendered(parts, task.loss, task.control, task.task_type, task.truth, task.meta))
            else:
                block.dropped["nothing left after cleaning (task)"] += 1
        block.entries["tasks"] = self.entries(kept, [_origin(task) for task in kept])
        return block

    def entries(self, samples: Sequence[Rendered], origins: Sequence[Document]) -> list[Entry]:
        """Each sample tokenised, between begin and end of text."""
        out = []
        for (tokens, flags), sample, origin in zip(tokenise(self.encoder, samples), samples, origins):
            truth = float("nan") if sample.truth is None else sample.truth
            domain = str(origin.meta.get(self.config.domain_field) or origin.source.rsplit("/", 1)[-1])
            out.append(Entry(tokens, flags, sample.task_type, truth, domain, _record(sample, origin)))
        return out

    def _clean(self, text: str, block: Block) -> str:
        done = clean(text, self.policy)
        block.changes.update(done.counts)
        block.characters_raw += len(text)
        block.characters_clean += len(done.text)
        return done.text

    def _branches(self, document: Document, text: str, block: Block) -> Iterator[tuple[str, str, Document]]:
        share = self.config.validation_share
        chance = content_hash(text, 0) / 2**64
        if self.spec.small:
            at = _sentence_end(text, int(len(text) * (1 - share))) if share and len(text) > SHORT else len(text)
            if text[at:].strip():
                block.split += 1
                yield "validation", text[at:], document
                text = text[:at]
        elif chance < share:
            yield "validation", text, document
            return
        yield "base", text, document
        # As many copies as the mixture will ask for; of a few documents, one of each.
        uniform = (chance - share) / (1 - share)
        wanted = self.config.perturbed_share / self.config.base_share
        if self.config.perturbed_share and (self.spec.small or uniform < wanted):
            yield "perturbed", text, document

    def _sample(self, store: str, text: str, document: Document, block: Block) -> Rendered:
        if store != "perturbed":
            return Rendered(
                (text,), (True,), task_type=_task_type(document), truth=_truth(document), meta=document.meta
            )
        copy = perturb(text, self.config.seed)
        block.perturbations[copy.kind] += 1
        meta = {**document.meta, "original": text, "perturbation": copy.kind, "changes": copy.changes}
        return Rendered((copy.text,), (True,), task_type=_task_type(document), truth=copy.truth, meta=meta)

    def _instruct(self, text: str, document: Document) -> Rendered:
        title = document.meta.get("title")
        title = title if isinstance(title, str) and title.strip() else None
        made = inject(text, self.spec.templates, self.config.seed, self.config.instruction_loss, title)
        return Rendered(made.parts, made.loss, made.control, made.task_type, made.truth, {**document.meta, **made.meta})


def instruction_salt(seed: int) -> int:
    """What the hash is taken with that chooses instructions: not the one that chooses validation and copies."""
    return key_of(seed, 1)


def tokenise(encoder: Encoder, samples: Sequence[Rendered]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(tokens, flags) of each sample, its parts encoded by themselves, between begin and end of text."""
    control = [c for s in samples for c in s.control or (False,) * len(s.parts)]
    encoded = iter(encoder.encode([part for s in samples for part in s.parts], control))
    begin, end = np.asarray([encoder.spec.begin], np.int32), np.asarray([encoder.spec.end], np.int32)
    out = []
    for sample in samples:
        tokens, flags = [begin], [np.asarray([CUT])]
        for loss in sample.loss:
            ids, cuts = next(encoded)
            tokens.append(ids)
            flags.append(cuts * CUT | (LOSS if loss else np.uint8(0)))
        out.append((np.concatenate([*tokens, end]), np.concatenate([*flags, np.asarray([CUT | LOSS])])))
    return out


def rendered_of(record: dict) -> Rendered:
    """The sample a record was made from; tokenising it again gives the tokens of the store."""
    control = tuple(record.get("control", ()))
    return Rendered(tuple(record["parts"]), tuple(record["loss"]), control, record.get("task_type", ""))


def _task_type(document: Document) -> str:
    kind = document.meta.get("task_type")
    return kind if isinstance(kind, str) else ""


def _truth(document: Document) -> float | None:
    """What the ``truth`` field says: true, false, or a number from 0 to 1."""
    truth = document.meta.get("truth")
    return float(truth) if isinstance(truth, (bool, int, float)) and 0 <= truth <= 1 else None


def _record(sample: Rendered, origin: Document) -> bytes:
    kept = {"source": origin.source, "line": origin.line, "parts": sample.parts, "loss": sample.loss}
    if any(sample.control):
        kept["control"] = sample.control
    if sample.task_type:
        kept["task_type"] = sample.task_type
    if sample.truth is not None:
        kept["truth"] = sample.truth
    if meta := {name: value for name, value in sample.meta.items() if name not in ("source", "line")}:
        kept["meta"] = meta
    return json.dumps(kept, ensure_ascii=False, default=str).encode("utf-8") + b"\n"


def _origin(task: Rendered) -> Document:
    return Document("", str(task.meta.get("source", "")), int(task.meta.get("line", 0)), task.meta)


def _sentence_end(text: str, at: int) -> int:
    """The end of the sentence or line that position ``at`` lies in (the end of the text if the last)."""
    end = re.compile(r"[。！？!?\n]|\.\s").search(text, at)
    return end.end() if end else len(text)
