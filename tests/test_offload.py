"""Moments on the host or on disk: the same weights to the bit, less memory on the device, errors in one line."""

import os
import resource
from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from optimizer_arms import SHAPES, STEPS, STOP, Arm, differing
from peak_memory import peak_mb
from step_runs import CONFIG, TRAIN, batch_of

from workbench.diagnose.graphlint import lint
from workbench.errors import DataError, SettingError
from workbench.model.transformer import Transformer
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

ELEMENTS = sum(int(np.prod(s)) for s in SHAPES.values())
# Two buffers for the shape that occurs three times, one for each of the others.
STAGED = ELEMENTS - 6 * 7


@pytest.fixture(scope="module")
def plain():
    return Arm().run().arrays()


@pytest.mark.parametrize("place", ["host", "disk"])
def test_the_weights_and_moments_are_those_of_the_plain_optimizer_to_the_bit(plain, place, tmp_path):
    arm = Arm(optimizer_offload=place, folder=tmp_path).run()
    assert arm.updates == STEPS - 1, "one overflow"
    assert differing(plain, arm.arrays()) == []
    expected = {"device": 8 * STAGED, "host": 0, "disk": 0} | {place: 8 * ELEMENTS}
    assert arm.optimizer.resident_bytes() == expected
    assert list(tmp_path.iterdir()) == [], "nothing is left in the folder, not even while it is in use"


def test_a_checkpoint_goes_from_plain_to_offloaded_and_back(plain):
    first = Arm().run(0, STOP)
    second = Arm(optimizer_offload="host").load(first.arrays(), first.updates).run(STOP, STOP + 6)
    third = Arm().load(second.arrays(), second.updates).run(STOP + 6, STEPS)
    assert differing(plain, third.arrays()) == []


def test_the_compiled_step_leaves_the_update_to_the_host():
    """Twenty steps, two parts each, the eighth overflows."""
    found = []
    for place in ("none", "host"):
        train = replace(TRAIN, gradient_accumulation_steps=2, optimizer_offload=place)
        model = Transformer(replace(CONFIG, num_hidden_layers=1), seed=0)
        state, step = TrainState.fresh(model, train), TrainStep(model, train)
        told = []
        for i in range(20):
            state, metrics = step(state, batch_of(i) | ({"loss_factor": np.inf} if i == 7 else {}))
            told.append((metrics["loss"], metrics["overflow"]))
        weights, optimizer = state.arrays()
        found.append((told, weights | optimizer))
    assert [overflow for _, overflow in found[0][0]] == [0] * 7 + [1] + [0] * 12
    assert found[0][0] == found[1][0] and differing(found[0][1], found[1][1]) == []


def test_what_is_staged_is_written_through_the_view_of_a_parameter():
    """The one thing the CPU has to do for this to work, also after a compiled function has written there."""
    parameter = ms.Parameter(ms.Tensor(np.zeros(5, np.float32)), name="written_through")
    ms.ops.assign(parameter, ms.Tensor(np.ones(5, np.float32)))
    parameter.asnumpy()[2] = 7
    assert (parameter + 0).asnumpy().tolist() == [1, 1, 7, 1, 1]


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import mindspore as ms, numpy as np
from workbench.device import use_device
use_device("CPU")
from workbench.config import TrainConfig
from workbench.train.optimizers import make_optimizer
from optimizer_arms import _update
shapes = {{f"layers.{{i}}.weight": (1024, 2048) for i in range(6)}}
made = ms.ParameterTuple([ms.Parameter(ms.Tensor(np.ones(s, np.float32)), name=n) for n, s in shapes.items()])
optimizer = make_optimizer(made, TrainConfig(optimizer_offload={place!r}))
if not optimizer.on_host:
    # Made from host arrays, they would be outside of the allocator in this arm alone.
    for moment in (*optimizer.moment1, *optimizer.moment2):
        moment.set_data(ms.ops.zeros(moment.shape, ms.float32))
update = ms.jit(_update(optimizer, 1.0))
gradients = [ms.Tensor(np.ones(s, np.float32)) for s in shapes.values()]
for step in range(2):
    left = update(*gradients, ms.Tensor(1e-3, ms.float32), ms.Tensor(float(step), ms.float32))
    if optimizer.on_host:
        optimizer.apply(left[2:])
    del left
made[0].asnumpy()
anonymous = [line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")]
open({told!r}, "w").write(anonymous[0])
"""


def test_the_allocators_peak_is_lower_by_the_moments_that_are_not_staged(tmp_path):
    """Six matrices of 8 MiB: 96 MiB of moments, of which buffers for 32 stay; the gradients come out besides."""
    tests, told, peaks, anonymous = os.path.dirname(__file__), str(tmp_path / "told"), {}, {}
    for place in ("none", "host", "disk"):
        peaks[place] = peak_mb(PROGRAM.format(tests=tests, place=place, told=told), tmp_path)
        anonymous[place] = int((tmp_path / "told").read_text()) / 1024
    assert peaks["none"] - peaks["host"] > 40 and peaks["host"] == peaks["disk"], peaks
    assert anonymous["host"] - anonymous["disk"] > 60, "what is on disk is no memory of the process"


def test_a_folder_that_is_not_there_and_a_disk_that_is_full_are_told_in_one_line(tmp_path):
    with pytest.raises(DataError, match="cannot hold 0.0 MiB of moments: No such file or directory; give another"):
        Arm(optimizer_offload="disk", folder=tmp_path / "absent")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(DataError, match="moments: File too large; give another folder, or set optimizer_offload"):
            Arm(optimizer_offload="disk", folder=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_later_is_told_at_the_next_use(tmp_path):
    arm = Arm(optimizer_offload="disk", folder=tmp_path).run(0, 1)
    arm.optimizer.moments()

    def failing():
        raise OSError(5, "Input/output error")

    arm.optimizer.flushing = arm.optimizer.link.submit(failing)
    with pytest.raises(DataError, match="the moments cannot be written: Input/output error; give a folder on another"):
        arm.run(1, 2)


def test_moments_that_do_not_fit_are_refused_and_nothing_is_written():
    arm = Arm(optimizer_offload="host").run(0, 2)
    before = arm.arrays()
    with pytest.raises(DataError, match="moment1.norm.weight has shape"):
        arm.optimizer.load(arm.optimizer.moments() | {"moment1.norm.weight": np.zeros((2, 2), np.float32)})
    assert differing(before, arm.arrays()) == []


def test_sharding_and_offload_together_and_other_devices_are_refused(monkeypatch):
    with pytest.raises(SettingError, match="optimizer_sharding='zero1' with optimizer_offload='disk' is not built"):
        Arm(optimizer_sharding="zero1", optimizer_offload="disk")
    monkeypatch.setattr(ms, "get_context", lambda name: "Ascend")
    with pytest.raises(SettingError, match="optimizer_offload='host' works on the CPU only"):
        Arm(optimizer_offload="host")


def test_the_articles_calls_are_found_by_the_lint():
    """Its section 4.2: keywords that do not exist, a loss-scale cell from the wrong module, to_device."""
    source = """
import mindspore.dataset as ds
from mindspore import nn
from mindspore.amp import DynamicLossScaleUpdateCell
optimizer = nn.AdamWeightDecay(params=[], learning_rate=1e-3, offload_param=True, offload_device="cpu")
train_network = nn.TrainOneStepWithLossScaleCell(
    network=None, optimizer=optimizer, scale_update_cell=DynamicLossScaleUpdateCell(loss_scale_value=1024)
)
train_dataset = ds.TextFileDataset("a.txt")
train_dataset = train_dataset.batch(batch_size=16, drop_remainder=True)
train_dataset = train_dataset.to_device()
"""
    found = [str(finding) for finding in lint(source, "article.py")]
    for wanted in (
        "offload_param",
        "offload_device",
        "amp.DynamicLossScaleUpdateCell",
        "scale_update_cell",
        "to_device",
    ):
        assert any(wanted in line for line in found), (wanted, found)
