"""Pictures of how the experts share the work."""

import numpy as np
import plotly.graph_objects as go

from workbench.diagnose.experts import evenness
from workbench.views.show import BLUE, ORANGE, figure, rounded, thin

# White is the even share, so that a healthy picture is pale and a collapse is one dark row.
_SCALE = [[0.0, ORANGE], [0.5, "#f8f9fa"], [1.0, BLUE]]


def _shares(share: np.ndarray, x: list, y: list) -> go.Heatmap:
    """Shares (rows, columns) as multiples of the even share, from none (orange) over 1 to 2 or more (blue)."""
    return go.Heatmap(
        z=[rounded(row, 3) for row in share],
        x=x,
        y=y,
        colorscale=_SCALE,
        zmin=0,
        zmax=2,
        colorbar={"title": {"text": "× even"}, "thickness": 12, "tickvals": [0, 1, 2], "ticktext": ["0", "1", "2 +"]},
    )


def load_over_steps(steps: np.ndarray, shares: np.ndarray, layer: int, name: str = "") -> tuple[go.Figure, str]:
    """Load of each expert of one layer, expert x step: steps (n,), shares (n, L, E), ``layer`` an index of L."""
    name = name or f"layer {layer}"
    keep = thin(steps)
    share = shares[:, layer]
    experts = share.shape[1]
    trace = _shares(share[keep].T * experts, [int(s) for s in steps[keep]], list(range(experts)))
    picture = figure(trace, title=f"Load of the experts, {name}", x="step", y="expert", height=320)
    picture.update_yaxes(dtick=max(1, experts // 8))
    last = share[-1]
    return picture, (
        f"{name}, step {int(steps[-1])}: {last.min():.2%} to {last.max():.2%} of the tokens an expert "
        f"(even {1 / experts:.2%}), evenness {float(evenness(last)):.3f}"
    )


def load_by_layer(
    steps: np.ndarray, shares: np.ndarray, step: int, layers: tuple[int, ...] = ()
) -> tuple[go.Figure, str]:
    """Load at the logged step nearest to ``step``, layer x expert; ``layers`` are the sparse layers' numbers."""
    at = int(np.argmin(np.abs(steps - step)))
    share = shares[at]
    depth, experts = share.shape
    names = [f"layer {i}" for i in layers or range(depth)]
    picture = figure(
        _shares(share * experts, list(range(experts)), names),
        title=f"Load of the experts, step {int(steps[at])}",
        x="expert",
        height=140 + 44 * depth,
    )
    picture.update_xaxes(dtick=max(1, experts // 8))
    picture.update_yaxes(autorange="reversed")
    even = evenness(share)
    least = int(np.argmin(even))
    return picture, f"step {int(steps[at])}: the least even is {names[least]}, evenness {float(even[least]):.3f}"
