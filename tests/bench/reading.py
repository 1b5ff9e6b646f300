"""Benchmark of the reading side: what a prepared corpus costs to open, to read in order and at random.

    python -m tests.bench.reading --out FILE.json            a store of a gigabyte of tokens, ten times the memory test
    python -m tests.bench.reading --smoke --out FILE.json    a few megabytes

Says, in one run on one machine: positions a second through ``mindspore.dataset`` and without it,
beside a bare loop over a memory map (which makes no labels, segments or masks); the time of one
sample at random; position to batch at 0 and at a billion; the seconds to the first batch of a
corpus that another process prepared; and the peak memory of preparing ten times as much text.

The store is written directly, random tokens in documents of varied length, since its content does
not matter here. Costs: about five minutes and three gigabytes of disk in full. No time is asserted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from workbench.config import DataConfig
from workbench.data.mixture import Mixture, Source
from workbench.data.pipeline import Corpus, cut_corpus
from workbench.data.prepare import prepare
from workbench.data.store import CUT, LOSS, Entry, StoreWriter, TokenStore
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import UserError

from .corpus import make_corpus
from .measure import machine, run_once

LENGTH, ROWS = 256, 32
TOKENIZER = Path(__file__).parents[2] / "data_samples" / "tokenizer"
SHARES = {"base_share": 1.0, "task_share": 0.0, "perturbed_share": 0.0, "instruction_share": 0.0}


def config(files: tuple[str, ...]) -> DataConfig:
    return DataConfig(
        data=files, tasks="", tokenizer=str(TOKENIZER), sequence_length=LENGTH, validation_share=0.0, **SHARES
    )


def write_store(folder: Path, tokens: int) -> TokenStore:
    """About ``tokens`` random tokens in documents of lognormal length, median 400 tokens."""
    rng, writer, done = np.random.default_rng(0), StoreWriter(folder), 0
    while done < tokens:
        lengths = np.clip(rng.lognormal(6.0, 1.0, 2000), 2, 100_000).astype(int)
        entries = [Entry(rng.integers(4, 2048, n).astype(np.int32), np.full(n, CUT | LOSS)) for n in lengths]
        writer.add(entries, [0] * len(entries), [0] * len(entries))
        done += int(lengths.sum())
    writer.close()
    return TokenStore.open(folder)


def prepared_of(folder: Path, tokens: int) -> None:
    """A prepared corpus whose base is such a store: a tiny one is prepared, then its base is put in the place of."""
    text = folder / "text.jsonl"
    text.write_text("\n".join(json.dumps({"text": f"document {i} of a few"}) for i in range(300)), encoding="utf-8")
    tokenizer = load_tokenizer(TOKENIZER)
    settings = config((str(text),))
    stores, facts = prepare(settings, tokenizer, folder / "corpus")
    for file in (folder / "corpus" / "base").iterdir():
        file.unlink()
    write_store(folder / "corpus" / "base", tokens)
    stores["base"] = TokenStore.open(folder / "corpus" / "base")
    cut_corpus(settings, tokenizer, folder / "corpus", stores, facts)  # makes the layout


def open_prepared_corpus(folder: Path) -> Corpus:
    from workbench.data.pipeline import open_corpus

    settings = DataConfig(**{**vars(config(("-",))), "data": str(folder / "corpus")})
    return open_corpus(settings, load_tokenizer(TOKENIZER), folder / "unused")


def first_batch(folder: Path) -> dict:
    """In a process of its own: seconds from opening the corpus to its first batch, libraries imported before."""
    import mindspore.dataset  # noqa: F401  the first batch goes through it

    tokenizer = load_tokenizer(TOKENIZER)
    tokenizer.backend_tokenizer.to_str()
    start = time.perf_counter()
    corpus = open_prepared_corpus(folder)
    opened = time.perf_counter()
    next(corpus.batches(ROWS, steps=1))
    return {"open": opened - start, "first_batch": time.perf_counter() - start}


def rates(corpus: Corpus, batches: int, rounds: int) -> dict:
    """Million positions a second, the best of each of ``rounds`` turns of all ways."""
    tokens = np.asarray(corpus.sources["base"].store.tokens[: min(len(corpus.sources["base"].store.tokens), 1 << 26)])
    offsets = np.random.default_rng(1).integers(0, len(tokens) - LENGTH, (batches, ROWS))

    def bare() -> None:
        for row in offsets:
            np.stack([tokens[o : o + LENGTH] for o in row])

    def direct() -> None:
        for step in range(batches):
            corpus.samples(np.arange(step * ROWS, (step + 1) * ROWS))

    def in_order() -> None:
        for _ in corpus.batches(ROWS, steps=batches):
            pass

    def through_mindspore() -> None:
        for _ in corpus.batches(ROWS, steps=batches, workers=1):
            pass

    ways = {
        "bare memory map": bare,
        "samples()": direct,
        "batches()": in_order,
        "batches(), mindspore.dataset": through_mindspore,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: [round(batches * ROWS * LENGTH / s / 1e6, 2) for s in several] for name, several in seconds.items()}


def microseconds(make, times: int = 400) -> float:
    """Median time of ``make(i)``, in microseconds."""
    took = []
    for i in range(times):
        start = time.perf_counter()
        make(i)
        took.append(time.perf_counter() - start)
    return round(1e6 * statistics.median(took), 1)


def at_random(corpus: Corpus) -> dict:
    """Microseconds of one sample by its row and by its position, and of a batch at 0 and at a billion."""
    source = corpus.sources["base"]
    rows = np.random.default_rng(2).integers(0, len(source), 400)
    step = np.arange(ROWS)
    return {
        "a sample by row": microseconds(lambda i: source.batch(rows[i : i + 1], rows[i : i + 1])),
        "a sample by position": microseconds(lambda i: corpus.samples(rows[i : i + 1])),
        "a batch at position 0": microseconds(lambda i: corpus.samples(step + i)),
        "a batch at position 10**9": microseconds(lambda i: corpus.samples(step + i + 10**9)),
    }


def mixed(rows: int) -> dict:
    """Microseconds to find a batch in a 70/20/10 mixture whose epoch is ``rows`` and in one of ten million."""
    found = {}
    for base in (rows, 7_000_000):
        mixture = Mixture(tuple(Source(n, base, s) for n, s in (("a", 0.7), ("b", 0.2), ("c", 0.1))), 0)
        found[f"{mixture.epoch_length:,} an epoch"] = microseconds(
            lambda i: mixture.locate(np.arange(ROWS) + i * 999_983)
        )
    return found


def memory(cache: Path, sizes: list[float]) -> dict:
    """Peak memory in MB, of the whole tree of processes, of preparing so many megabytes of text."""
    peaks = {}
    for size in sizes:
        corpus = make_corpus(cache, size)
        with tempfile.TemporaryDirectory(dir=cache) as out:
            command = [sys.executable, "-m", "tests.bench.reading", "--prepare", *corpus.files, "--out", out]
            run = run_once(command)
        peaks[f"{size:g} MB"] = {
            "peak_memory_mb": round(run.peak_memory / 1e6, 1),
            "seconds": round(run.wall_seconds, 1),
        }
    return peaks


def prepare_files(files: list[str], out: Path) -> None:
    settings = config(tuple(files))
    tokenizer = load_tokenizer(TOKENIZER)
    stores, facts = prepare(settings, tokenizer, out / "corpus", workers=2)
    cut_corpus(settings, tokenizer, out / "corpus", stores, facts)
    print(json.dumps({"tokens": facts.tokens["base"]}))


def main() -> None:
    """Read the command line, measure, write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reading", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json")
    parser.add_argument("--smoke", action="store_true", help="a few megabytes, one round")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "workbench-bench")
    parser.add_argument("--prepare", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--first-batch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.prepare:
        return prepare_files(given.prepare, given.out)
    if given.first_batch:
        print(json.dumps(first_batch(given.first_batch)))
        return None
    given.cache.mkdir(parents=True, exist_ok=True)
    tokens, batches, rounds = (1 << 20, 50, 1) if given.smoke else (250_000_000, 1500, 5)
    result = {"machine": machine(), "sequence_length": LENGTH, "batch_size": ROWS, "tokens": tokens}
    with tempfile.TemporaryDirectory(dir=given.cache) as scratch:
        folder = Path(scratch)
        prepared_of(folder, tokens)
        command = [sys.executable, "-m", "tests.bench.reading", "--first-batch", str(folder), "--out", "-"]
        starts = []
        for _ in range(1 if given.smoke else 5):
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            # MindSpore's own line about a developer switch comes last.
            starts.append(json.loads(next(line for line in said.splitlines() if line.startswith("{"))))
        result["seconds_to_first_batch"] = starts
        corpus = open_prepared_corpus(folder)
        result["rows"] = len(corpus.sources["base"])
        result["million_positions_a_second"] = rates(corpus, batches, rounds)
        result["microseconds"] = at_random(corpus) | {"locate": mixed(len(corpus.sources["base"]))}
    result["preparing"] = memory(given.cache, [1, 2] if given.smoke else [5, 50])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(json.dumps(result, indent=1))
    return None


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
