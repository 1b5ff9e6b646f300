"""Benchmark of the data pipeline: text to packed batches, ours beside Hugging Face datasets and datatrove.

    python -m tests.bench.data --megabytes 50 --out FILE.json
    python -m tests.bench.data --smoke --out FILE.json        2 MB, one round, the datasets peer only

All do one ``Job`` on the same files. One trial round goes through every sensible setting; the two
fastest of each pipeline then run ``--repeats`` rounds in turn, and the best median stands for it.
The result is refused unless all saw the same tokens. FILE gets every raw value; no time is asserted.

Costs: about forty minutes for 50 MB and both tokenizers on two cores, and a gigabyte of disk in
``--cache``, which keeps corpus, tokenizers and datatrove's environment. Leave the machine alone
meanwhile; the load average before the start is in FILE.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from workbench.config import fingerprint
from workbench.errors import SettingError, UserError, unknown_name

from . import compare, ours, peer_datasets, peer_datatrove
from .corpus import make_corpus
from .job import Job
from .measure import Entry, machine, measure
from .tokenizers_used import TOKENIZERS, end_token

PEERS = ("datasets", "datatrove")
FINALISTS = 2


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, lists split and checked. Raises SettingError for an unknown peer or tokenizer."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.data", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json")
    parser.add_argument("--megabytes", type=float, default=50, help="size of the text (default 50)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds after the trial (default 3)")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers, comma between (default both)")
    parser.add_argument("--ours", default="1,2", metavar="WORKERS", help="worker counts of ours (default 1,2)")
    parser.add_argument("--tokenizers", default=",".join(TOKENIZERS), help="which tokenizers (default both)")
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--all-settings", action="store_true", help="no trial: every setting in every round")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "workbench-bench")
    parser.add_argument("--smoke", action="store_true", help="2 MB, one round, the datasets peer, one tokenizer")
    given = parser.parse_args(words)
    given.peers = [name for name in given.peers.split(",") if name]
    given.tokenizers = [name for name in given.tokenizers.split(",") if name]
    if not all(count.isdigit() and int(count) for count in given.ours.split(",") if count):
        raise SettingError(f"--ours {given.ours!r} is not allowed: worker counts from 1, a comma between")
    given.ours = [int(count) for count in given.ours.split(",") if count]
    if given.smoke:
        given.megabytes, given.repeats, given.peers, given.tokenizers = 2.0, 1, ["datasets"], ["trained"]
    for kind, names, known in (("peer", given.peers, PEERS), ("tokenizer", given.tokenizers, TOKENIZERS)):
        for name in names:
            if name not in known:
                raise unknown_name(kind, name, known)
    if not given.peers and not given.ours:
        raise SettingError("--peers '' leaves nothing to measure: name a peer or give --ours 1")
    return given


def compete(entries: Sequence[Entry], size: int, repeats: int, folder: Path, *, trial: bool) -> dict:
    """Measure ``entries``, a trial round first if asked for; trial, rounds, the best of each group and ratios."""
    if not trial:
        first, finalists = {}, list(entries)
    else:
        first = measure(entries, 1, folder)
        finalists = [entry for several in compare.fastest(entries, first, FINALISTS).values() for entry in several]
    runs = measure(finalists, repeats, folder)
    work = compare.same_work({f"trial {name}": several for name, several in first.items()} | runs)
    best = {group: several[0] for group, several in compare.fastest(finalists, runs).items()}
    return {
        "same_work": work,
        "best": {group: entry.name for group, entry in best.items()},
        "ratios_of_seconds_to_ours": compare.ratios(best, runs),
        "runs": compare.report(runs, size),
        "trial": compare.report(first, size),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmark, print a table a tokenizer, write the file."""
    given = arguments(words)
    given.cache.mkdir(parents=True, exist_ok=True)
    about = machine()
    corpus = make_corpus(given.cache, given.megabytes)
    print(
        f"{corpus.bytes / 1e6:.1f} MB in {corpus.documents} documents, median {corpus.document_bytes['median']} bytes; "
        f"distinct lines {corpus.distinct_lines:.0%}, distinct runs of 32 characters {corpus.distinct_shingles:.0%}"
    )
    trove = peer_datatrove.environment(given.cache) if "datatrove" in given.peers else None
    facts = asdict(corpus) | {"files": [Path(name).name for name in corpus.files]}
    result = {"machine": about, "corpus": facts, "sequence_length": given.sequence_length}
    result |= {"batch_size": given.batch_size, "repeats": given.repeats, "tokenizers": {}}
    if trove:
        result["datatrove_environment"] = peer_datatrove.versions(trove)
    for name in given.tokenizers:
        tokenizer = TOKENIZERS[name](given.cache, corpus)
        shape = {"sequence_length": given.sequence_length, "batch_size": given.batch_size}
        job = Job(corpus.files, corpus.bytes, corpus.documents, str(tokenizer), *end_token(tokenizer), **shape)
        job_file = job.save(given.cache / f"job-{fingerprint(job)}.json")
        for path in corpus.files:
            Path(path).read_bytes()  # so that the first run does not alone pay for the disk
        entries = ours.entries(job_file, given.ours)
        if "datasets" in given.peers:
            settings = peer_datasets.SMOKE if given.smoke else tuple(peer_datasets.SETTINGS)
            entries += peer_datasets.entries(job_file, sys.executable, settings)
        if trove:
            entries += peer_datatrove.entries(job_file, trove)
        print(f"\ntokenizer: {name}")
        told = compete(
            entries, corpus.bytes, given.repeats, given.cache, trial=not given.all_settings and not given.smoke
        )
        result["tokenizers"][name] = told
        print(compare.table(told["trial"] | told["runs"]))
        for peer, ratio in told["ratios_of_seconds_to_ours"].items():
            print(f"{peer} takes {ratio['of_medians']:.2f} times our seconds (rounds: {ratio['by_round']})")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"\nwritten to {given.out}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
