"""The writing side of a preparation: stores that grow block by block, and a journal to continue from.

After a few seconds of work everything written is made durable and ``journal.json`` says how far it
reaches: the place in the input, the length of every array, all counts. A preparation that was
killed cuts its files back to that and goes on from there; the result is the same to the byte.
"""

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.data.documents import Reading, Rejected
from workbench.data.stages import Block
from workbench.data.store import StoreWriter
from workbench.errors import DataError
from workbench.run_folder import write_json

STORES = ("base", "validation", "tasks", "perturbed")
_SECONDS = 5.0  # of work that a kill may cost


@dataclass(frozen=True)
class Place:
    """How far the input was read when a block was complete."""

    position: tuple[int, int]  # file, items of it: where ``read_documents`` starts again
    rejected: dict[str, int]
    quarantine: int  # bytes


@dataclass
class Counts:
    """What the blocks so far added up to; JSON-ready."""

    read: int = 0
    split: int = 0
    characters_raw: int = 0
    characters_clean: int = 0
    instructions: int = 0
    carried: str = "0"  # fraction of an instruction that is still owed
    documents: Counter = field(default_factory=Counter)  # by store
    tokens: Counter = field(default_factory=Counter)
    changes: Counter = field(default_factory=Counter)
    dropped: Counter = field(default_factory=Counter)
    perturbations: Counter = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        # Not asdict, which makes a Counter of the pairs of a Counter.
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Counts":
        return cls(**{k: Counter(v) if isinstance(v, dict) else v for k, v in values.items()})


class Building:
    """Stores under construction in ``folder``; a context that journals when it is left early."""

    def __init__(self, folder: Path, mark: str, num_tasks: int, instruction_share: float) -> None:
        self.folder, self.mark, self.num_tasks, self.share = folder, mark, num_tasks, instruction_share
        self.journal = folder / "journal.json"
        self.counts, self.place, self.phase, self.small = Counts(), Place((0, 0), {}, 0), "documents", None
        self.task_types: dict[str, int] = {}
        self.domains: dict[str, int] = {}
        lengths = {}
        if self.journal.is_file():
            saved = json.loads(self.journal.read_text(encoding="utf-8"))
            if saved["fingerprint"] != mark:
                raise DataError(
                    f"{folder} holds an unfinished preparation of other data or settings (fingerprint "
                    f"{saved['fingerprint']}, now {mark}); remove it or name another folder"
                )
            self.counts = Counts.from_json(saved["counts"])
            self.place = Place(**{**saved["place"], "position": tuple(saved["place"]["position"])})
            self.phase, self.small, lengths = saved["phase"], saved["small"], saved["lengths"]
            self.task_types = {name: i for i, name in enumerate(saved["task_types"], 1)}
            self.domains = {name: i for i, name in enumerate(saved["domains"])}
        self.continued = bool(lengths)
        self.stores = {name: StoreWriter(folder / name, lengths.get(name)) for name in STORES}
        quarantine = folder / "quarantine.jsonl"
        self.quarantine = quarantine.open("r+b" if self.continued else "wb")
        self.quarantine.truncate(self.place.quarantine)
        self.quarantine.seek(self.place.quarantine)
        self._saved, self._whole = time.monotonic(), True

    def __enter__(self) -> "Building":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # A signal may come between two arrays of one block; then the journal of some seconds ago stands.
        if kind is not None and self._whole and self.folder.is_dir():
            self.save()
        for store in self.stores.values():
            store.close()
        self.quarantine.close()

    def reading(self) -> Reading:
        """The counts of reading so far, to be carried on."""
        return Reading(rejected=Counter(self.place.rejected), position=self.place.position)

    def reject(self, rejected: Rejected) -> None:
        """Write what could not be read to ``quarantine.jsonl``."""
        line = json.dumps(asdict(rejected), ensure_ascii=False) + "\n"
        self.quarantine.write(line.encode("utf-8", "backslashreplace"))

    def note(self, reading: Reading) -> Place:
        """The place reached by ``reading``."""
        return Place(reading.position, dict(reading.rejected), self.quarantine.tell())

    def take(self, block: Block, place: Place | None) -> None:
        """Append a block that came through the stages, in the order of the input.

        ``place`` is where the input was after it; None while the tasks are read, which are read
        again from their beginning after an interruption.
        """
        c, self._whole = self.counts, False
        if "tasks" not in block.entries:
            taken, carried = block.decide(self.share, Fraction(c.carried))
            c.instructions, c.carried = c.instructions + taken, str(carried)
            c.read += block.read
        c.split += block.split
        c.characters_raw += block.characters_raw
        c.characters_clean += block.characters_clean
        for name in ("changes", "dropped", "perturbations"):
            getattr(c, name).update(getattr(block, name))
        for name, entries in block.entries.items():
            ids = [self._task_id(e.task_type) for e in entries]
            domains = [self.domains.setdefault(e.domain, len(self.domains)) for e in entries]
            self.stores[name].add(entries, ids, domains)
            c.documents[name] += len(entries)
            c.tokens[name] += sum(len(e.tokens) for e in entries)
        self.place, self._whole = self.place if place is None else place, True
        if place is not None and time.monotonic() - self._saved > _SECONDS:
            self.save()

    def begin_tasks(self, reading: Reading) -> None:
        """The documents are through; what comes now is done again from here if it is interrupted."""
        self.place, self.phase = self.note(reading), "tasks"
        self.save()

    def save(self) -> None:
        """Make durable what was written and say in the journal how far it reaches."""
        if self.phase == "tasks" and self.counts.documents["tasks"]:
            return  # the journal of the moment before the tasks stands
        self.quarantine.flush()
        lengths = {name: store.sync() for name, store in self.stores.items()}
        write_json(
            self.journal,
            {
                "fingerprint": self.mark,
                "phase": self.phase,
                "small": self.small,
                "place": asdict(self.place),
                "lengths": lengths,
                "counts": self.counts.as_json(),
                "task_types": list(self.task_types),
                "domains": list(self.domains),
            },
        )
        self._saved = time.monotonic()

    def _task_id(self, task_type: str) -> int:
        """Task types are numbered from 1 as they come; no task is 0."""
        if not task_type:
            return 0
        number = self.task_types.setdefault(task_type, len(self.task_types) + 1)
        if number >= self.num_tasks:
            raise DataError(
                f"{len(self.task_types)} task types ({', '.join(list(self.task_types)[:5])}, ...), but "
                f"num_tasks={self.num_tasks} leaves {self.num_tasks - 1}: raise num_tasks"
            )
        return number
