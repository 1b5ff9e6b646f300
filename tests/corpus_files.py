"""Corpora for tests of the data pipeline: files written from Python values, and the config that reads them."""

import json
from pathlib import Path

from workbench.config import DataConfig

MANY = [f"Document {i} 第{i}篇 is about the number {i * 7} and a few other things." for i in range(400)]
TASKS = [{"task_type": "sum", "turns": [{"question": f"{i}+1?", "answer": str(i + 1)}]} for i in range(50)]
PLAIN = {"base_share": 1.0, "task_share": 0.0, "perturbed_share": 0.0, "instruction_share": 0.0}


def jsonl(texts, **fields):
    return "\n".join(json.dumps({"text": t, **fields}, ensure_ascii=False) for t in texts)


def write_corpus(folder: Path, files, tasks=None, **values) -> DataConfig:
    """Write ``files`` ({name: bytes or str}) and ``tasks`` under ``folder`` and return a config for them."""
    for name, content in files.items():
        file = folder / "texts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    if tasks is not None:
        (folder / "tasks.jsonl").write_text("\n".join(json.dumps(t) for t in tasks))
    given = {"data": str(folder / "texts"), "tasks": str(folder / "tasks.jsonl") if tasks is not None else ""}
    return DataConfig(**{**given, "tokenizer": "-", "sequence_length": 32, **values})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` by its name, lock files left out."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}
