"""Values that cannot work are refused before any notebook starts."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from workbench.check_cells import try_checks
from workbench.errors import DataError, SettingError
from workbench.jobs import plan

CHECK = "from workbench.config import TrainConfig\nconfig = TrainConfig(recompute=KIND, batch_size=ROWS)"


def notebook(check=CHECK, kind="none"):
    cells = [new_code_cell(f'KIND = "{kind}"  # what\nROWS = 4  # rows', metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(check, metadata={"tags": ["check"]}), new_code_cell("raise SystemExit('not run here')")]
    return new_notebook(cells=cells)


def test_a_check_sees_given_values_and_defaults_and_runs_nothing_else():
    try_checks(notebook(), {}, "a.ipynb")
    try_checks(notebook(), {"KIND": "block"}, "a.ipynb")
    with pytest.raises(SettingError, match="a.ipynb: recompute='all' is not allowed: none, attention"):
        try_checks(notebook(), {"KIND": "all"}, "a.ipynb")
    with pytest.raises(SettingError, match="a.ipynb: batch_size=0"):
        try_checks(notebook(), {"ROWS": 0}, "a.ipynb")


def test_a_check_that_fails_by_itself_is_told_as_the_notebooks_fault():
    with pytest.raises(DataError, match="its cell tagged 'check' fails: NameError: name 'NOTHING' is not defined"):
        try_checks(notebook("print(NOTHING)"), {}, "a.ipynb")


def test_a_notebook_without_a_check_is_left_alone():
    plain = notebook()
    del plain.cells[1]
    try_checks(plain, {"KIND": "all"}, "a.ipynb")


def test_the_plan_refuses_before_anything_is_written(tmp_path):
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook(), path)
    with pytest.raises(SettingError, match="recompute='all'"):
        plan([path], {"KIND": "all"}, tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()
    assert plan([path], {"KIND": "block"}, tmp_path / "out", tmp_path)[0].values == {"KIND": "block"}


def test_the_training_notebook_refuses_what_the_machine_cannot_do(samples):
    path = samples.parent / "notebooks" / "05_pretrain.ipynb"
    for name, value, told in (
        (
            "PRECISION",
            "bfloat16",
            "precision='bfloat16' cannot be computed on CPU: set precision to float32 or float16",
        ),
        ("KERNELS", "cuda", "kernels='cuda' is not allowed: stock or native"),
        ("GRADIENT_ACCUMULATION_STEPS", "3", "batch_size=16 is not allowed: a multiple of gradient_accumulation"),
        ("DEVICE", "GPU", "device 'GPU'"),
    ):
        with pytest.raises(SettingError, match=f"05_pretrain.ipynb: .*{told}"):
            plan([path], {name: value}, samples / "out", samples)
