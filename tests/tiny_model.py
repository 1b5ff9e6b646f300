"""The smallest model that has every part, for tests that need some model."""

import json
from pathlib import Path

from workbench.config import DataConfig, ModelConfig, RunConfig, TrainConfig

TINY = ModelConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)


def tiny_run(folder: Path, samples: Path, **train) -> RunConfig:
    """A run of ``TINY`` on 300 made-up sentences, written to ``folder``, with these training settings."""
    rows = [
        json.dumps({"text": f"Sentence {i} is about {i % 7} cats. 第{i}句。"}, ensure_ascii=False) for i in range(300)
    ]
    (folder / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return RunConfig(
        data=DataConfig(
            data=str(folder / "a.jsonl"), tasks="", tokenizer=str(samples / "tokenizer"), sequence_length=32
        ),
        model=TINY,
        train=TrainConfig(**train),
    )
