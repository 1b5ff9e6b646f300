"""Pictures of memory: the budget of a step, its moments, the allocator's own record, and what fits a card.

Each returns (figure, text), the text being the figure's numbers in a line or a small table.
"""

from typing import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from workbench.train.budget import Budget
from workbench.train.large_models import CARDS_GB, Fit
from workbench.train.memory import Arm, MemoryTrace
from workbench.views.show import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, RED, figure, rounded

_PARTS = {
    "parameters": BLUE,
    "master weights": "#7aa7d6",
    "optimizer moments": ORANGE,
    "accumulated gradients": "#8fc7a6",
    "staging": "#f0c48e",
    "communication": PURPLE,
    "gradients": GREEN,
    "shared by the layers": "#c3cad1",
    "head": "#b9a3d1",
    "logits and loss": RED,
    "work space": GREY,
}


def budget_bars(budgets: Mapping[str, Budget]) -> tuple[go.Figure, str]:
    """The peak of each budget, stacked by part; a layer's activations are an outlined piece each."""
    lines, names = {n: b.lines() for n, b in budgets.items()}, list(budgets)
    parts = dict.fromkeys(part for found in lines.values() for part in found)
    layers = [part for part in parts if part.startswith("activations")]
    bars = []
    for part in [p for p in parts if p not in layers] + layers:
        first = part == layers[0] if layers else False
        bars.append(
            go.Bar(
                name="activations, by layer" if part in layers else part,
                x=names,
                y=rounded([lines[n].get(part, 0.0) for n in names]),
                marker={"color": _PARTS.get(part, "#4f8f8b"), "line": {"color": "white", "width": 0.5}},
                legendgroup="activations" if part in layers else part,
                showlegend=part not in layers or first,
                hovertext=part,
            )
        )
    text = "; ".join(f"{n}: {b.peak_mb:.1f} MiB at {b.peak.name}" for n, b in budgets.items())
    return figure(*bars, title="Memory of a step at its peak", y="MiB", barmode="stack", height=420), text


def budget_moments(budget: Budget, trace: MemoryTrace | None = None) -> tuple[go.Figure, str]:
    """What the budget says of each moment of a step, without the state; the measured peak as a line."""
    names = [moment.name for moment in budget.moments]
    parts = {
        "gradients": (GREEN, [m.gradients for m in budget.moments]),
        "activations": ("#4f8f8b", [sum(m.layers) for m in budget.moments]),
        "the rest": (GREY, [sum(m.parts.values()) for m in budget.moments]),
    }
    bars = [
        go.Bar(name=name, x=names, y=rounded(np.asarray(sizes) / 2**20), marker={"color": colour})
        for name, (colour, sizes) in parts.items()
    ]
    picture = figure(
        *bars, title="The moments of a step, computed", y="MiB besides the state", barmode="stack", height=460
    )
    picture.update_layout(margin_b=190, margin_t=84, legend_y=1.02, legend_yanchor="bottom")
    text = f"computed peak {budget.allocator_mb:.1f} MiB at {budget.peak.name}"
    if trace:
        picture.add_hline(y=float(f"{trace.peak_mb:.5g}"), line={"color": RED, "dash": "dash"})
        text += f", measured (dashed) {trace.peak_mb:.1f} MiB"
    return picture, text


def memory_arms(arms: Mapping[str, Arm], budgets: Mapping[str, Budget]) -> tuple[go.Figure, str]:
    """Measured peak of every kind of recompute beside the computed one, and a table; times from three processes on."""
    names, base, block = list(arms), arms.get("none"), arms.get("block")
    bars = [
        go.Bar(name="measured", x=names, y=rounded([arms[n].peak_mb for n in names]), marker={"color": BLUE}),
        go.Bar(name="computed", x=names, y=rounded([budgets[n].allocator_mb for n in names]), marker={"color": GREY}),
    ]
    timed = min(len(arm.step_seconds) for arm in arms.values()) >= 3
    step_title = f"{'step, of none':>15}" if timed and base else ""
    rows = [f"{'recompute':14}{'measured MiB':>14}{'computed MiB':>14}{'peak, of none':>15}{step_title}"]
    for name, arm in arms.items():
        row = f"{name:14}{arm.peak_mb:14.1f}{budgets[name].allocator_mb:14.1f}"
        row += f"{arm.peak_mb / base.peak_mb:>15.0%}" if base else ""
        rows.append(row + (f"{arm.seconds / base.seconds:>14.2f}x" if timed and base else ""))
    if block and "whole" in arms:
        whole = arms["whole"]
        rows.append(
            f"block against whole: {block.peak_mb / whole.peak_mb - 1:+.0%} memory, "
            + (f"{block.seconds / whole.seconds - 1:+.0%} time, " if timed else "time not measured, ")
            + f"{len(block.peaks_mb)} process(es) an arm "
            "(the article: -23%, +8%, no sample size)"
        )
    picture = figure(*bars, title="Peak of the allocator by what is recomputed", y="MiB", barmode="group")
    return picture, "\n".join(rows)


def memory_timeline(
    traces: Mapping[str, MemoryTrace], budgets: Mapping[str, Budget], points: int = 500
) -> tuple[go.Figure, str]:
    """Allocated memory over the profiled steps, computed peaks dotted; time runs slower under the profiler."""
    lines = []
    for colour, (name, trace) in zip(COLOURS, traces.items()):
        # The highest value of each stretch, so that thinning cannot hide the peak.
        edges = np.unique(np.linspace(0, len(trace.seconds), min(points, len(trace.seconds)) + 1).astype(int))
        highest = np.maximum.reduceat(trace.allocated_mb, edges[:-1])
        share = rounded(trace.seconds[edges[:-1]] / max(trace.seconds[-1], 1e-9), 4)
        lines.append(go.Scatter(x=share, y=rounded(highest, 4), name=name, line={"color": colour, "width": 1}))
        if name in budgets:
            lines.append(
                go.Scatter(
                    x=[0, 1],
                    y=rounded([budgets[name].allocator_mb] * 2, 4),
                    name=f"{name}, computed",
                    mode="lines",
                    line={"color": colour, "dash": "dot"},
                )
            )
    text = ", ".join(f"{n}: {len(t.seconds):,} allocator events" for n, t in traces.items())
    return figure(*lines, title="Allocated memory during three steps", x="share of the recorded time", y="MiB"), text


def card_fits(fits: Sequence[Fit]) -> tuple[go.Figure, str]:
    """What a rank holds for each way of training a large model, and the sizes of cards as lines."""
    names = [fit.name for fit in fits]
    state = rounded([fit.state_gb for fit in fits], 4)
    rest = rounded([fit.peak_gb - fit.state_gb for fit in fits], 4)
    picture = figure(
        go.Bar(name="state", y=names, x=state, orientation="h", marker={"color": BLUE}),
        go.Bar(name="gradients, activations, work space", y=names, x=rest, orientation="h", marker={"color": GREEN}),
        title="One rank of a large model, computed",
        x="GB",
        barmode="stack",
        height=420,
        margin_t=76,
    )
    picture.update_yaxes(autorange="reversed")
    for i, card in enumerate(CARDS_GB):  # their labels at two heights, so that neighbours do not touch
        label = {"text": f"{card} GB", "yshift": 14 + 12 * (i % 2)}
        picture.add_vline(x=card, line={"color": RED, "dash": "dash"}, annotation=label)
    rows = [f"{'':40}{'ranks':>6}{'state GB':>10}{'peak GB':>9}  fits {', '.join(map(str, CARDS_GB))} GB"]
    for fit in fits:
        told = ", ".join("yes" if ok else "no" for ok in fit.fits)
        rows.append(f"{fit.name:40}{fit.ranks:>6}{fit.state_gb:10.1f}{fit.peak_gb:9.1f}  {told}")
    return picture, "\n".join(rows)
