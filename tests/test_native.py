"""The setting for native kernels: losses of the whole model, what happens without a compiler, and the compiled file."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from step_runs import batch_of
from tiny_model import TINY

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.config import TrainConfig
from workbench.data.tokenizing import load_tokenizer
from workbench.device import use_device
from workbench.errors import SettingError
from workbench.model import native
from workbench.model.masks import document_positions
from workbench.model.native import build, native_kernels
from workbench.model.transformer import Transformer
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

SAID = native_kernels()[1]
needs_compiler = pytest.mark.skipif(native_kernels()[0] is None, reason=SAID)
LENGTH = 19
EVERYTHING = replace(
    TINY,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_qk_norm=True,
    sliding_window=5,
    max_window_layers=1,
    tie_word_embeddings=False,
)


@pytest.fixture
def fresh_answer():
    """``native_kernels`` asked anew, before and after."""
    native_kernels.cache_clear()
    yield
    native_kernels.cache_clear()


def packed_batch(seed):
    """Three rows: packed documents, one document, and padding at the end."""
    batch = batch_of(seed, 3, LENGTH)
    segments = np.ones((3, LENGTH), np.int32)
    segments[0, 7:], segments[2, 11:] = 2, 0
    batch |= {"segment_ids": segments, "position_ids": document_positions(segments)}
    for name, none in (("labels", -100), ("instruction_labels", -100), ("fact_targets", -1)):
        batch[name][segments == 0] = none
    return batch


def losses(kernels, steps=10, **settings):
    train = TrainConfig(**settings)
    model = Transformer(EVERYTHING, 0, train.precision, kernels=kernels)
    assert model.kernels == kernels
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    return [step(state, packed_batch(i % 4), 3e-3)[1]["loss"] for i in range(steps)]


@pytest.fixture(scope="module")
def stock_losses():
    return losses("stock")


@needs_compiler
@pytest.mark.parametrize(
    ("settings", "steps", "bound"),
    [({}, 10, 1e-5), ({"recompute": "block"}, 3, 1e-5), ({"precision": "float16"}, 3, 5e-3)],
)
def test_the_losses_are_the_stock_ones_also_recomputed_and_near_in_half_precision(settings, steps, bound, stock_losses):
    assert stock_losses[-1] < stock_losses[0] - 0.02
    np.testing.assert_allclose(losses("native", steps, **settings), stock_losses[:steps], atol=bound)


@needs_compiler
def test_decoding_gives_the_stock_logits():
    def logits(kernels):
        model = Transformer(EVERYTHING, 1, kernels=kernels)
        ids, places = ms.Tensor(np.array([[3, 1, 4]], np.int32)), ms.Tensor(np.array([[0, 1, 2]], np.int32))
        cache = tuple(ms.Tensor(np.zeros((2, 8, 4), np.float32)) for _ in range(4))
        return model.logits(model.decode(ids, places, ops.zeros_like(ids), cache)[0]).asnumpy()

    np.testing.assert_allclose(logits("native"), logits("stock"), atol=1e-6)


def test_the_choice_and_where_it_is_refused(monkeypatch):
    plain = Transformer(TINY, 0)
    assert (plain.kernels, plain.kernels_said) == ("stock", "MindSpore's operators")
    with pytest.raises(SettingError, match="kernels='fast'.*stock or native"):
        Transformer(TINY, 0, kernels="fast")
    monkeypatch.setattr(native.ms, "get_context", lambda name: "Ascend")
    with pytest.raises(SettingError, match="kernels='native'.*stock on Ascend"):
        Transformer(TINY, 0, kernels="native")


def test_a_run_asks_for_the_kernels_of_its_settings():
    from workbench.config import DataConfig, RunConfig
    from workbench.train.starting import starting_model

    config = RunConfig(data=DataConfig(sequence_length=16), model=TINY, train=TrainConfig(kernels="native"))
    model = starting_model(config, load_tokenizer(config.data.tokenizer), use_device("CPU"))[1]
    assert model.kernels == ("stock" if native_kernels()[0] is None else "native")


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (None, "no C++ compiler (nowhere-to-be-found): install g++ or set CXX"),
        ("case $1 in --version) echo 1;; *) echo 'x.cpp:3: error: no such flag' >&2; exit 1;; esac", "no such flag"),
        ("case $1 in --version) echo 2;; *) while [ $1 != -o ]; do shift; done; echo junk > $2;; esac", "loaded"),
    ],
)
def test_without_a_compiler_that_works_the_stock_operators_run_and_say_why(
    script, named, tmp_path, monkeypatch, fresh_answer
):
    compiler = tmp_path / "compiler"
    if script:
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler) if script else "nowhere-to-be-found")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = Transformer(TINY, 0, kernels="native")
    assert model.kernels == "stock" and "\n" not in model.kernels_said
    assert named in model.kernels_said


def test_a_cache_that_cannot_be_written_is_a_reason(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path, said = build.compiled_library()
    assert path is None and (str(tmp_path) in said or "no C++ compiler" in said)


@needs_compiler
def test_two_processes_at_once_leave_one_file_and_other_flags_another(tmp_path, monkeypatch):
    program = "import runpy; print(runpy.run_path('workbench/model/native/build.py')['compiled_library']()[0])"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[0].strip() for process in both}
    (path,) = (tmp_path / "workbench").iterdir()
    assert said == {str(path)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = path.stat().st_mtime_ns
    assert build.compiled_library()[0] == path and path.stat().st_mtime_ns == made
    monkeypatch.setattr(build, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS))
    assert build.compiled_library()[0] != path
