"""The compiled step holds each chunk's mask once, however many layers read it, forward and backward."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, workbench, mindspore as ms, numpy as np
from mindspore import ops
from workbench.config import ModelConfig
from workbench.model.transformer import Transformer

layers, window = map(int, sys.argv[1:])
config = ModelConfig(vocab_size=8, hidden_size=4, intermediate_size=4, num_hidden_layers=layers, num_attention_heads=2,
                     sliding_window=window)
model = Transformer(config, 0)

def loss(*batch):
    return ops.ReduceSum()(model(*batch))

zeros = np.zeros((1, 130), np.int32)  # two chunks
batch = zeros, np.arange(130, dtype=np.int32)[None], zeros + 1, zeros
ms.jit(ms.grad(loss, None, model.trainable_params()))(*map(ms.Tensor, batch))[0].asnumpy()
"""
TOP = Path(__file__).parents[1]


def operators(folder: Path, layers: int, window: int) -> dict[str, int]:
    """How often each operator stands in the graph that runs."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    environment = os.environ | {
        "PYTHONPATH": str(TOP),
        "MS_DEV_SAVE_GRAPHS": "1",
        "MS_DEV_SAVE_GRAPHS_PATH": str(folder / "graphs"),
        "MS_COMPILER_CACHE_ENABLE": "0",
    }
    command = [sys.executable, str(folder / "program.py"), str(layers), str(window)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    graph = max(folder.rglob("graph_build_*.ir"), key=lambda file: file.stat().st_size).read_text()
    found = re.findall(r"= (?:PrimFunc_)?(\w+)\(", graph)
    return {name: found.count(name) for name in found}


@pytest.mark.parametrize("window", [0, 5])
def test_the_number_of_masks_in_the_compiled_graph_does_not_depend_on_the_layers(tmp_path, window):
    few, many = (operators(tmp_path / str(layers), layers, window) for layers in (1, 3))
    assert many["Softmax"] == 3 * few["Softmax"] == 3 * 4, "two chunks, forward and backward"
    compared = {"LessEqual": 2, "Equal": 2, "LogicalAnd": 2}
    if window:
        compared |= {"Greater": 2, "LogicalAnd": 4}
    for name, count in compared.items():
        assert many[name] == few[name], name
        assert few[name] <= count + 2, f"{name}: more than a mask for each chunk"
