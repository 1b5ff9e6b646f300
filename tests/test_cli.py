"""The command line: one line for a mistake, the exit code a script can act on, the report's path."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tiny_model import TINY
from tiny_notebooks import write_notebook

from workbench.cli import main
from workbench.model.tensor_names import tensors_of


def one_line(capsys):
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("workbench: "), (out, err)
    return err.removeprefix("workbench: ").rstrip("\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["run", "01_a.ipynb", "-p", "STPES=3", "--out", "r"],
            "unknown parameter 'STPES'; did you mean 'STEPS'? (known: NAME, STEPS)",
        ),
        (
            ["run", "01_a.ipynb", "-p", "STEPS=2.5", "--out", "r"],
            "parameter STEPS: '2.5' is a float, expected int like 600",
        ),
        (["run", "01_a.ipynb", "-p", "STEPS=1", "-p", "STEPS=2", "--out", "r"], "parameter STEPS: given twice"),
        (["run", "01_a.ipynb", "-p", "STEPS", "--out", "r"], "-p STEPS: expected NAME=VALUE"),
        (["run", "01_a.ipynb", "-p", "RUN=x", "--out", "r"], "use --out x"),
        (["run", "01_a.ipynb"], "Missing option '--out'"),
        (["run", "--out", "r"], "no notebook given"),
        (["run", "no.ipynb", "--out", "r"], "no such notebook"),
        (["run", "01_a.ipynb", "--out", "r", "--timeout", "-3"], "--timeout"),
        (["run", "01_a.ipynb", "--out", "r", "--steps", "3"], "--steps"),
        (["run", "01_a.ipynb", "--out", "r", "--node-rank", "1"], "--node-rank needs --workers N"),
        (["run", "01_a.ipynb", "--out", "r", "--workers", "0"], "--workers"),
        (["run", "01_a.ipynb", "--out", "r", "--workers", "2", "-p", "STPES=3"], "did you mean 'STEPS'?"),
        (["run", "01_a.ipynb", "--out", "r", "--workers", "2", "--dry-run", "-p", "STEPS=x"], "parameter STEPS: 'x'"),
        (
            ["run", "01_a.ipynb", "--out", "r", "--workers", "4", "--local-workers", "2", "--master-addr", "10.0.0.1"],
            "--node-rank K needed: which of the 2 machines",
        ),
        (["report", "r"], "no such run folder"),
        (["export", "r", "--out", "e"], "no usable checkpoint in"),
        (["export", "r"], "Missing option '--out'"),
        (["export", "r", "--out", "e", "--dtype", "int8"], "'int8' is not one of"),
        (["refresh"], "no notebook in ./notebooks"),
        (["lint"], "Missing argument 'FILES...'"),
        (["lint", "01_a.ipynb", "no.py"], "no.py: cannot be read"),
        (["rnu"], "No such command 'rnu'"),
        (["prepare", "nothing.txt", "--tokenizer", "t", "--out", "r", "-p", "overlp=0.1"], "did you mean 'overlap'?"),
        (
            ["prepare", "nothing.txt", "--tokenizer", "t", "--out", "r", "-p", "overlap=much"],
            "expected float like 0.25",
        ),
        (["prepare", "nothing.txt", "--tokenizer", "./t", "--out", "r"], "tokenizer='./t': no such folder"),
        (["prepare", "nothing.txt", "--out", "r"], "Missing option '--tokenizer'"),
        (["prepare", "01_a.ipynb", "--tokenizer", "./t", "--out", "r", "--workers", "0"], "--workers"),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "01_a.ipynb", "1")
    assert main(arguments) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "r").exists()


def test_run_then_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_notebook(
        tmp_path / "nb/01_a.ipynb",
        "from workbench.run_folder import Number, RunFolder\n"
        "RunFolder.at(RUN).write_result('01_a', title='标题', summary=NAME, numbers=[Number('steps', STEPS)])",
    )
    assert main(["run", "nb/01_a.ipynb", "-p", "NAME=甲=乙 丙", "-p", "STEPS=1234", "--out", "runs/a b"]) == 0
    out, err = capsys.readouterr()
    report = tmp_path / "runs/a b/report.html"
    assert out == f"{report}\n" and "\r" not in err and len(err.splitlines()) == 2
    page = report.read_text(encoding="utf-8")
    assert "甲=乙 丙" in page and "1,234" in page and "标题" in page
    report.unlink()
    assert main(["report", "runs/a b"]) == 0
    assert capsys.readouterr().out == f"{report}\n" and report.read_text(encoding="utf-8") == page


def test_a_failed_cell_exits_1_with_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_notebook(
        tmp_path / "notebooks/01_a.ipynb",
        "from workbench.errors import DataError\nraise DataError('no text in 语料; give DATA')",
    )
    assert main(["run", "notebooks/01_a.ipynb", "--out", "r"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    assert err.splitlines()[-1].startswith(
        "workbench: no text in 语料; give DATA (01_a.ipynb, code cell 2; executed notebook: "
    )
    assert main(["refresh"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("; no notebook was changed")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from workbench.cli import main; "
        "assert main(['--help']) == main([]) == main(['run', '--help']) == main(['export', '--help']) == main(['--version']) == 0; "
        "print([m for m in ('mindspore', 'papermill', 'nbconvert', 'plotly', 'rich', 'numpy') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]" and "Usage: workbench run [OPTIONS]" in ended.stdout


def test_a_runs_newest_checkpoint_is_exported(tmp_path, capsys, samples):
    from workbench.config import RunConfig
    from workbench.model.exchange import load_hf
    from workbench.run_folder import RunFolder
    from workbench.train.checkpoint import save_checkpoint

    run, config, rng = RunFolder.at(tmp_path / "run"), RunConfig(model=TINY), np.random.default_rng(0)
    shapes = {name: tensor.shape for name, tensor in tensors_of(TINY, "llama").items()}
    for step in (7, 8):
        weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        save_checkpoint(run, step, weights, {"x": np.ones(1)}, {"config": config.as_dict()}, keep=2)
    shutil.copytree(samples / "tokenizer", run.path / "tokenizer")
    out = tmp_path / "models/a"
    assert main(["export", str(run.path), "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}\n" and told.err == f"step 8 of {run.path}, float32\n"
    found, arrays = load_hf(out)
    assert found == TINY and (out / "tokenizer.json").is_file()
    assert all(np.array_equal(arrays[name], weights[name]) for name in shapes)
    assert main(["export", str(run.path), "--out", str(out)]) == 2
    assert "there already and not empty" in one_line(capsys)


def test_a_tokenizer_is_trained_on_ones_own_files_and_loads(tmp_path, capsys):
    from workbench.data.tokenizing import decode, encode, load_tokenizer

    (tmp_path / "a.txt").write_text("猫坐在垫子上。The cat sat on the mat. " * 20, encoding="utf-8")
    (tmp_path / "broken.txt").write_bytes(b"caf\xe9")
    out = tmp_path / "tokenizer"
    assert main(["tokenizer", str(tmp_path), "--vocab-size", "300", "--out", str(out)]) == 0
    seen = capsys.readouterr()
    assert seen.out.strip() == str(out) and "1 documents, 291 entries; left out:" in seen.err
    tokenizer = load_tokenizer(str(out))
    assert decode(tokenizer, encode(tokenizer, "猫 cat 😀").ids) == "猫 cat 😀"
    assert tokenizer.init_kwargs["cleaning"]["unicode_form"] == "NFC", "it does not remember its cleaning"
    assert main(["tokenizer", str(tmp_path), "--out", str(out)]) == 2
    assert "it is there already" in capsys.readouterr().err


def test_a_tokenizer_of_nothing_is_refused(tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("")
    assert main(["tokenizer", str(tmp_path), "--out", str(tmp_path / "t")]) == 2
    assert "no usable text" in capsys.readouterr().err


def test_a_corpus_is_prepared_once_and_opened_by_its_folder(tmp_path, capsys, samples, monkeypatch):
    monkeypatch.setenv("WORKBENCH_PROGRESS", "log")
    (tmp_path / "a.jsonl").write_text("\n".join(f'{{"body": "第{i}篇 of many", "title": "t"}}' for i in range(250)))
    out = tmp_path / "corpus"
    command = ["prepare", str(tmp_path / "a.jsonl"), "--tokenizer", str(samples / "tokenizer"), "--out", str(out)]
    assert main(command) == 2  # the field is called otherwise
    assert "no usable text is left (250 × missing field)" in one_line(capsys)
    command += ["-p", "text_field=body", "-p", "instruction_share=0.1"]
    for _ in range(2):
        assert main(command) == 0
        told = capsys.readouterr()
        assert told.out == f"{out / 'ledger.json'}\n" and "250 documents" in told.err and "mixture:" in told.err
    ledger = json.loads((out / "ledger.json").read_text(encoding="utf-8"))
    assert ledger["documents"]["read"] == 250 and ledger["documents"]["instructions"] > 20
    base = ledger["tokens"]["base"]
    assert base["tokens_in"] == base["targets_with_loss"] + base["targets_without_loss"] + base["first_tokens"]
    assert main([*command, "-p", "seed=3"]) == 2
    assert "was made with other settings" in one_line(capsys)

    from workbench.config import DataConfig
    from workbench.data.pipeline import open_corpus
    from workbench.data.tokenizing import load_tokenizer

    settings = {"text_field": "body", "instruction_share": 0.1, "base_share": 0.9, "task_share": 0.0}
    config = DataConfig(data=str(out), tasks="", tokenizer=str(out / "tokenizer"), **settings)
    opened = open_corpus(config, load_tokenizer(out / "tokenizer"), tmp_path / "unused")
    assert opened.fingerprint == ledger["fingerprint"]


def test_lint_prints_a_line_a_finding_and_exits_1_for_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("\ufefffrom mindspore import ops\nmul = ops.Mult()\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("dataset.map(f, num_parallel_workers=8)\n")
    (tmp_path / "c.py").write_text("def f(:\n")
    (tmp_path / "d.py").write_bytes(b"x = '\xff'\n")
    assert main(["lint", "a.py", "b.py"]) == 1
    told = capsys.readouterr()
    assert told.err == "" and told.out.splitlines()[0].startswith("a.py:2:7: error missing-api: there is no mindspore.")
    assert "b.py:1:37: note worker-count: " in told.out and len(told.out.splitlines()) == 2
    assert main(["lint", "b.py"]) == 0
    capsys.readouterr()
    assert main(["lint", "c.py"]) == 1
    assert capsys.readouterr().out.startswith("c.py:1:7: error syntax: this is no Python: ")
    assert main(["lint", "a.py", "d.py"]) == 2
    assert "d.py: cannot be read" in one_line(capsys)
