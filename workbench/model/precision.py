"""Which type each part of a model and its training is computed in, and which types a device has.

    check_precision("bfloat16", use_device("CPU"))     refused in one line, before anything starts
    for row in precision_table("float16", config): print(row)

``precision`` names the type of the matrix products; everything else is float32 (Micikevicius et al.
2018, sections 3.1 and 3.3). A product takes both operands cast to the type, and its result is cast
back. So float16 and bfloat16 save time where the device is faster in them, and the memory of the
casted copies is spent on top: weights, moments and gradients are kept in float32.

    float16     11 bits of mantissa, 6e-8 to 65,504: needs a loss scale
    bfloat16     8 bits of mantissa, float32's range: needs none (Kalamkar et al. 2019); only on
                 Ascend, where it has not been run. ``rounding.py`` shows its rounding on a CPU.

tests/test_precision.py runs the model and compares every row of the table with the types it sees.
"""

from dataclasses import dataclass

from workbench.config import PRECISIONS, ModelConfig
from workbench.device import DEVICES, Device
from workbench.errors import SettingError, unknown_name


@dataclass(frozen=True)
class Kept:
    """One row of the table: a part, the type it is computed or kept in, and why."""

    part: str
    dtype: str
    why: str

    def __str__(self) -> str:
        return f"{self.part:<28} {self.dtype:<9} {self.why}"


def needs_loss_scale(precision: str) -> bool:
    """Whether gradients of ``precision`` vanish without one: the smallest float16 is 6e-8."""
    return precision == "float16"


def check_precision(precision: str, device: Device) -> None:
    """Raise SettingError unless ``device`` multiplies matrices in ``precision``, with the attention kernel it uses."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    allowed = " or ".join(t for t in device.matmul_dtypes if not device.flash_attention or t != "float32")
    if precision in allowed.split(" or "):
        return
    if precision in device.matmul_dtypes:
        raise SettingError(f"precision={precision!r} is not allowed: flash attention needs {allowed}")
    others = [other.name for other in DEVICES.values() if precision in other.matmul_dtypes]
    raise SettingError(
        f"precision={precision!r} cannot be computed on {device.name}: set precision to {allowed}, "
        f"or device to {' or '.join(others)}"
    )


def precision_table(precision: str, config: ModelConfig) -> tuple[Kept, ...]:
    """What ``Transformer(config, seed, precision)`` and ``TrainStep`` compute and keep in which type."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    fast = "the bulk of the operations"
    rows = [
        ("projections", precision, f"{fast}; operands and result, sums inside as the kernel does"),
        ("attention products", precision, f"{fast}; query key^T and probabilities value"),
        ("output head", precision, f"{fast} where the vocabulary is large"),
        ("key/value cache", precision, "what decoding reads most"),
        ("parameters", "float32", "an update is often below half a rounding step of the weight"),
        ("gradients", "float32", "unscaled, summed over ranks and parts, and clipped without rounding"),
        ("moments", "float32", "squares of gradients leave float16's range"),
        ("loss scale", "float32", "and the other numbers of the state; its powers of two are exact"),
        ("embeddings", "float32", "a table is read, not multiplied"),
        ("rotary tables", "float32", "an angle's error grows with the position"),
        ("residual stream", "float32", "many small additions to a large sum"),
        ("norms", "float32", "in float16 the square of 256 is infinite"),
        ("masks and softmax", "float32", "sums of exponentials over the row"),
        ("silu and gate", "float32", "between two products, element by element"),
        ("logits and loss", "float32", "a difference of large numbers, summed over all tokens"),
        ("task and fact heads", "float32", "a few outputs, no cost"),
    ]
    if config.sparse_layers:
        rows.insert(3, ("experts' products", precision, fast))
        rows.append(("router", "float32", "rounding would change which expert is chosen"))
    return tuple(Kept(*row) for row in rows)
