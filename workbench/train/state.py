"""What a training step changes: parameters, moments, and eight numbers.

    state = TrainState.fresh(model, config)
    weights, optimizer = state.arrays()        to a checkpoint
    state.load(weights, optimizer)             and back

Everything that decides the next step besides its batch is in here, the loss scale and the place in
the learning-rate schedule included, so a checkpoint of it is complete.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import TrainConfig
from workbench.device import ranks
from workbench.model.transformer import Transformer
from workbench.model.weights import check_fit, set_weights
from workbench.train.optimizers import make_optimizer

# The places of ``scalars``; whole numbers below 2^24, exact in float32, but for the scale.
SCALARS = (
    "updates",  # steps that were applied
    "loss_scale",  # of the next step
    "good_steps",  # in a row, since the scale last grew
    "overflows",  # steps that were skipped
    "patience",  # overflows left before the scale shrinks
    "overflows_in_row",
    "schedule_step",  # where the learning-rate schedule stands
    "frozen",  # 1: it stands still
)


@dataclass(frozen=True)
class TrainState:
    """Parameters in the model's order, the optimizer with its moments, and ``scalars`` (8,), see ``SCALARS``.

    MindSpore parameters, updated in place: the state given to a step is the state that comes out.
    """

    parameters: ms.ParameterTuple
    optimizer: nn.Cell  # one of ``optimizers.py``
    scalars: ms.Parameter

    @classmethod
    def fresh(cls, model: Transformer, config: TrainConfig, folder: Path | None = None) -> "TrainState":
        """The state before the first step: moments of zero, the initial loss scale.

        ``folder`` as in ``make_optimizer``.
        """
        parameters = ms.ParameterTuple(model.trainable_params())
        first = [0.0] * len(SCALARS)
        first[SCALARS.index("loss_scale")] = config.init_loss_scale
        first[SCALARS.index("patience")] = float(config.loss_scale_hysteresis)
        return cls(
            parameters,
            make_optimizer(parameters, config, *ranks(), folder),
            ms.Parameter(ms.Tensor(first, ms.float32), name="scalars"),
        )

    def numbers(self) -> dict[str, float]:
        """The scalars by name."""
        return dict(zip(SCALARS, self.scalars.asnumpy().tolist()))

    def freeze(self) -> None:
        """Hold the learning rate where it is: the schedule stands still until ``thaw``."""
        self._set(frozen=1.0)

    def thaw(self) -> None:
        """Let the schedule go on from where it was held."""
        self._set(frozen=0.0)

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(weights by name, optimizer arrays by name), copies on the host. With ZeRO-1 every rank has to call it."""
        weights = {p.name: p.asnumpy().copy() for p in self.parameters}
        return weights, self.optimizer.moments() | {"scalars": self.scalars.asnumpy().copy()}

    def load(self, weights: Mapping[str, np.ndarray], optimizer: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of another state into this one. Raises DataError for names or shapes that differ.

        Nothing has been written then.
        """
        shapes = {p.name: tuple(p.shape) for p in self.parameters}
        both = {f"{kind}.{name}": shape for kind in ("moment1", "moment2") for name, shape in shapes.items()}
        check_fit(shapes, weights)
        check_fit(both | {"scalars": tuple(self.scalars.shape)}, optimizer)
        moments = {name: values for name, values in optimizer.items() if name != "scalars"}
        set_weights([self.scalars], {name: values for name, values in optimizer.items() if name == "scalars"})
        set_weights(self.parameters, weights)
        self.optimizer.load(moments)

    def _set(self, **changed: float) -> None:
        ops.assign(self.scalars, ms.Tensor(list((self.numbers() | changed).values()), ms.float32))
