"""Write ``data_samples/``: ``python -m workbench.data.samples [FOLDER]``.

Everything there but README.md comes from the synthetic world of one seed, byte for byte the same
each time, so that the samples can be read, changed and made anew. Takes a few seconds, most of
them for importing the tokenizer library.

Does not do: delete files, or overwrite anything but the files it makes.
"""

import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Iterable

from workbench.data.articles import Article, write_articles
from workbench.data.cleaning import CleaningPolicy
from workbench.data.sample_faults import broken_files, daily_rows, healthy_rows, kernel_logs, sick_rows
from workbench.data.sample_pages import make_pages
from workbench.data.sample_tasks import evaluation_chains, make_tasks
from workbench.data.tokenizer_training import BEGIN, END, PADDING, UNKNOWN, train_tokenizer
from workbench.data.world import World, make_world
from workbench.data.world_text import LANGUAGES

SEED = 20231024
VOCAB_SIZE = 2048
_FILES = {
    "company": "corpus/companies.jsonl",
    "person": "corpus/people.jsonl",
    "university": "corpus/universities.txt",
    "city": "corpus/cities.txt",
}


def corpus_files(world: World, seed: int = SEED) -> dict[str, bytes]:
    """The articles, both languages mixed: .jsonl for companies and people, .txt paragraphs for the rest."""
    by_kind: dict[str, list[Article]] = {kind: [] for kind in _FILES}
    for language in LANGUAGES:
        for article in write_articles(world, language, seed=seed):
            by_kind[article.subject.kind].append(article)
    files = {}
    for kind, articles in by_kind.items():
        random.Random(f"{seed}/corpus/{kind}").shuffle(articles)
        if _FILES[kind].endswith(".jsonl"):
            rows = [{"id": a.id, "language": a.language, "domain": a.domain, "text": a.text} for a in articles]
            files[_FILES[kind]] = _jsonl(rows)
        else:
            files[_FILES[kind]] = "\n\n".join(a.text for a in articles).encode("utf-8") + b"\n"
    return files


def tokenizer_files(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> dict[str, bytes]:
    """``tokenizer.json`` and the smallest ``tokenizer_config.json`` that AutoTokenizer loads it with."""
    tokenizer = train_tokenizer(texts, vocab_size)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "cleaning": asdict(CleaningPolicy()),
        "unk_token": UNKNOWN,
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PADDING,
        "clean_up_tokenization_spaces": False,
    }
    return {
        "tokenizer/tokenizer.json": tokenizer.backend_tokenizer.to_str(pretty=True).encode("utf-8") + b"\n",
        "tokenizer/tokenizer_config.json": json.dumps(config, indent=1).encode("utf-8") + b"\n",
    }


def sample_files(seed: int = SEED) -> dict[str, bytes]:
    """Every file of ``data_samples/`` but README.md: path inside the folder -> content."""
    world = make_world(seed)
    corpus = corpus_files(world, seed)
    tasks = make_tasks(world, seed=seed)
    files = dict(corpus)
    files.update({f"corpus/pages/{name}": page for name, page in make_pages(world).items()})
    files.update({f"broken/{name}": content for name, content in broken_files(world).items()})
    files.update({f"kernel_logs/{name}": log.encode("utf-8") for name, log in kernel_logs().items()})
    files["tasks.jsonl"] = _jsonl(tasks)
    files["chains.jsonl"] = _jsonl(evaluation_chains(world, seed=seed))
    files["metrics/healthy.jsonl"] = _jsonl(healthy_rows(seed))
    files["metrics/sick.jsonl"] = _jsonl(sick_rows(seed))
    files["metrics/daily.jsonl"] = _jsonl(daily_rows(seed))
    files.update(tokenizer_files([*_texts(corpus), *_turns(tasks)]))
    return files


def write_samples(folder: str | Path, seed: int = SEED) -> list[Path]:
    """Write all sample files below ``folder``; the paths written, in order."""
    written = []
    for name, content in sample_files(seed).items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written.append(path)
    return written


def _texts(corpus: dict[str, bytes]) -> Iterable[str]:
    for name, content in corpus.items():
        text = content.decode("utf-8")
        if name.endswith(".jsonl"):
            yield from (json.loads(line)["text"] for line in text.splitlines())
        else:
            yield from text.strip().split("\n\n")


def _turns(tasks: list[dict[str, Any]]) -> Iterable[str]:
    for task in tasks:
        for turn in task["turns"]:
            yield f"{turn['question']}\n{turn['answer']}"


def _jsonl(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("data_samples")
    paths = write_samples(target)
    print(f"{len(paths)} files, {sum(p.stat().st_size for p in paths):,} bytes in {target}")
