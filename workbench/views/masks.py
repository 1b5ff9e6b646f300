"""Pictures of attention masks on real tokens."""

import numpy as np
import plotly.graph_objects as go

from workbench.views.show import BLUE, figure


def mask_picture(
    mask: np.ndarray, tokens: list[str], title: str, keys: list[str] | None = None
) -> tuple[go.Figure, str]:
    """A boolean mask (Q, K): rows are queries, a filled cell may be attended to.

    Tokens are labels; equal ones are told apart by their index.
    """
    keys = tokens if keys is None else keys
    trace = go.Heatmap(
        z=np.asarray(mask).astype(int).tolist(),
        colorscale=[[0, "#f3f5f7"], [1, BLUE]],
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=1,
        ygap=1,
    )
    side = {"tickmode": "array", "tickfont": {"size": 10}}
    picture = figure(trace, title=title, x="key (filled: may be attended to)", y="query", height=440)
    picture.update_xaxes(
        **side, tickvals=list(range(len(keys))), ticktext=keys, tickangle=-60, automargin=True, title_standoff=12
    )
    picture.update_yaxes(**side, tickvals=list(range(len(tokens))), ticktext=tokens, autorange="reversed")
    rows = np.asarray(mask).sum(-1)
    return (
        picture,
        f"{title}: {int(rows.sum())} of {mask.size} pairs visible, a query sees {rows.min()} to {rows.max()} keys",
    )


def leak_picture(change: np.ndarray, changed: int, title: str) -> tuple[go.Figure, str]:
    """Largest change of the logits at each position (S,) after the token at ``changed`` was replaced."""
    zero = change == 0
    trace = go.Bar(
        x=list(range(len(change))),
        y=[float(f"{v:.3g}") for v in change.tolist()],
        marker={"color": [BLUE] * len(change)},
    )
    picture = figure(trace, title=title, x="position", y="largest |change| of a logit", height=280)
    picture.add_vline(x=changed, line={"dash": "dash"})
    unseen = [i for i in range(len(change)) if zero[i]]
    return picture, f"token {changed} replaced: {len(unseen)} of {len(change)} positions are unchanged to the bit"
