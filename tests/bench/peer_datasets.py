"""Text to packed batches with Hugging Face ``datasets``, written as its users write it.

``load_dataset("json")`` → ``map`` in batches through the fast tokenizer, end-of-text appended →
``map(group_texts)``, the function of transformers' ``run_clm.py``: a map batch is concatenated and cut
into blocks, its remainder dropped → iterated as numpy batches. Every run starts with an empty cache.

``SETTINGS`` are the sensible ways to run it; ``run_clm`` alone keeps the attention mask and a copy
of the ids as labels, as that script does, all others keep the ids only, which is quicker. The
``direct`` ones go past transformers to the tokenizer's own ``encode_batch_fast``, which few users do:
they make a group of their own, ``datasets direct``.

    python -m tests.bench.peer_datasets --job JOB.json --folder EMPTY_FOLDER --num-proc 2

prints the seconds of the four stages. Does not do: anything to keep the remainders, or documents apart.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from .job import Job
from .measure import Entry

# name -> (words for the command line, environment). datasets forks its workers, and the tokenizer's
# own threads do not survive a fork: either processes or threads.
_THREADS, _PROCESSES = {"TOKENIZERS_PARALLELISM": "true"}, {"TOKENIZERS_PARALLELISM": "false"}
SETTINGS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "threads": ((), _THREADS),
    "threads, batches of 250": (("--map-batch", "250"), _THREADS),
    "threads, writer_batch_size=10000": (("--writer-batch", "10000"), _THREADS),
    "num_proc=2": (("--num-proc", "2"), _PROCESSES),
    "num_proc=2, batches of 250": (("--num-proc", "2", "--map-batch", "250"), _PROCESSES),
    "num_proc=2, writer_batch_size=10000": (("--num-proc", "2", "--writer-batch", "10000"), _PROCESSES),
    "threads, direct": (("--direct",), _THREADS),
    "num_proc=2, direct": (("--num-proc", "2", "--direct"), _PROCESSES),
    "num_proc=2, run_clm": (("--num-proc", "2", "--run-clm"), _PROCESSES),
}

SMOKE = ("threads", "num_proc=2")


def entries(job_file: Path, python: str, names: Sequence[str] = tuple(SETTINGS)) -> list[Entry]:
    """An Entry a setting; ``python`` is the interpreter that has ``datasets``."""

    def entry(name: str) -> Entry:
        words, environment = SETTINGS[name]
        start = [python, "-m", "tests.bench.peer_datasets", "--job", str(job_file), "--folder"]
        group = "datasets direct" if "--direct" in words else "datasets"
        return Entry(f"datasets: {name}", group, lambda folder: [*start, str(folder), *words], environment)

    return [entry(name) for name in names]


def run(
    job: Job, folder: Path, *, num_proc: int | None, map_batch: int, writer_batch: int, run_clm: bool, direct: bool
) -> dict:
    """Do the job with an empty cache in ``folder``; the seconds of each stage, tokens in and out."""
    import datasets
    import numpy as np
    import pyarrow.compute as pc
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer, local_files_only=True)
    tokenizer.model_max_length = 10**12  # run_clm's text, not its warnings about long documents
    end, length = job.end_id, job.sequence_length

    def tokenise(batch: dict) -> dict:
        if direct:
            encodings = tokenizer.backend_tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
            return {"input_ids": [encoding.ids + [end] for encoding in encodings]}
        out = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=run_clm)
        for column, value in (("input_ids", end), ("attention_mask", 1)):
            for row in out.get(column, ()):
                row.append(value)
        return dict(out)

    def group_texts(examples: dict) -> dict:
        joined = {key: list(chain(*examples[key])) for key in examples}
        total = len(joined["input_ids"]) // length * length
        result = {key: [t[i : i + length] for i in range(0, total, length)] for key, t in joined.items()}
        if run_clm:
            result["labels"] = result["input_ids"].copy()
        return result

    how = {"batched": True, "batch_size": map_batch, "writer_batch_size": writer_batch, "num_proc": num_proc}
    marks = [time.perf_counter()]
    raw = datasets.load_dataset("json", data_files=list(job.files), split="train", cache_dir=str(folder / "cache"))
    marks.append(time.perf_counter())
    tokens = raw.map(tokenise, remove_columns=raw.column_names, **how)
    marks.append(time.perf_counter())
    blocks = tokens.map(group_texts, **how)
    marks.append(time.perf_counter())
    rows = 0
    for batch in blocks.with_format("numpy").iter(batch_size=job.batch_size):
        ids = batch["input_ids"]
        assert ids.shape[1] == length and ids.dtype == np.int64, (ids.shape, ids.dtype)
        rows += len(ids)
    marks.append(time.perf_counter())

    column = tokens.data.column("input_ids")
    stages = dict(zip(("load", "tokenise", "group", "iterate"), np.diff(marks).round(4).tolist(), strict=True))
    return {
        "seconds": marks[-1] - marks[0],
        "stages": stages,
        "tokens": pc.sum(pc.list_value_length(column)).as_py(),
        "sum_of_ids": pc.sum(pc.list_flatten(column)).as_py(),
        "documents": len(tokens),
        "tokens_in_batches": rows * length,
        "cache_mb": round(sum(p.stat().st_size for p in folder.rglob("*.arrow")) / 1e6, 1),
    }


def main() -> None:
    """Read the command line, run, and print the result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--num-proc", type=int)
    parser.add_argument("--map-batch", type=int, default=1000)
    parser.add_argument("--writer-batch", type=int, default=1000)
    parser.add_argument("--run-clm", action="store_true")
    parser.add_argument("--direct", action="store_true")
    given = vars(parser.parse_args())
    os.environ |= {"HF_HOME": str(given["folder"]), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    print(json.dumps(run(Job.load(given.pop("job")), given.pop("folder"), **given)))


if __name__ == "__main__":
    main()
