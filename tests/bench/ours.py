"""The workbench's own data pipeline, as the benchmark runs it: text files to packed numpy batches.

``ours`` does the ``Job`` into a fresh empty folder with so many worker processes and returns what
the peers return:

    seconds            from the first file opened to the last batch seen, imports before, once
    stages             {name: seconds}
    tokens             of all documents, end-of-text included
    sum_of_ids         over the same tokens; the benchmark refuses to compare where it differs
    documents          how many
    tokens_in_batches  positions that carry a token

Ours puts a begin token before each document as well, which is taken out of the counts.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .job import Job
from .measure import Entry


def ours(config: Job, folder: Path, workers: int) -> dict:
    """Do the job of ``config`` into ``folder`` with ``workers`` processes; see the file's docstring for the result."""
    import numpy as np

    from workbench.config import DataConfig
    from workbench.data.pipeline import cut_corpus
    from workbench.data.prepare import prepare
    from workbench.data.tokenizing import begin_id, load_tokenizer

    tokenizer = load_tokenizer(config.tokenizer)
    shares = {"base_share": 1.0, "task_share": 0.0, "perturbed_share": 0.0, "instruction_share": 0.0}
    settings = DataConfig(
        data=config.files,
        tasks="",
        tokenizer=config.tokenizer,
        sequence_length=config.sequence_length,
        overlap=0.0,
        clean=False,
        validation_share=0.0,
        **shares,
    )
    start = time.perf_counter()
    stores, preparation = prepare(settings, tokenizer, folder / "corpus", workers=workers)
    prepared = time.perf_counter()
    corpus = cut_corpus(settings, tokenizer, folder / "corpus", stores, preparation)
    cut = time.perf_counter()
    steps, seen = -(-len(corpus.sources["base"]) // config.batch_size), 0
    for step in range(steps):
        batch = corpus.samples(np.arange(step * config.batch_size, (step + 1) * config.batch_size))
        seen += int((batch["segment_ids"] > 0).sum())
    end = time.perf_counter()
    base = stores["base"]
    tokens = np.asarray(base.tokens, np.int64)
    return {
        "seconds": end - start,
        "stages": {"prepare": prepared - start, "cut and pack": cut - prepared, "iterate": end - cut},
        "tokens": len(tokens) - base.documents,
        "sum_of_ids": int(tokens.sum()) - base.documents * begin_id(tokenizer),
        "documents": base.documents,
        "tokens_in_batches": seen,
    }


def entries(job_file: Path, workers: Sequence[int]) -> list[Entry]:
    """An Entry a number of workers."""

    def entry(count: int) -> Entry:
        start = [sys.executable, "-m", "tests.bench.ours", "--job", str(job_file), "--workers", str(count), "--folder"]
        return Entry(f"ours: workers={count}", "ours", lambda folder: [*start, str(folder)])

    return [entry(count) for count in workers]


def main() -> None:
    """Read the command line, run, and print the result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(ours(Job.load(given.job), given.folder, given.workers)))


if __name__ == "__main__":
    main()
