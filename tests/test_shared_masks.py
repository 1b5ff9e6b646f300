"""The compiled step holds each chunk's mask once, however many layers read it, forward and backward."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, workbench, mindspore as ms, numpy as np
from mindspore import ops
from workbench.model.attend import LeanAttend

layers, window = map(int, sys.argv[1:])
cells = [LeanAttend(1, 1, window, 4) for _ in range(layers)]

def loss(x, positions, segments):
    for cell in cells:
        x = cell(x, x, x, positions, segments)
    return ops.ReduceSum()(x)

segments = ms.Tensor(np.ones((1, 8), np.int32))  # two chunks
positions = ms.Tensor(np.arange(8, dtype=np.int32)[None])
ms.jit(ms.grad(loss))(ms.Tensor(np.ones((1, 8, 2), np.float32)), positions, segments).asnumpy()
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
        "MS_DEV_DUMP_IR_PASSES": "graph_build",
        "MS_COMPILER_CACHE_ENABLE": "0",
    }
    command = [sys.executable, str(folder / "program.py"), str(layers), str(window)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    graph = max(folder.rglob("graph_build_*.ir"), key=lambda file: file.stat().st_size).read_text()
    found = re.findall(r"= (?:PrimFunc_)?(\w+)\(", graph)
    return {name: found.count(name) for name in found}


def test_the_number_of_masks_in_the_compiled_graph_does_not_depend_on_the_layers(tmp_path):
    """Counted without the copies for all heads, which every layer makes and drops."""
    few, many = (operators(tmp_path / str(layers), layers, 5) for layers in (1, 3))
    assert many["Softmax"] == 3 * few["Softmax"] == 3 * 4, "two chunks, forward and backward"
    for name, count in {"LessEqual": 2, "Greater": 2, "LogicalAnd": 4}.items():
        assert many[name] == few[name] == count, name
