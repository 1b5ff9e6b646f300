"""Every setting, in frozen dataclasses that check themselves.

One source for the notebooks' parameters, the command line and checkpoints. Field names are
Hugging Face's where one exists. A wrong name is refused with the nearest known one, a wrong
type or value with what was given, what is allowed and which setting to change.

    DataConfig(sequence_length=256)          checked when it is made
    RunConfig.from_dict(run.config())        and when it is read back
    fingerprint(config)                      a short hash that names the settings
"""

import hashlib
import json
from dataclasses import asdict, field
from typing import Any, Mapping

from workbench.alarm_config import AlarmConfig
from workbench.model_config import ModelConfig
from workbench.settings import require, settings


@settings
class DataConfig:
    """Which text, and what the pipeline does to it."""

    data: str | tuple[str, ...] = "data_samples/corpus"  # files, folders or globs; or a prepared corpus
    text_field: str = "text"  # of .jsonl and .parquet
    paragraphs: bool = False  # each paragraph of a .txt or .md is a document, not the whole file
    domain_field: str = "domain"  # of .jsonl and .parquet; without it a document's domain is its file
    strict: bool = False  # refuse what cannot be read, instead of setting it aside
    tasks: str = "data_samples/tasks.jsonl"  # task samples with metadata; "" for none
    tokenizer: str = "data_samples/tokenizer"  # a folder that AutoTokenizer loads
    sequence_length: int = 128  # positions a sample
    overlap: float = 0.25  # share of a window that repeats the end of the one before
    overlap_loss: bool = False  # count the loss of a repeated token as often as it appears
    clean: bool = True  # False: no cleaning rule runs, whatever the next five say
    markup: str = "auto"  # remove markup: auto (where the text is HTML), always, never
    unicode_form: str = "NFC"  # NFC (safe for Chinese), NFKC (turns full-width punctuation into ASCII) or none
    fold_width: bool = False  # full-width letters and digits → ASCII
    fold_quotes: bool = False  # “ ” ‘ ’ → " '
    chinese: str = "keep"  # keep, simplified or traditional
    base_share: float = 0.7
    task_share: float = 0.2
    perturbed_share: float = 0.1
    mixture_unit: str = "samples"  # what the shares are of: samples or tokens
    stopping_strategy: str = "base_exhausted"  # how long an epoch is, see data/mixture.py
    instruction_share: float = 0.15  # of the base documents, turned into instruction and response
    instruction_loss: str = "response"  # response, or all
    templates: str = "auto"  # auto (the tokenizer's chat template if it has one), plain or chat
    validation_share: float = 0.05  # of the base documents, chosen by content hash
    seed: int = 20231024

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):  # JSON knows lists only
            object.__setattr__(self, "data", tuple(map(str, self.data)))
        require(self.sequence_length >= 8, "sequence_length", self.sequence_length, "at least 8")
        require(0 <= self.overlap <= 0.9, "overlap", self.overlap, "between 0 and 0.9")
        require(0 <= self.validation_share < 0.5, "validation_share", self.validation_share, "0 to 0.5")
        for name in ("base_share", "task_share", "perturbed_share", "instruction_share"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name, allowed in _CHOICES.items():
            told = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            require(getattr(self, name) in allowed, name, getattr(self, name), told)
        total = self.base_share + self.task_share + self.perturbed_share
        require(
            abs(total - 1) < 1e-6,
            "base_share, task_share, perturbed_share",
            (self.base_share, self.task_share, self.perturbed_share),
            f"they must sum to 1, not {total:g}",
        )
        require(self.base_share > 0, "base_share", self.base_share, "above 0, an epoch is one pass over the base")


_CHOICES = {
    "markup": ("auto", "always", "never"),
    "unicode_form": ("NFC", "NFKC", "none"),
    "chinese": ("keep", "simplified", "traditional"),
    "mixture_unit": ("samples", "tokens"),
    "stopping_strategy": ("base_exhausted", "first_exhausted", "all_exhausted"),
    "instruction_loss": ("response", "all"),
    "templates": ("auto", "plain", "chat"),
}


@settings
class TrainConfig:
    """The optimizer, the loss scale and the length of the run."""

    steps: int = 600
    batch_size: int = 16  # samples a step, over all ranks
    gradient_accumulation_steps: int = 1  # a step computes its samples in so many parts, one after the other
    learning_rate: float = 3e-3
    lr_scheduler_type: str = "cosine"  # cosine, warmup_stable_decay or constant, all after the warm-up
    warmup_steps: int = 40
    decay_share: float = 0.2  # of the steps, at their end: the decay of warmup_stable_decay
    min_lr_ratio: float = 0.1  # a decay ends at learning_rate * min_lr_ratio
    weight_decay: float = 0.1
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0  # a norm above it is clipped to it; 1e9 clips nothing
    init_loss_scale: float = 65536.0
    min_loss_scale: float = 1.0
    max_loss_scale: float = 16777216.0
    loss_scale_factor: float = 2.0
    loss_scale_window: int = 200  # good steps before the scale grows
    loss_scale_hysteresis: int = 1  # overflows, counted since the scale last grew, before it shrinks
    lm_weight: float = 1.0
    instruction_weight: float = 0.3
    fact_weight: float = 0.1
    precision: str = "float32"  # float32, float16 or bfloat16 (Ascend only), see model/precision.py
    kernels: str = "stock"  # stock (MindSpore's operators) or native (C++ compiled here, CPU only)
    recompute: str = "none"  # none, attention, feed_forward, block, or whole (all blocks as one)
    bucket_by: str = "bytes"  # gradients are reduced together: bytes, size_groups, or parameter (one by one)
    bucket_mb: float = 25.0  # MiB of a bucket, of bucket_by=bytes; a larger parameter has one of its own
    bucket_size_groups: tuple[int, ...] = (1024, 65536, 1048576)  # elements up to which parameters share a bucket
    optimizer_sharding: str = "none"  # none, or zero1: each rank holds and updates its part of the moments
    optimizer_offload: str = "none"  # where the moments are kept: none (with the weights), host or disk
    eval_steps: int = 200
    save_steps: int = 200
    save_total_limit: int = 2
    seed: int = 20231024

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "eval_steps", "save_steps", "save_total_limit", "loss_scale_window"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("gradient_accumulation_steps", "loss_scale_hysteresis"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.decay_share <= 1, "decay_share", self.decay_share, "above 0, at most 1")
        require(self.bucket_mb > 0, "bucket_mb", self.bucket_mb, "above 0")
        object.__setattr__(self, "bucket_size_groups", tuple(self.bucket_size_groups))  # JSON knows lists only
        groups = self.bucket_size_groups
        require(
            groups and all(type(n) is int and n > 0 for n in groups) and sorted(set(groups)) == list(groups),
            "bucket_size_groups",
            groups,
            "element counts that grow, such as (1024, 65536, 1048576)",
        )
        for name, value in vars(self).items():
            if type(value) is float:
                require(abs(value) < 2.0**127, name, value, "a finite float32, below 1.7e38")
        for name, allowed in _TRAIN_CHOICES.items():
            told = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            require(getattr(self, name) in allowed, name, getattr(self, name), told)
        require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "0 or more")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio", self.min_lr_ratio, "between 0 and 1")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        for name in ("adam_beta1", "adam_beta2"):
            require(0 <= getattr(self, name) <= 0.99999, name, getattr(self, name), "0 to 0.99999, below 1 in float32")
        require(self.adam_epsilon >= 1e-20, "adam_epsilon", self.adam_epsilon, "at least 1e-20, above 0 in float32")
        require(self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        require(self.loss_scale_factor > 1, "loss_scale_factor", self.loss_scale_factor, "above 1")
        require(
            0 < self.min_loss_scale <= self.init_loss_scale <= self.max_loss_scale,
            "init_loss_scale",
            self.init_loss_scale,
            f"between min_loss_scale={self.min_loss_scale:g} and max_loss_scale={self.max_loss_scale:g}",
        )
        largest = self.max_loss_scale * self.loss_scale_factor
        require(largest < 2.0**128, "max_loss_scale", self.max_loss_scale, "times loss_scale_factor below 3.4e38")
        parts = self.gradient_accumulation_steps
        allowed = f"a multiple of gradient_accumulation_steps={parts}"
        require(self.batch_size % parts == 0, "batch_size", self.batch_size, allowed)
        for name in ("lm_weight", "instruction_weight", "fact_weight"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")


RECOMPUTE = ("none", "attention", "feed_forward", "block", "whole")
PRECISIONS = ("float32", "float16", "bfloat16")
_TRAIN_CHOICES = {
    "lr_scheduler_type": ("cosine", "warmup_stable_decay", "constant"),
    "precision": PRECISIONS,
    "kernels": ("stock", "native"),
    "recompute": RECOMPUTE,
    "bucket_by": ("bytes", "size_groups", "parameter"),
    "optimizer_sharding": ("none", "zero1"),
    "optimizer_offload": ("none", "host", "disk"),
}


@settings
class RunConfig:
    """All settings of a run, as ``config.json`` and checkpoints hold them."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    init_from: str = ""  # a Hugging Face folder whose model and weights the run starts from; "" for fresh weights
    device: str = "CPU"

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values, JSON-ready; ``from_dict`` gives an equal config back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        """Read back what ``as_dict`` wrote. Raises SettingError for unknown names and wrong values."""
        rooms = {"data": DataConfig, "model": ModelConfig, "train": TrainConfig, "alarms": AlarmConfig}
        return cls(**{k: rooms[k](**v) if k in rooms else v for k, v in values.items()})


def fingerprint(*parts: Any) -> str:
    """Sixteen hex digits that name ``parts`` (configs, or anything JSON can hold)."""
    plain = [asdict(p) if hasattr(p, "__dataclass_fields__") else p for p in parts]
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=8).hexdigest()
