"""Pictures of communication: bucketing, the cost of a collective, simulated steps, busy shares."""

from typing import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from workbench.train.communication import ARTICLE, BASELINE, CommunicationTimes
from workbench.train.prefetching import BusyShare
from workbench.train.timeline import ARTICLE as OVERLAP_ARTICLE
from workbench.train.timeline import COMPUTE, LINK, Timeline
from workbench.views.show import BLUE, GREEN, GREY, ORANGE, PURPLE, figure, rounded

_KINDS = {"forward": BLUE, "recompute": GREY, "backward": GREEN, "bucket": ORANGE, "activation": PURPLE}


def bucketing(times: CommunicationTimes) -> tuple[go.Figure, str]:
    """Median milliseconds of each arm with its quartiles and number of collectives; and the saving in words."""
    medians = [1e3 * a.median for a in times.arms]
    quartiles = [[1e3 * q for q in a.quartiles] for a in times.arms]
    bars = go.Bar(
        x=[a.name for a in times.arms],
        y=rounded(medians),
        error_y={
            "type": "data",
            "array": rounded([high - m for (_, high), m in zip(quartiles, medians)]),
            "arrayminus": rounded([m - low for (low, _), m in zip(quartiles, medians)]),
        },
        text=[f"{a.collectives} collectives" if a.collectives > 1 else "1 collective" for a in times.arms],
        textposition="inside",
        insidetextanchor="start",  # at the foot, away from the error bars
        marker={"color": BLUE},
    )
    saved = ", ".join(f"{a.name} {-times.saved(a.name):+.0%}" for a in times.arms if a.name != BASELINE)
    text = (
        f"{times.workers} ranks, {times.repeats} rounds, against {BASELINE}: {saved} "
        f"(article: {ARTICLE['communication']:+.0%} time, {ARTICLE['throughput']:+.0%} throughput on 128 cards)"
    )
    return figure(bars, title="Summing all gradients once", y="ms, median and quartiles"), text


def collective_curve(times: CommunicationTimes) -> tuple[go.Figure, str]:
    """Time of one AllReduce against its size, and the line fitted to it; both axes logarithmic."""
    size, seconds = np.asarray(times.curve, float).T
    fitted = times.latency + size / times.bandwidth
    traces = (
        go.Scatter(x=rounded(size), y=rounded(1e3 * seconds), mode="markers", name="measured", marker={"color": BLUE}),
        go.Scatter(x=rounded(size), y=rounded(1e3 * fitted), mode="lines", name="fit", line={"color": ORANGE}),
    )
    worth = times.latency * times.bandwidth
    text = (
        f"one AllReduce: {1e3 * times.latency:.2f} ms + bytes / {times.bandwidth / 1e6:.0f} MB/s; "
        f"below {worth / 2**20:.2f} MiB most of it is the fixed cost"
    )
    made = figure(*traces, title="One AllReduce", x="bytes", y="ms")
    made.update_xaxes(type="log")
    made.update_yaxes(type="log")
    return made, text


def step_timeline(timelines: Mapping[str, Timeline]) -> tuple[go.Figure, str]:
    """Simulated steps below each other, a row for the computing lane and one for the link of each."""
    rows = [f"{name} · {lane}" for name in timelines for lane in (COMPUTE, LINK)]
    traces = []
    for kind, colour in _KINDS.items():
        spans = [(name, s) for name, t in timelines.items() for s in t.spans if s.name.startswith(kind)]
        traces.append(
            go.Bar(
                y=[f"{name} · {s.lane}" for name, s in spans],
                base=rounded([1e3 * s.start for _, s in spans]),
                x=rounded([1e3 * (s.end - s.start) for _, s in spans]),
                hovertext=[s.name for _, s in spans],
                orientation="h",
                name={"bucket": "gradients", "activation": "activations"}.get(kind, kind),
                marker={"color": colour, "line": {"color": "white", "width": 1}},
            )
        )
    told = ", ".join(f"{name} {1e3 * t.wall:.0f} ms ({t.busy:.0%} busy)" for name, t in timelines.items())
    without, busy, more = OVERLAP_ARTICLE.values()
    text = (
        f"simulation, overlap {told}; article: {without:.0%} → {busy:.0%} busy and "
        f"{more:+.0%} throughput, though {busy:.0%} / {without:.0%} is {busy / without - 1:+.0%}"
    )
    made = figure(
        *[t for t in traces if t.x],
        title="A step on two lanes (simulation)",
        x="ms",
        height=150 + 44 * len(rows),
        barmode="overlay",
        legend_y=-0.32,
    )
    made.update_yaxes(categoryorder="array", categoryarray=rows[::-1])
    return made, text


def prefetch(shares: Sequence[BusyShare], source: str = "") -> tuple[go.Figure, str]:
    """Share of the time in which a batch is computed, by where batches are made; ``source`` names it in the title."""
    bars = go.Bar(
        x=[s.name for s in shares],
        y=rounded([100 * s.busy for s in shares]),
        text=[f"{s.busy:.1%}" for s in shares],
        marker={"color": BLUE},
    )
    told = ", ".join(f"{s.name} {s.busy:.1%} (waits {1e3 * s.wait:.2f} ms a step)" for s in shares)
    text = f"{shares[0].steps} steps, {len(shares[0].wall)} rounds, busy: {told}"
    return figure(
        bars, title=f"Time spent computing{source and ', '}{source}", y="% of the loop", yaxis_range=[0, 100]
    ), text
