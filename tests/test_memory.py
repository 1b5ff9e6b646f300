"""Memory of a step: what the allocator says, that nothing leaks, and that a leak would be seen."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.errors import SettingError, UserError
from workbench.model.transformer import Transformer
from workbench.train.budget import parameter_count
from workbench.train.memory import measure_memory, recompute_arms

WIDE = replace(TINY, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
TRAIN = TrainConfig(batch_size=8)
SPARSE = dict(num_experts=4, num_hidden_layers=3, mlp_only_layers=(1,), shared_expert_intermediate_size=8)


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        WIDE,
        replace(TINY, tie_word_embeddings=False),
        replace(TINY, head_dim=6, attention_bias=True, attention_output_bias=True, mlp_bias=True, use_qk_norm=True),
        replace(TINY, norm_type="layer_norm"),
        replace(TINY, **SPARSE),
    ],
)
def test_parameters_are_counted_as_the_model_has_them(config):
    assert parameter_count(config) == sum(p.size for p in Transformer(config, seed=0).trainable_params())


def test_recompute_lowers_the_measured_peak():
    arms, traces = recompute_arms(WIDE, TRAIN, 64, rounds=1, kinds=("none", "block"))
    assert arms["block"].peak_mb < 0.8 * arms["none"].peak_mb
    for kind, trace in traces.items():
        assert arms[kind].peaks_mb == (trace.peak_mb,) and len(trace.step_seconds) > 1
        assert trace.peak_mb == pytest.approx(trace.allocated_mb.max())
        assert (trace.seconds[1:] >= trace.seconds[:-1]).all() and len(trace.seconds) == len(trace.allocated_mb)
        # Weights and moments are not in the allocator: between steps it is all but empty.
        assert trace.allocated_mb[len(trace.allocated_mb) // 2 :].min() < 0.2 < trace.state_mb


def test_a_measurement_that_fails_says_why():
    with pytest.raises(UserError, match="the memory measurement failed"):
        measure_memory(replace(TINY, max_position_embeddings=8), TRAIN, 16)
    with pytest.raises(SettingError, match="rounds=0 is not allowed"):
        recompute_arms(TINY, TRAIN, 16, rounds=0)


STEPS, WARM = 200, 60
LEAK = 100_000  # bytes a step that the planted leak keeps; the smallest of a layer's arrays here is 131,072
RUN = f"""
import json, sys
import numpy as np, psutil
import workbench
from workbench.config import ModelConfig, TrainConfig
from workbench.data.sources import random_batch
from workbench.device import use_device
from workbench.model.transformer import Transformer
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

use_device("CPU")
config = ModelConfig(**json.loads(sys.argv[1]))
process, found = psutil.Process(), {{}}
batch = random_batch(np.random.default_rng(0), 8, 64, config.vocab_size)

def resident(step, state, keep):
    sizes, kept = [], []
    for _ in range({STEPS}):
        step(state, batch, 1e-3)
        kept += [np.ones({LEAK}, np.uint8)] if keep else []
        sizes.append(process.memory_info().rss)
    return sizes

for kind in ("none", "block"):
    model, train = Transformer(config, 0), TrainConfig(recompute=kind)
    step, state = TrainStep(model, train), TrainState.fresh(model, train)
    found[kind] = resident(step, state, False)
found["planted"] = resident(step, state, True)
print(json.dumps(found))
"""


def slope(sizes: list[int]) -> float:
    """Bytes a step after the warm-up: the median over pairs half the run apart, which single jumps do not move."""
    after = np.asarray(sizes[WARM:], float)
    half = len(after) // 2
    return float(np.median((after[half : 2 * half] - after[:half]) / half))


@pytest.mark.skipif(sys.platform != "linux", reason="the resident size is read from /proc")
def test_two_hundred_steps_keep_nothing_on_the_host():
    """A tensor a layer a step, as kept by a recompute reported for MindSpore, would be at least 262,144 bytes."""
    model = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 64}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(model)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    slopes = {kind: slope(sizes) for kind, sizes in json.loads(done.stdout.splitlines()[-1]).items()}
    assert slopes["planted"] > 0.7 * LEAK, slopes
    assert abs(slopes["none"]) < 0.2 * LEAK and abs(slopes["block"]) < 0.2 * LEAK, slopes
