"""One look for all figures, and one way to put them into a notebook.

``show(figure, text)`` displays a plotly figure together with a line of numbers. The line is what
a log, a comparison of stored outputs and a page without JavaScript see. Figures carry no
template (plotly's own adds 700 lines of JSON to each) and rounded lists instead of encoded
arrays, so that a stored notebook can be reviewed.
"""

import json
from typing import Any, Sequence

import numpy as np
import plotly.graph_objects as go
from IPython.display import display

BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#2f6fb3", "#e08a2e", "#3f9464", "#c8473d", "#9aa3ad", "#7d5ba6"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
_INK, _GRID = "#26313c", "#e3e7eb"


def figure(*traces: Any, title: str, x: str = "", y: str = "", height: int = 340, **layout: Any) -> go.Figure:
    """A figure of ``traces`` in the common look; ``x`` and ``y`` are axis titles with their units."""
    axis = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "ticks": "outside", "tickcolor": _GRID}
    options = {
        "template": "none",
        "title": {"text": title, "x": 0.01, "xanchor": "left", "font": {"size": 15}},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": _INK},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}, "automargin": True},
        "margin": {"l": 64, "r": 24, "t": 48, "b": 52},
        "height": height,
        "colorway": list(COLOURS),
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        # Below the picture, where it can wrap on a narrow page without covering the title.
        "legend": {"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top"},
    }
    made = go.Figure(data=list(traces), layout=options)
    made.update_layout(**layout)
    return made


def rounded(values: Sequence[float] | np.ndarray, digits: int = 5) -> list:
    """``values`` as a plain list with ``digits`` significant digits; what is not finite becomes None."""
    out = []
    for value in np.asarray(values, dtype=np.float64).ravel().tolist():
        out.append(float(f"{value:.{digits}g}") if np.isfinite(value) else None)
    return out


def thin(values: Sequence[float] | np.ndarray, most: int = 400) -> np.ndarray:
    """Indices of at most ``most`` evenly spread entries of ``values``, the last always among them."""
    n = len(values)
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.arange(0)


def show(picture: go.Figure, text: str) -> None:
    """Display ``picture`` in the notebook, with ``text``, one line of its numbers, beside it."""
    bundle = {"application/vnd.plotly.v1+json": json.loads(picture.to_json()), "text/plain": text}
    display(bundle, raw=True)
    print(text)
