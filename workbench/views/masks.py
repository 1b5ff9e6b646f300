"""Pictures of attention masks on real tokens, and of what it costs to build one."""

from typing import Iterable

import numpy as np
import plotly.graph_objects as go

from workbench.model.mask_arms import ARMS, ArmTiming
from workbench.model.mask_forms import Chunk
from workbench.views.show import BLUE, COLOURS, ORANGE, RED, figure, rounded


def mask_picture(
    mask: np.ndarray, tokens: list[str], title: str, keys: list[str] | None = None, blocks: Iterable[Chunk] = ()
) -> tuple[go.Figure, str]:
    """A boolean mask (Q, K): rows are queries, a filled cell may be attended to; ``blocks`` are framed.

    Tokens are labels; equal ones are told apart by their index.
    """
    keys, blocks = tokens if keys is None else keys, list(blocks)
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
    for block in blocks:
        picture.add_shape(
            type="rect",
            x0=block.keys.start - 0.5,
            x1=block.keys.stop - 0.5,
            y0=block.queries.start - 0.5,
            y1=block.queries.stop - 0.5,
            line={"color": ORANGE, "width": 2.5},
        )
    rows = np.asarray(mask).sum(-1)
    text = f"{title}: {int(rows.sum())} of {mask.size} pairs visible, a query sees {rows.min()} to {rows.max()} keys"
    if blocks:
        pairs = sum((b.queries.stop - b.queries.start) * (b.keys.stop - b.keys.start) for b in blocks)
        text += f"; {len(blocks)} blocks visit {pairs} pairs"
    return picture, text


def leak_picture(change: np.ndarray, changed: int, title: str) -> tuple[go.Figure, str]:
    """Largest change of the logits at each position (S,) after the token at ``changed`` was replaced."""
    zero = change == 0
    trace = go.Bar(
        x=list(range(len(change))),
        y=[float(f"{v:.3g}") for v in change.tolist()],
        marker={"color": [BLUE] * len(change)},
    )
    picture = figure(trace, title=title, x="position", y="largest |change| of a logit", height=320)
    picture.add_vline(x=changed, line={"dash": "dash"})
    unseen = [i for i in range(len(change)) if zero[i]]
    return picture, f"token {changed} replaced: {len(unseen)} of {len(change)} positions are unchanged to the bit"


def arm_speeds(timings: list[ArmTiming], claimed: float) -> tuple[go.Figure, str]:
    """How many times as fast as ``eager if`` each arm is: median, quartiles as whiskers; ``claimed`` is a line."""
    told, traces = [], []
    for colour, (length, by_arm) in zip(COLOURS, _by_length(timings).items()):
        speeds = {arm: by_arm[arm].times_faster_than(by_arm["eager if"]) for arm in ARMS[1:]}
        low, middle, high = np.array(list(speeds.values())).T
        whiskers = {"type": "data", "symmetric": False, "array": rounded(high - middle, 3)}
        whiskers["arrayminus"] = rounded(middle - low, 3)
        bar = {"x": list(speeds), "y": rounded(middle, 3), "name": f"S = {length}", "marker": {"color": colour}}
        traces.append(go.Bar(**bar, error_y=whiskers))
        ranges = (f"{arm} {m:.1f}× ({lo:.1f}–{hi:.1f})" for arm, (lo, m, hi) in speeds.items())
        told.append(f"S = {length}, as fast as eager if: " + ", ".join(ranges))
    title = "How many times as fast as a Python if, one operator at a time?"
    picture = figure(*traces, title=title, y="times (log scale)", height=360)
    picture.update_yaxes(type="log", dtick=1)
    _claim(picture, claimed, f"claimed for select: {claimed:g}×")
    return picture, "\n".join(told)


def arm_memory(timings: list[ArmTiming], claimed: float) -> tuple[go.Figure, str]:
    """Bytes that a call of each arm allocates for a pair; ``claimed`` is the share that select is said to save."""
    told, traces = [], []
    for colour, (length, by_arm) in zip(COLOURS, _by_length(timings).items()):
        sizes = {arm: by_arm[arm].bytes_per_pair for arm in ARMS}
        bar = {"x": list(sizes), "y": rounded(list(sizes.values()), 3), "marker": {"color": colour}}
        traces.append(go.Bar(**bar, name=f"S = {length}"))
        told.append(f"S = {length}, bytes a pair: " + ", ".join(f"{arm} {size:.1f}" for arm, size in sizes.items()))
    title = "What does a call allocate at most at a time, for each pair of query and key?"
    picture = figure(*traces, title=title, y="bytes a pair", height=360)
    reference = max(group["eager if"].bytes_per_pair for group in _by_length(timings).values())
    _claim(picture, reference * (1 - claimed), f"claimed for select: {claimed:.0%} less than eager if")
    return picture, "\n".join(told)


def _by_length(timings: list[ArmTiming]) -> dict[int, dict[str, ArmTiming]]:
    lengths = dict.fromkeys(t.length for t in timings)
    return {length: {t.arm: t for t in timings if t.length == length} for length in lengths}


def _claim(picture: go.Figure, at: float, text: str) -> None:
    # Named in the legend: over the bars a text would not be legible.
    picture.add_hline(y=at, line={"dash": "dash", "color": RED}, name=text, showlegend=True)
