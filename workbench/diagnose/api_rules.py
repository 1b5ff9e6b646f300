"""What MindSpore 2.10 does not have, has under another name, or does wrongly: the table of the lint.

Every row was tried on 2.10.0; a test asks the installed version whether the rows that say a name
or keyword is absent are still true. "On the CPU" marks a fact about that backend only. Costs
nothing; it imports nothing of MindSpore and finds nothing itself (``api_check.py`` does).
"""

from dataclasses import dataclass

LINT_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Advice:
    """One rule: its stable ``rule`` name, ``severity`` (one of LINT_SEVERITIES), ``what`` is so, what ``instead``."""

    rule: str
    severity: str
    what: str
    instead: str


@dataclass(frozen=True, order=True)
class LintFinding:
    """An Advice at a place; ``line`` and ``column`` count from 1. Sorts by file, line, column."""

    file: str
    line: int
    column: int
    rule: str
    severity: str
    what: str
    instead: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.severity} {self.rule}: {self.what}; instead {self.instead}"


# Qualified name -> what to use. Each raises AttributeError or ImportError.
ABSENT = {
    "mindspore.ms_function": "mindspore.jit",
    "mindspore.hooks": "register_forward_hook of the Cell",
    "mindspore.save": "mindspore.save_checkpoint",
    "mindspore.set_offload_context": "mindspore.recompute or saved_tensors_hooks",
    "mindspore.amp.DynamicLossScaleUpdateCell": "mindspore.nn.DynamicLossScaleUpdateCell or amp.DynamicLossScaler",
    "mindspore.dataset.CustomReplaceOp": "a Python function in map(), chosen by a hash of the text",
    "mindspore.dataset.TextFileDataset.use_sampler": "TextFileDataset(num_shards=, shard_id=)",
    "mindspore.dataset.Dataset.to_device": "nothing (prefetch_size buffers), or device_que() to sink the data",
    "mindspore.mint.nn.utils": "ops.clip_by_global_norm",
    "mindspore.mint.nn.functional.scaled_dot_product_attention": "BatchMatMul, mask, Softmax",
    "mindspore.nn.RMSNorm": "a Cell of your own",
    "mindspore.nn.transformer": "attention cells of your own",
    "mindspore.ops.GradOperation.set_grad": "mindspore.value_and_grad; set_grad belongs to Cell",
    "mindspore.ops.Mult": "ops.Mul",
    "mindspore.ops.Recompute": "Cell.recompute() once, or mindspore.recompute(cell, *inputs)",
    "mindspore.ops.scaled_dot_product_attention": "BatchMatMul, mask, Softmax",
    "mindspore.ops.Where": "ops.where or ops.select",
}
# (Callee, keyword) -> what to use. Each raises TypeError.
NO_KEYWORD = {
    ("mindspore.dataset.DistributedSampler", "seed"): "mindspore.dataset.config.set_seed, the same on all ranks",
    ("mindspore.dataset.TextFileDataset", "sampler"): "num_shards= and shard_id=",
    ("mindspore.nn.AdamWeightDecay", "allreduce_fusion_config"): "set_auto_parallel_context(comm_fusion=...)",
    ("mindspore.nn.AdamWeightDecay", "offload_device"): "nn.Adam(use_offload=True) in GRAPH_MODE",
    ("mindspore.nn.AdamWeightDecay", "offload_param"): "nn.Adam(use_offload=True) in GRAPH_MODE",
    ("mindspore.nn.TrainOneStepWithLossScaleCell", "scale_update_cell"): "scale_sense=",
}
REQUIRED = {"mindspore.nn.DynamicLossScaleUpdateCell": ("loss_scale_value", "scale_factor", "scale_window")}
_NO_OPTIMISER = Advice(
    "mint-optimiser",
    "error",
    "on the CPU mint.optim.SGD and Adam run in PyNative without changing a weight, AdamW and FusedAdamW have no kernel",
    "nn.SGD, nn.Adam or mindspore.experimental.optim.AdamW",
)
_LOSS = Advice(
    "decomposed-loss",
    "warning",
    "cross_entropy is taken apart into operators: a quarter more time and 0.9 GB more in a step of 2048 tokens",
    "ops.SparseSoftmaxCrossEntropyWithLogits",
)
_ZERO_MEMORY = Advice(
    "memory-is-zero", "warning", "on the CPU this always returns 0", "the allocator's peak (memory_statistics), or RSS"
)
_NO_KERNEL = ("no-cpu-kernel", "note", "there is no kernel on the CPU, only on the device")
_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats")
# Qualified name -> what is wrong with it although it exists.
PRESENT = {
    "mindspore.mint.optim": _NO_OPTIMISER,
    "mindspore.nn.AdamWeightDecay": Advice(
        "no-bias-correction",
        "warning",
        "this has no bias correction, its first step is 3.2 times that of AdamW",
        "mindspore.experimental.optim.AdamW, or a learning rate that corrects",
    ),
    "mindspore.nn.CrossEntropyLoss": _LOSS,
    "mindspore.ops.cross_entropy": _LOSS,
    **{f"mindspore.{module}.{name}": _ZERO_MEMORY for module in ("runtime", "hal") for name in _MEMORY},
    **{
        f"mindspore.{name}": Advice(*_NO_KERNEL, instead)
        for name, instead in {
            "nn.TrainOneStepWithLossScaleCell": "amp.DynamicLossScaler and amp.all_finite, which run on both",
            "ops.FloatStatus": "amp.all_finite",
            "ops.NPUGetFloatStatus": "amp.all_finite",
            "ops.flash_attention_score": "BatchMatMul, mask, Softmax on the CPU",
            "ops.rms_norm": "square, mean, rsqrt on the CPU",
            "ops.rotary_position_embedding": "mul and add on the CPU",
            "ops.swiglu": "ops.silu and a product on the CPU",
        }.items()
    },
}
DEAD_IN_PLACE = ("add_", "div_", "exp_", "floor_divide_", "mul_", "remainder_", "sub_")
RAISING_IN_PLACE = ("clamp_", "fill_", "floor_", "log_", "masked_fill_", "normal_", "sigmoid_", "sign_", "tanh_")
RAISING_IN_PLACE += ("scatter_add_", "index_add_", "uniform_", "zero_")
