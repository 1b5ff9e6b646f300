"""How nbval compares the notebooks: numbers to 1e-6, figures by their first difference.

nbval compares outputs for equality, so the last digit of a float that another processor rounds
differently would fail, and it shows two differing figures as a text diff that takes minutes. Here
floats may differ by 1e-6 of their size, in figures and in text; integers, words and the number of
points may not. nbval 0.11 has no public hook for this, so its ``IPyNbCell.sanitize`` is wrapped.
"""

import math
import os
import re

import pytest
from nbval.plugin import IPyNbCell

RELATIVE = 1e-6
ABSOLUTE = 1e-12  # so that 0.0 and 1e-17 are the same
FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")


def first_difference(stored, now, where="figure"):
    """Where and how two plotly figures (or parts of them) differ first, or None when they agree."""
    if isinstance(stored, dict) and isinstance(now, dict):
        if stored.keys() != now.keys():
            return f"{where}: {sorted(stored.keys() ^ now.keys())} in only one of them"
        parts = [(f"{where}.{key}", stored[key], now[key]) for key in stored]
    elif isinstance(stored, list) and isinstance(now, list):
        if len(stored) != len(now):
            return f"{where}: stored {len(stored)} items, now {len(now)}"
        parts = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(stored, now))]
    else:
        return None if same_value(stored, now) else f"{where}: stored {stored!r}, now {now!r}"
    return next(filter(None, (first_difference(a, b, place) for place, a, b in parts)), None)


def same_value(stored, now):
    """Equal, or floats that are within the tolerance; True is not 1."""
    if isinstance(stored, bool) or isinstance(now, bool):
        return stored is now
    numbers = isinstance(stored, (int, float)) and isinstance(now, (int, float))
    if numbers and (isinstance(stored, float) or isinstance(now, float)):
        both_nan = math.isnan(stored) and math.isnan(now)
        return both_nan or math.isclose(stored, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return stored == now


def same_text(stored, now):
    """The same words, integers and spaces; floats within the tolerance."""
    if FLOAT.split(stored) != FLOAT.split(now):
        return False
    return all(same_value(float(a), float(b)) for a, b in zip(FLOAT.findall(stored), FLOAT.findall(now)))


class Text(str):
    """A text output that equals another with the same words and nearly the same floats."""

    def __eq__(self, other):
        return same_text(str(self), str(other))

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class Figure(str):
    """A plotly figure as nbval's reports need it, a string, with the figure to compare in ``json``."""

    def __new__(cls, figure):
        self = super().__new__(cls, f"plotly figure of {len(figure['data'])} traces")
        data = [{k: v for k, v in trace.items() if k != "uid"} for trace in figure["data"]]
        layout = {k: v for k, v in figure.get("layout", {}).items() if k != "template"}
        self.json = {"data": data, "layout": layout}
        return self

    def __eq__(self, other):
        return first_difference(self.json, other.json) is None

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def compared(sanitize):
    """nbval's ``sanitize`` with outputs that compare as above."""

    def wrapper(self, output):
        output = sanitize(self, output)
        if isinstance(output, dict) and "data" in output:
            return Figure(output)
        return Text(output) if isinstance(output, str) else output

    return wrapper


IPyNbCell.sanitize = compared(IPyNbCell.sanitize)


def pytest_configure(config):
    # Kernels inherit it: no progress bars in outputs that are compared.
    os.environ["WORKBENCH_PROGRESS"] = "log"


@pytest.hookimpl(tryfirst=True)
def pytest_assertrepr_compare(config, op, left, right):
    if op == "==" and isinstance(left, Figure) and isinstance(right, Figure):
        return ["plotly figures differ", first_difference(left.json, right.json)]
    return None
