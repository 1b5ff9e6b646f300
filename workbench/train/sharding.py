"""ZeRO-1: every rank keeps the moments of its own part of the parameters and updates only that part.

    N elements of a bucket, filled up with zeros to a multiple of R ranks    n = N / R, a rank's own slice

    gradients (N,) of a bucket    summed over the ranks (AllReduce), own slice kept (n,)
    own slice of the weights      updated with moments (n,) that no other rank has
    weights (N,)                  put together again from all ranks (AllGather)

(Rajbhandari et al. 2020, "ZeRO", section 5.1; stage 1 shards the optimizer's state.) It is sharding
over ranks and has nothing to do with offload to the host, which ``offload.py`` does. The buckets
are those of ``reducing.py``, made for decayed and undecayed parameters apart.

Against the plain optimizer every update is the same to the bit as long as the gradient norm is: the
kernel treats each element alike wherever it lies, and a sum over two ranks has one order. The norm
is summed by slices instead of by parameters, so it differs in its last bits; that reaches the
weights only in steps that are clipped, as a relative difference of some 1e-7 of the update.

Memory a rank holds: 8 N / R bytes of moments instead of 8 N, and 4 N / R for its slices of the
weights, because the kernel updates a Parameter and nothing smaller. Costs in time: the AllReduce of
plain data parallelism (the CPU has no ReduceScatter, which would halve it), and an AllGather and a
copy of all weights more. Not here: sharded gradients (stage 2) or weights (stage 3).
"""

from typing import Mapping

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import TrainConfig
from workbench.model.weights import check_fit
from workbench.train.optimizing import Kernel, decays, sum_of_squares
from workbench.train.reducing import plan_of


class ShardedAdamW(nn.Cell):
    """AdamW whose moments are spread over ``world`` ranks; the protocol of ``optimizing.py``.

    ``moments`` and ``load`` deal in whole arrays, the same for any number of ranks; ``moments`` is a
    collective: every rank has to call it.
    """

    on_host = False

    def __init__(self, parameters: ms.ParameterTuple, config: TrainConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__()
        self.weights, self.kernel = parameters, Kernel(config)
        groups, decay = [], []
        for decayed in (True, False):
            chosen = [i for i, p in enumerate(parameters) if decays(p.name, p.ndim) == decayed]
            for bucket in plan_of([parameters[i] for i in chosen], config):
                groups.append(tuple(chosen[i] for i in bucket.indices))
                decay.append(config.weight_decay if decayed else 0.0)
        self.groups, self.decay = tuple(groups), tuple(decay)
        self.sizes = tuple(p.size for p in parameters)
        self.shapes = tuple(tuple(p.shape) for p in parameters)
        totals = [sum(self.sizes[i] for i in group) for group in groups]
        own = tuple(-(-total // world) for total in totals)
        self.filling = tuple(n * world - total for n, total in zip(own, totals))
        self.bounds = tuple((rank * n, rank * n + n) for n in own)
        self.slices = _zeros("slice", own)
        self.moment1, self.moment2 = _zeros("moment1", own), _zeros("moment2", own)
        self.several = world > 1
        if self.several:
            self.all_reduce, self.all_gather = ops.AllReduce(), ops.AllGather()

    def reduced(self, gradients):
        """This rank's slices (n,) of the gradients summed over the ranks, one for each bucket."""
        kept = ()
        for i in range(len(self.groups)):
            flat = self.flat(gradients, i)
            flat = self.all_reduce(flat) if self.several else flat
            kept += (flat[self.bounds[i][0] : self.bounds[i][1]],)
        return kept

    def square_sum(self, gradients):
        """() sum of the squares of all ``reduced`` gradients of all ranks, the same on every rank."""
        total = sum_of_squares(gradients)
        return self.all_reduce(ops.reshape(total, (1,)))[0] if self.several else total

    def construct(self, gradients, factor, learning_rate, updates, apply):
        """Update in place from ``reduced`` gradients times ``factor``, where ``apply`` is 1.0; () tensors."""
        numbers = self.kernel.numbers(learning_rate, updates, apply)
        for i in range(len(self.groups)):
            part = self.slices[i]
            # From the weights in each step: a copy kept beside them would be wrong after every load.
            written = ops.assign(part, self.flat(self.weights, i)[self.bounds[i][0] : self.bounds[i][1]])
            # The compiler orders neither this kernel after an assignment nor a read after this kernel.
            gradient = ops.depend(gradients[i], written)
            done = self.kernel(part, self.moment1[i], self.moment2[i], gradient, factor, self.decay[i], numbers)
            # The Parameter, not what the kernel returns: its outputs are memory that it never writes.
            updated = ops.depend(part, done)
            whole = self.all_gather(updated) if self.several else updated
            start = 0
            for place in self.groups[i]:
                end = start + self.sizes[place]
                ops.assign(self.weights[place], ops.reshape(whole[start:end], self.shapes[place]))
                start = end
        return ()

    def flat(self, arrays, bucket):
        """(N,) the arrays of a bucket one after the other, filled up with zeros."""
        parts = [ops.reshape(arrays[place], (-1,)) for place in self.groups[bucket]]
        if self.filling[bucket]:
            parts = parts + [ops.zeros((self.filling[bucket],), ms.float32)]
        return ops.concat(parts) if len(parts) > 1 else parts[0]

    def moments(self) -> dict[str, np.ndarray]:
        """Both moments, whole, as ``moment1.NAME`` and ``moment2.NAME``; copies on the host. Call it on every rank."""
        found = {}
        for kind, parts in (("moment1", self.moment1), ("moment2", self.moment2)):
            for group, part in zip(self.groups, parts):
                whole = (self.all_gather(part) if self.several else part).asnumpy()
                ends = np.cumsum([self.sizes[place] for place in group])
                for place, piece in zip(group, np.split(whole, ends)):
                    found[f"{kind}.{self.weights[place].name}"] = piece.reshape(self.shapes[place]).copy()
        return {f"{kind}.{p.name}": found[f"{kind}.{p.name}"] for kind in ("moment1", "moment2") for p in self.weights}

    def load(self, moments: Mapping[str, np.ndarray]) -> None:
        """Take over this rank's part of whole moments. Raises DataError for names or shapes that differ."""
        check_fit(
            {f"{kind}.{p.name}": tuple(p.shape) for kind in ("moment1", "moment2") for p in self.weights}, moments
        )
        for kind, parts in (("moment1", self.moment1), ("moment2", self.moment2)):
            for group, filling, (start, end), part in zip(self.groups, self.filling, self.bounds, parts):
                pieces = [moments[f"{kind}.{self.weights[place].name}"].ravel() for place in group]
                whole = np.concatenate([*pieces, np.zeros(filling, np.float32)])
                ops.assign(part, ms.Tensor(whole[start:end], ms.float32))

    def resident_bytes(self) -> dict[str, int]:
        """Bytes of this rank's moments by where they are kept: ``device``, ``host``, ``disk``."""
        return {"device": sum(p.size * 4 for p in (*self.moment1, *self.moment2)), "host": 0, "disk": 0}


def _zeros(name: str, sizes: tuple[int, ...]) -> ms.ParameterTuple:
    """Parameters (n,) of zeros for ``sizes`` n."""
    made = [ms.Parameter(ms.Tensor(np.zeros(n, np.float32)), name=f"{name}.{i}") for i, n in enumerate(sizes)]
    return ms.ParameterTuple(made)
