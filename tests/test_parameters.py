"""Parameters are read from literals only, and what is given has the default's type or is refused."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_notebooks import make_notebook

from workbench.errors import DataError, SettingError
from workbench.parameters import Parameter, absolute, parse_assignments, parse_parameters, read_parameters

HERE = Path("/home/me")


def value(default, text, comment=""):
    return Parameter("P", default, comment).value(text, HERE)


@pytest.mark.parametrize(
    "default, text, expected",
    [
        (False, "true", True),
        (True, "False", False),
        (20, "600", 600),
        (20, "-1_000", -1000),
        (0.1, "1e-4", 1e-4),
        (0.1, "3", 3.0),
        ("x", "007", "007"),
        ("x", "a=b=c", "a=b=c"),
        ("x", "true", "true"),
        ("x", "1e5", "1e5"),
        ("x", "你好，世界", "你好，世界"),
        ("x", "", ""),
        ([1, 2], "[3, 4]", [3, 4]),
        ([0.5], "[1, 0.25]", [1.0, 0.25]),
        (["a"], '["甲", "b"]', ["甲", "b"]),
        (["a"], "['甲']", ["甲"]),
        ([True], "[true, false]", [True, False]),
        ((1, 2), "[3]", (3,)),
        ([1], "(3, 4)", [3, 4]),
        ([], '[1, "a"]', [1, "a"]),
    ],
)
def test_value_has_the_type_of_the_default(default, text, expected):
    got = value(default, text)
    assert got == expected and type(got) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert [type(i) for i in got] == [type(i) for i in expected]


@pytest.mark.parametrize(
    "default, text, message",
    [
        (600, "2.5", "parameter P: '2.5' is a float, expected int like 600"),
        (600, "1e3", "parameter P: '1e3' is a float, expected int like 600"),
        (600, "many", "parameter P: 'many' is a str, expected int like 600"),
        (600, "true", "parameter P: 'true' is a bool, expected int like 600"),
        (600, "", "parameter P: '' is a str, expected int like 600"),
        (600, "１２", "parameter P: '１２' is a str, expected int like 600"),
        (True, "1", "parameter P: '1' is an int, expected bool like True"),
        (True, "yes", "parameter P: 'yes' is a str, expected bool like True"),
        (0.1, "fast", "parameter P: 'fast' is a str, expected float like 0.1"),
        (0.1, "nan", "parameter P: 'nan' is not a finite number, expected float like 0.1"),
        (0.1, "-inf", "parameter P: '-inf' is not a finite number, expected float like 0.1"),
        (0.1, "1e999", "parameter P: '1e999' is not a finite number, expected float like 0.1"),
        ([1], "3", "parameter P: '3' is an int, expected list like [1]"),
        ([1], "[1, 2.5]", "parameter P: 2.5 in '[1, 2.5]' is a float, expected int as in [1]"),
        ([1], "[true]", "parameter P: True in '[true]' is a bool, expected int as in [1]"),
        ([0.5], "[NaN]", "parameter P: '[NaN]' has a number that is not finite"),
    ],
)
def test_wrong_type_is_refused_in_one_line(default, text, message):
    with pytest.raises(SettingError) as refused:
        value(default, text)
    assert str(refused.value) == message


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()))
def test_what_python_prints_is_read_back(given_value):
    text = given_value if isinstance(given_value, str) else repr(given_value)
    got = value(type(given_value)(), text)
    assert got == given_value and type(got) is type(given_value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="0123456789+-_.eEnaif []()tru\"'", max_size=12), st.sampled_from([True, 1, 1.0, [1], (1.0,)]))
def test_any_text_is_converted_or_refused(text, default):
    try:
        got = value(default, text)
    except SettingError as refused:
        assert str(refused).startswith("parameter P: ") and "\n" not in str(refused)
    else:
        assert type(got) is type(default)
        assert not isinstance(got, float) or math.isfinite(got)


def test_paths_are_relative_to_the_caller(tmp_path):
    assert value("d", "my data/*.txt", "path: text files") == "/home/me/my data/*.txt"
    assert value("d", "../语料", "path: text files") == "/home/语料"
    assert value("d", "/abs/x", "path:") == "/abs/x"
    assert value("d", "", "path: empty for none") == ""
    assert value("d", "my data", "a label that mentions a path: no") == "my data"
    assert absolute("train:2048", tmp_path) == "train:2048"
    (tmp_path / "a b:c").write_text("x")
    (tmp_path / "train:2048").write_text("x")
    assert absolute("train:2048", tmp_path) == str(tmp_path / "train:2048")


def test_cell_is_read_with_defaults_and_comments():
    source = (
        'DATA = "a#b"  # path: files\n\n# a line of its own\nSTEPS = 600\n'
        "RATE = -1e-3  # rate, # twice\nSIZES = [\n  1,\n  2,\n]  # sizes\n"
    )
    assert parse_parameters(source, "n.ipynb") == (
        Parameter("DATA", "a#b", "path: files"),
        Parameter("STEPS", 600, ""),
        Parameter("RATE", -0.001, "rate, # twice"),
        Parameter("SIZES", [1, 2], "sizes"),
    )


@pytest.mark.parametrize(
    "source, part",
    [
        ("a = 1\nb = a * 2", "line 2: 'b = a * 2' is not NAME = LITERAL"),
        ("a = b = 1", "line 1"),
        ("a: int = 1", "line 1"),
        ("import os", "'import os' is not NAME = LITERAL"),
        ("a = None", "'a = None' is not NAME = LITERAL"),
        ("a = {'b': 1}", "not NAME = LITERAL"),
        ("a = 1\na = 2", "line 2: a is set twice"),
        ("%matplotlib inline", "is not Python"),
        ("a = '", "is not Python"),
    ],
)
def test_anything_but_literals_is_refused(source, part):
    with pytest.raises(DataError) as refused:
        parse_parameters(source, "n.ipynb")
    assert part in str(refused.value) and str(refused.value).startswith("n.ipynb: ")


def test_exactly_one_parameters_cell():
    assert [p.name for p in read_parameters(make_notebook("1"), "n")] == ["RUN", "STEPS", "NAME"]
    with pytest.raises(DataError, match="0 cells tagged 'parameters'"):
        read_parameters(make_notebook("1", parameters=None), "n")
    twice = make_notebook("1")
    twice.cells.append(twice.cells[1])
    with pytest.raises(DataError, match="2 cells tagged 'parameters'"):
        read_parameters(twice, "n")


def test_assignments():
    assert parse_assignments(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(SettingError, match="parameter A: given twice, '1' and '2'"):
        parse_assignments(["A=1", "A=2"])
    for wrong in ("A", "=1", "A B=1", "--steps=1"):
        with pytest.raises(SettingError, match="expected NAME=VALUE"):
            parse_assignments([wrong])
