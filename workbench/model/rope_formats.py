"""Rotary settings as config.json holds them, both ways; and the two errors for a config.json.

Read are ``rope_theta`` with ``rope_scaling`` (``transformers`` 4, ``rope_type`` or ``type``) and
``rope_parameters`` (5), in the order of precedence of ``transformers.modeling_rope_utils``. Not
known: dynamic, longrope, other angles for other layers, a part of the head dimension only.
"""

import math
from typing import Any, Mapping

from workbench.errors import DataError
from workbench.model_config import ROPE_TYPES, RopeScaling


def rope_from_hf(found: Mapping[str, Any]) -> tuple[float, RopeScaling]:
    """rope_theta and the scaling of a config.json that has ``rope_theta`` and ``max_position_embeddings``.

    Raises DataError for what RopeScaling cannot say.
    """
    rope = found.get("rope_scaling") or found.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise refused("rope_scaling" if found.get("rope_scaling") else "rope_parameters", rope, "an object is needed")
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise refused("rope_parameters", rope, "the same for all layers")
    rope = {key: value for key, value in rope.items() if value is not None}
    theta = rope.get("rope_theta", found["rope_theta"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise refused("rope_type", kind, f"known are {', '.join(ROPE_TYPES)}")
    if rope.get("partial_rotary_factor", 1) != 1:
        raise refused("partial_rotary_factor", rope["partial_rotary_factor"], "allowed is 1")
    if kind == "default":
        return theta, RopeScaling()
    own: dict[str, Any] = {"rope_type": kind, "factor": need(rope, "factor")}
    if kind != "linear":
        inner = rope.get("original_max_position_embeddings", found["max_position_embeddings"])
        own["original_max_position_embeddings"] = found.get("original_max_position_embeddings", inner)
    if kind == "llama3":
        own |= {name: need(rope, name) for name in ("low_freq_factor", "high_freq_factor")}
    if kind == "yarn":
        own |= {k: rope[k] for k in ("beta_fast", "beta_slow", "attention_factor", "truncate") if k in rope}
        both = rope.get("mscale"), rope.get("mscale_all_dim")
        if all(both) and "attention_factor" not in rope and own["factor"] > 1:
            above, below = (0.1 * scale * math.log(own["factor"]) + 1 for scale in both)
            own["attention_factor"] = above / below
    return theta, RopeScaling(**own)


def rope_to_hf(scaling: RopeScaling) -> dict[str, Any]:
    """The keys of ``rope_scaling`` that its ``rope_type`` knows; ``transformers`` warns of others."""
    kind = scaling.rope_type
    if kind == "default":
        return {"rope_type": kind}
    values = {"rope_type": kind, "factor": scaling.factor}
    if kind != "linear":
        values["original_max_position_embeddings"] = scaling.original_max_position_embeddings
    if kind == "llama3":
        values |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    if kind == "yarn":
        values |= {n: getattr(scaling, n) for n in ("beta_fast", "beta_slow", "truncate")}
        values["attention_factor"] = scaling.attention_factor or None
    return {key: value for key, value in values.items() if value is not None}


def need(found: Mapping[str, Any], name: str) -> Any:
    """``found[name]``; DataError where config.json has no such key."""
    if name not in found:
        raise DataError(f"config.json has no {name}; the model cannot be built without it")
    return found[name]


def refused(key: str, value: Any, allowed: str) -> DataError:
    """The error for a key whose value ModelConfig cannot say."""
    return DataError(f"config.json: {key}={value!r} cannot be expressed: {allowed}")
