"""The parameters of a notebook: read from its cell, and set from the command line.

A notebook's parameters are the lines ``NAME = LITERAL  # comment`` of the one cell tagged
``parameters``. The type of the default decides what a value given as text may be, so a wrong
value is refused before anything starts. A comment that begins with ``path:`` makes a parameter
a path: what the person gives is relative to where the person is, the default is relative to the
notebook's folder.

Costs: parsing one cell. Does not: run anything, look at files, or accept names the notebook does
not have (``workbench.jobs`` compares the names over all notebooks of a run).
"""

import ast
import io
import json
import math
import os
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from workbench.errors import DataError, SettingError

Value = bool | int | float | str | list | tuple

TAG = "parameters"
INJECTED_TAG = "injected-parameters"  # papermill's name for the cell that holds the given values

_TYPES = (bool, int, float, str, list, tuple)
_INT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell: ``name = default  # comment``."""

    name: str
    default: Value
    comment: str = ""

    @property
    def is_path(self) -> bool:
        return self.comment.startswith("path:")

    def value(self, text: str, cwd: Path) -> Value:
        """The ``text`` given on the command line as a value of the default's type.

        ``cwd`` is what a relative path is relative to. Raises SettingError.
        """
        kind = type(self.default)
        if kind is str:
            return absolute(text, cwd) if self.is_path else text
        if kind is bool:
            if text not in ("true", "false", "True", "False"):
                raise self._mismatch(text)
            return text in ("true", "True")
        if kind is int:
            if not _INT.fullmatch(text):
                raise self._mismatch(text)
            return int(text)
        if kind is float:
            return self._float(text)
        return self._sequence(text)

    def _float(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise self._mismatch(text) from None
        if not math.isfinite(number):
            raise SettingError(
                f"parameter {self.name}: {text!r} is not a finite number, expected float like {self.default!r}"
            )
        return number

    def _sequence(self, text: str) -> list | tuple:
        """A JSON or Python list; its items have the type that the items of the default have."""
        given = _literal(text)
        if not isinstance(given, (list, tuple)):
            raise self._mismatch(text)
        kinds = {type(item) for item in self.default}
        items = list(given)
        if len(kinds) == 1:
            kind = kinds.pop()
            if kind is float:
                items = [float(i) if type(i) is int else i for i in items]
            for item in items:
                if type(item) is not kind:
                    raise SettingError(
                        f"parameter {self.name}: {item!r} in {text!r} is {_article(item)}, "
                        f"expected {kind.__name__} as in {self.default!r}"
                    )
        if any(isinstance(i, float) and not math.isfinite(i) for i in items):
            raise SettingError(f"parameter {self.name}: {text!r} has a number that is not finite")
        return type(self.default)(items)

    def _mismatch(self, text: str) -> SettingError:
        return SettingError(
            f"parameter {self.name}: {text!r} is {_article(_literal(text))}, "
            f"expected {type(self.default).__name__} like {self.default!r}"
        )


def read_parameters(notebook: Mapping[str, Any], name: str) -> tuple[Parameter, ...]:
    """The parameters of ``notebook`` (nbformat 4), called ``name`` in errors, in their order.

    Raises DataError when there is no parameters cell, more than one, or a line in it that is not
    ``NAME = LITERAL``.
    """
    cells = [c for c in notebook["cells"] if TAG in c["metadata"].get("tags", [])]
    if len(cells) != 1 or cells[0]["cell_type"] != "code":
        raise DataError(
            f"{name}: {len(cells)} cells tagged {TAG!r}, expected one code cell; "
            "tag the cell that sets the notebook's parameters (Property Inspector > Cell Tags)"
        )
    return parse_parameters(cells[0]["source"], name)


def parse_parameters(source: str, name: str) -> tuple[Parameter, ...]:
    """The parameters that the cell ``source`` sets. Raises DataError as ``read_parameters`` does."""
    try:
        statements = ast.parse(source).body
        comments = {
            token.start[0]: token.string.lstrip("#").strip()
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
    except (SyntaxError, tokenize.TokenError) as error:
        raise DataError(f"{name}: the parameters cell is not Python: {error}") from None
    found: dict[str, Parameter] = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                default = _constant(value)
            case _:
                target, default = "", None
        if type(default) not in _TYPES:
            line = source.splitlines()[statement.lineno - 1].strip()
            raise DataError(
                f"{name}: parameters cell, line {statement.lineno}: {line!r} is not NAME = LITERAL; "
                "a parameter is a bool, int, float, str, list or tuple written out; "
                "work out other values in a later cell"
            )
        if target in found:
            raise DataError(f"{name}: parameters cell, line {statement.lineno}: {target} is set twice")
        found[target] = Parameter(target, default, comments.get(statement.end_lineno, ""))
    return tuple(found.values())


def parse_assignments(given: Sequence[str]) -> dict[str, str]:
    """``["NAME=VALUE", ...]`` as a dict; a value may hold ``=``. Raises SettingError."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(f"-p {text}: expected NAME=VALUE, for example -p STEPS=600")
        if name in values:
            raise SettingError(f"parameter {name}: given twice, {values[name]!r} and {value!r}; keep one -p {name}=...")
        values[name] = value
    return values


def absolute(text: str, cwd: Path) -> str:
    """The path ``text`` relative to ``cwd``, made absolute; globs keep their wildcards.

    Empty stays empty, and so does ``train:2048`` or ``obs://bucket/x`` (a word and a colon in
    front) unless a file of that name is there.
    """
    if not text:
        return text
    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(text)))
    if _SCHEME.match(text) and not os.path.exists(path):
        return text
    return path


def _literal(text: str) -> Any:
    """What ``text`` looks like to a person: a JSON value, a Python literal, or else a string."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def _constant(value: ast.expr) -> Any:
    """The literal ``value``, or None when it is not one."""
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None


def _article(value: Any) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
