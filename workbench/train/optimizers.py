"""Which optimizer a configuration asks for: plain, sharded over the ranks, or with its moments off the device.

    optimizer = make_optimizer(parameters, config, *ranks())

All offer the protocol of ``optimizing.py`` and the same ``moments``, so a checkpoint of one is a
checkpoint of any. Costs nothing; each file says what its optimizer costs.
"""

from pathlib import Path

import mindspore as ms
from mindspore import nn

from workbench.config import TrainConfig
from workbench.errors import SettingError
from workbench.train.offload import OffloadedAdamW
from workbench.train.optimizing import AdamW
from workbench.train.sharding import ShardedAdamW


def make_optimizer(
    parameters: ms.ParameterTuple, config: TrainConfig, rank: int = 0, world: int = 1, folder: Path | None = None
) -> nn.Cell:
    """The optimizer of ``config``; ``folder`` is where moments on disk go (None: a temporary folder).

    Raises as ``check_optimizer``, and DataError for a folder that cannot hold them.
    """
    check_optimizer(config)
    if config.optimizer_sharding != "none":
        return ShardedAdamW(parameters, config, rank, world)
    if config.optimizer_offload != "none":
        return OffloadedAdamW(parameters, config, world, folder)
    return AdamW(parameters, config, world)


def check_optimizer(config: TrainConfig) -> None:
    """Raises SettingError for sharding and offload together."""
    if config.optimizer_sharding != "none" and config.optimizer_offload != "none":
        raise SettingError(
            f"optimizer_sharding={config.optimizer_sharding!r} with optimizer_offload={config.optimizer_offload!r} "
            "is not built: set one of the two to 'none'"
        )
