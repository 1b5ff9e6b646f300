"""Arrows point down only: which room may import which."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "workbench"
# A file may import from its own level and from those before it.
LEVELS = [
    ("errors",),
    ("settings",),
    ("model_config", "alarm_config"),
    ("config", "run_folder"),
    ("control", "rewinding"),
    ("following", "progress"),
    ("device", "launching"),
    ("data",),
    ("model",),
    ("evaluate",),
    ("train",),
    ("diagnose",),
    ("views",),
    ("parameters",),
    ("check_cells",),
    ("pages", "report"),
    ("job_kernel",),
    ("jobs", "preparing", "budgeting"),
    ("rank_worker",),
    ("rank_jobs",),
    ("notebook_store", "watching"),
    ("cli", "run_command"),
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "workbench":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("workbench.")}
    return names - {"__version__"}


def test_every_room_has_a_level():
    assert {room_of(p) for p in FILES} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    for room in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))):
        assert LEVEL[room] <= LEVEL[room_of(path)], f"{path.name} imports {room}, which stands above it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_is_one_idea_with_a_docstring(path):
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "the file does not say what it does"
    assert len(text.splitlines()) <= 300, "more than 300 lines: split it"
    assert path.stem not in ("utils", "helpers", "manager", "base", "common", "misc")
