"""What every pipeline of the benchmark is given, so that all do the same work.

Text of .jsonl files → token ids of one tokenizer, one end-of-text id after each document, no other
special tokens → rows of ``sequence_length`` → numpy batches of ``batch_size`` rows, iterated to the
end. Cleaning is off. ``sum_of_ids`` over all tokens is reported by each and compared: it does not
depend on the order of documents and differs if a single token does.

Imports nothing but the standard library: it is also read in a peer's own environment.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """Input and shape of one benchmark; ``bytes`` is the text's size, for MB/s."""

    files: tuple[str, ...]  # .jsonl, field "text"
    bytes: int
    documents: int
    tokenizer: str  # a folder with tokenizer.json and tokenizer_config.json
    end_token: str
    end_id: int
    sequence_length: int = 1024
    batch_size: int = 32

    def save(self, path: Path) -> Path:
        """Write the job as JSON to ``path``, and give ``path`` back."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Job":
        """The job that ``save`` wrote."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**values | {"files": tuple(values["files"])})
