"""The smallest model that has every part, for tests that need some model."""

from workbench.config import ModelConfig

TINY = ModelConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)
