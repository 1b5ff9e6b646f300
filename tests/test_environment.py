"""What a person installs is what was tested, and the two commands pass on what they are given."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]


def conda_requirement(spec: str) -> Requirement:
    """A conda spec as pip's: ``python=3.11`` is ``python==3.11.*``."""
    exact = re.fullmatch(r"([A-Za-z0-9_.-]+)=([0-9.]+)", spec)
    return Requirement(f"{exact[1]}=={exact[2]}.*" if exact else spec)


def unmet(requirement: Requirement, version: str) -> bool:
    return not requirement.specifier.contains(version.partition("+")[0], prereleases=True)


def test_conda_environment_has_every_part():
    conda = [d for d in CONDA["dependencies"] if isinstance(d, str)]
    (pip,) = [d["pip"] for d in CONDA["dependencies"] if isinstance(d, dict)]
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    assert {"python", "pip"} <= {conda_requirement(spec).name for spec in conda}
    assert pip == ["-e .[lab,test]"]
    extras = set(re.fullmatch(r"-e \.\[(.*)\]", pip[0])[1].split(","))
    assert extras == set(PROJECT["optional-dependencies"])
    (python,) = [conda_requirement(spec) for spec in conda if spec.startswith("python")]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains("3.11.7")
    assert not unmet(python, "{}.{}.{}".format(*sys.version_info))


def test_installed_versions_are_the_ones_asked_for():
    specs = [d for d in CONDA["dependencies"] if isinstance(d, str) and not d.startswith("python")]
    asked = [*map(conda_requirement, specs), *map(Requirement, REQUIREMENTS)]
    assert [(str(r), metadata.version(r.name)) for r in asked if unmet(r, metadata.version(r.name))] == []
    assert unmet(Requirement("a>=2,<3"), "3.0") and not unmet(Requirement("a==2.13.0"), "2.13.0+cpu")


def test_every_import_is_a_dependency():
    """What the package imports is listed, so that an install without the test extra works."""
    by_module = metadata.packages_distributions()
    listed = {Requirement(r).name.lower() for r in PROJECT["dependencies"]}
    # installed with a listed package, and used through it
    listed |= {"ipython", "jinja2", "markupsafe", "jupyter_client", "traitlets", "mindspore-workbench"}
    found = {}
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        for module in re.findall(r"^\s*(?:import|from) ([A-Za-z_0-9]+)", path.read_text(encoding="utf-8"), re.M):
            if module not in sys.stdlib_module_names and module in by_module:
                if not {d.lower() for d in by_module[module]} & listed:
                    found.setdefault(module, path.name)
    assert found == {}


@pytest.fixture
def repository(tmp_path):
    """The Makefile with an environment whose programs print what they are called with."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("02_b", "01_a", "10_claims", "notes"):
        (tmp_path / "notebooks").mkdir(exist_ok=True)
        (tmp_path / f"notebooks/{name}.ipynb").write_text("")
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("workbench", "python", "jupyter"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "[{name}]"\nfor a in "$@"; do echo "[$a]"; done\n')
        program.chmod(0o755)
    return tmp_path


def make(folder, *arguments, **variables):
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("MAKE") and k not in ("DATA", "STEPS", "NAME", "OUT", "TOKENIZER")
    }
    return subprocess.run(
        ["make", "-s", *arguments], cwd=folder, env={**clean, **variables}, capture_output=True, text=True, timeout=60
    )


def called(ended):
    assert ended.returncode == 0, ended.stderr
    return re.findall(r"^\[(.*)\]$", ended.stdout, re.M)


def test_make_run_passes_values_as_they_are(repository):
    (repository / "x.txt").write_text("a wildcard must not become this")
    (repository / ".venv/.run-stamp").write_text("")
    notebooks = ["run", "notebooks/01_a.ipynb", "notebooks/02_b.ipynb"]
    assert called(make(repository, "run")) == ["workbench", *notebooks, "--out", "runs/demo"]
    given = called(make(repository, "run", 'DATA=*.txt 语料/it\'s "x"', "TOKENIZER=", "STEPS=5", "NAME=my run"))
    values = ["-p", 'DATA=*.txt 语料/it\'s "x"', "-p", "TOKENIZER=", "-p", "STEPS=5"]
    assert given == ["workbench", *notebooks, *values, "--out", "runs/my run"]
    assert called(make(repository, "run", "OUT=/tmp/o p", DATA="from the shell"))[-2:] == ["--out", "/tmp/o p"]
    assert "-p" not in called(make(repository, "run", DATA="from the shell"))


def test_make_test_runs_tests_then_notebooks(repository):
    lines = called(make(repository, "test"))
    installs, tests, notebooks = [line for line in " ".join(lines).split("python ") if line.strip()]
    assert installs.split() == ["-m", "pip", "install", "--quiet", "-e", ".[lab,test]"]
    assert tests.split() == ["-m", "pytest", "-n", "2", "--dist", "loadfile"]
    assert notebooks.split() == [
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "--nbval-cell-timeout=600",
        "notebooks",
    ]
    assert called(make(repository, "run"))[0] == "workbench"  # what the tests installed is enough to run
    (repository / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    assert make(repository, "test").returncode != 0


def test_another_python_is_refused_in_words(repository):
    shutil.rmtree(repository / ".venv")
    old = repository / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.1" && exit 0\nexit 1\n')
    old.chmod(0o755)
    ended = make(repository, "run", f"PYTHON={old}")
    assert ended.returncode != 0 and not (repository / ".venv").exists()
    assert f"Python 3.11 is needed and {old} is Python 3.9.1; say which to use: make PYTHON=python3.11" in ended.stderr


def test_ci_runs_make_test(repository):
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    (repository / ".ci").mkdir()
    shutil.copy(script, repository / ".ci/run")
    (repository / ".venv/.test-stamp").write_text("")
    ended = subprocess.run([repository / ".ci/run"], cwd="/", capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "[--nbval]" in ended.stdout, ended.stderr
    (repository / ".venv/bin/python").write_text("#!/bin/sh\nexit 3\n")
    assert subprocess.run([repository / ".ci/run"], cwd="/", capture_output=True, timeout=60).returncode != 0


def test_license_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.lstrip().startswith("Apache License\n") and "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text and PROJECT["license"] == {"text": "Apache-2.0"}
