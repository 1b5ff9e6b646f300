"""What a run says of itself when it begins or goes on: the ``start`` and ``resume`` events."""

import os
import socket
from typing import Any, Mapping, Sequence

from workbench.config import RunConfig, fingerprint
from workbench.model.transformer import Transformer
from workbench.run_folder import RunFolder
from workbench.train.state import TrainState


def log_beginning(
    run: RunFolder,
    config: RunConfig,
    model: Transformer,
    state: TrainState,
    data: str,
    ranks: int,
    at: int | None,
    changes: Sequence[Mapping[str, Any]],
) -> None:
    """Log ``start``, or, from a checkpoint of step ``at``, ``resume`` with ``changes``, what differs from then.

    ``data`` is the fingerprint of the corpus. With ``pid`` and ``host`` a reader can tell a dead run.
    """
    facts = {
        "steps": config.train.steps,
        "parameters": sum(p.size for p in state.parameters),
        "ranks": ranks,
        "kernels": _kernels(model, config),
        "moments": state.optimizer.resident_bytes(),
        "data": data,
        "settings": fingerprint(config.as_dict()),
        "pid": os.getpid(),
        "host": socket.gethostname(),
    }
    if at is None:
        run.log_event("start", **facts)
    else:
        run.log_event("resume", step=at, changes=list(changes), **facts)


def _kernels(model: Transformer, config: RunConfig) -> str:
    """What the model computes with, for the log."""
    stock = model.kernels == "native" and config.train.recompute != "none"
    return model.kernels_said + ("; what is recomputed, by MindSpore's operators" if stock else "")
