"""What can be known of the Ascend piece without Ascend: the installed MindSpore has it and holds what is asked."""

import inspect

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.dataset.dataloader import DataLoader, Dataset
from mindspore.parallel.auto_parallel import AutoParallel

from workbench.train.ascend_optimizer import kept_on_the_host, pinned_loader, sharded_by_the_engine


@pytest.mark.parametrize(
    ("callable", "names"),
    [
        (AutoParallel.hsdp, {"shard_size", "threshold", "optimizer_level"}),
        (AutoParallel.__init__, {"network", "parallel_mode"}),
        (ms.Parameter.__init__, {"device", "requires_grad", "name"}),
        (DataLoader.__init__, {"batch_size", "pin_memory"}),
    ],
)
def test_the_installed_mindspore_takes_these_arguments(callable, names):
    assert names <= set(inspect.signature(callable).parameters)


def test_sharding_is_asked_of_the_engine():
    sharded = sharded_by_the_engine(nn.Dense(4, 4), threshold_kb=8)
    assert isinstance(sharded, AutoParallel)
    held = (sharded._optimizer_weight_shard_size, sharded._parallel_optimizer_threshold, sharded._optimizer_level)
    assert held == (-1, 8, "level1")


def test_moments_carry_the_mark_of_the_host():
    weight = ms.Parameter(ms.Tensor(np.ones((2, 3), np.float32)), name="a.weight")
    (moment,) = kept_on_the_host([weight], "moment1")
    assert moment.name == "moment1.a.weight" and moment.shape == (2, 3) and not moment.asnumpy().any()
    assert moment._get_user_data("parameter_device") == "CPU" and weight._get_user_data("parameter_device") is None


def test_ready_batches_come_through_the_loader_as_they_are():
    class Batches(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return {"input_ids": np.full((2, 4), i, np.int32)}

    loader = pinned_loader(Batches())
    assert loader.pin_memory
    found = [np.asarray(batch["input_ids"]) for batch in loader]
    assert [f.shape for f in found] == [(2, 4)] * 3 and [int(f[0, 0]) for f in found] == [0, 1, 2]
