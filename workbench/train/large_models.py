"""Does a model of seven billion parameters fit a card? From the settings alone; nothing here was measured.

    fits = large_model_table()      one Fit a way of training it

The article says that 7B in half precision needs about 32 GB and that cards have 24. Weights and
gradients alone are 27 GB; AdamW with float32 master weights makes it 16 bytes a parameter, 108 GB
before any activation. Published sizes of the Ascend 910B are 64 GB, and 32 GB for the B4; none with
24 GB was found (vllm-ascend, issues 1903, 9337 and 129). GB are 10^9 bytes, as cards are sold.
"""

from dataclasses import dataclass, replace

from workbench.config import ModelConfig, TrainConfig
from workbench.train.budget import Budget, memory_budget

CARDS_GB = (24, 32, 64)
# Llama 2 of seven billion parameters (Touvron et al. 2023, and its config.json).
SEVEN_BILLION = ModelConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    max_position_embeddings=4096,
    tie_word_embeddings=False,
)


@dataclass(frozen=True)
class Fit:
    """One way of training: what a rank holds, and on which of ``CARDS_GB`` it fits."""

    name: str
    ranks: int
    budget: Budget

    @property
    def state_gb(self) -> float:
        return sum(self.budget.state.values()) / 1e9

    @property
    def peak_gb(self) -> float:
        return self.budget.peak_bytes / 1e9

    @property
    def fits(self) -> tuple[bool, ...]:
        return tuple(self.peak_gb <= card for card in CARDS_GB)


def large_model_table(model: ModelConfig = SEVEN_BILLION, sequence_length: int = 4096) -> list[Fit]:
    """AdamW on Ascend, one sequence a rank: precision, recompute, sharding and offload; float16 from the second on."""
    plain = TrainConfig(batch_size=1, precision="float16")
    block = replace(plain, recompute="block")
    zero, host = {"optimizer_sharding": "zero1"}, {"optimizer_offload": "host"}
    ways = [
        ("float32, block recomputed", 1, replace(plain, precision="float32", recompute="block")),
        ("float16, nothing recomputed", 1, plain),
        ("float16, block recomputed (block)", 1, block),
        ("block, moments on the host (not built)", 1, replace(block, **host)),
        ("block, zero1 over 8 ranks", 8, replace(block, **zero)),
        ("block, zero1 over 64 ranks", 64, replace(block, **zero)),
        ("nothing recomputed, zero1 over 64", 64, replace(plain, **zero)),
    ]
    return [
        Fit(name, ranks, memory_budget(model, replace(train, batch_size=ranks), sequence_length, ranks, "Ascend"))
        for name, ranks, train in ways
    ]
