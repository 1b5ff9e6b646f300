"""Pictures of the data pipeline: ledger, packing, mixture, ranks, overlap."""

import numpy as np
import plotly.graph_objects as go

from workbench.data.ledger import Ledger
from workbench.data.mixture import Mixture
from workbench.data.sharding import RankBalance
from workbench.data.sources import SampleSource
from workbench.views.show import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, RED, figure, rounded


def ledger_waterfall(ledger: Ledger, name: str) -> tuple[go.Figure, str]:
    """Where the tokens of a source went, and what fills the slots of its rows."""
    token_steps = [
        ("tokens in", ledger.tokens_in, "absolute"),
        ("targets with loss", -ledger.targets_with_loss, "relative"),
        ("targets without loss", -ledger.targets_without_loss, "relative"),
        ("first of a document", -ledger.first_tokens, "relative"),
        *((f"dropped: {reason}", -tokens, "relative") for reason, tokens in ledger.dropped.items()),
        ("unaccounted", 0, "total"),
    ]
    trace = go.Waterfall(
        x=[s[0] for s in token_steps],
        y=[s[1] for s in token_steps],
        measure=[s[2] for s in token_steps],
        text=[f"{abs(s[1]):,}" for s in token_steps],
        decreasing={"marker": {"color": BLUE}},
        totals={"marker": {"color": GREY}},
        increasing={"marker": {"color": RED}},
        connector={"line": {"color": GREY, "width": 1}},
    )
    text = (
        f"{name}: {ledger.tokens_in:,} tokens in = {ledger.targets_with_loss:,} with loss "
        f"+ {ledger.targets_without_loss:,} without loss + {ledger.first_tokens:,} first of a document "
        f"+ {sum(ledger.dropped.values()):,} dropped; "
        f"{ledger.rows:,} rows, {ledger.utilisation:.2%} of slots hold a token"
    )
    return figure(trace, title=f"Token ledger: {name}", y="tokens", showlegend=False), text


def slot_shares(ledgers: dict[str, Ledger]) -> tuple[go.Figure, str]:
    """What fills the slots of each source's rows, in per cent."""
    parts = {
        "loss": ("slots_with_loss", BLUE),
        "read, no loss": ("slots_without_loss", GREEN),
        "overlap context": ("slots_overlap", ORANGE),
        "overlap with loss": ("slots_repeated", PURPLE),
        "padding": ("slots_padding", GREY),
    }
    names = list(ledgers)
    traces = [
        go.Bar(
            name=label,
            y=names,
            x=rounded([100 * getattr(ledgers[n], field) / max(1, ledgers[n].slots) for n in names]),
            orientation="h",
            marker={"color": colour},
        )
        for label, (field, colour) in parts.items()
    ]
    text = ", ".join(f"{n} {ledgers[n].utilisation:.2%}" for n in names)
    return figure(
        *traces,
        title="What fills the rows",
        x="% of slots",
        barmode="stack",
        height=300,
        legend={"orientation": "h", "x": 0, "y": -0.42, "yanchor": "top", "traceorder": "normal"},
    ), f"utilisation: {text}"


def row_layout(source: SampleSource, rows: list[int]) -> tuple[go.Figure, str]:
    """Packed rows as coloured segments: one band a window, overlap context paler, padding empty."""
    batch = source.batch(np.asarray(rows), np.asarray(rows))
    segments, labels = batch["segment_ids"], batch["labels"]
    shade = np.where(segments == 0, np.nan, (segments - 1) % 3 + 1 - 0.6 * (labels == -100))
    trace = go.Heatmap(
        z=[[None if np.isnan(v) else round(float(v), 1) for v in row] for row in shade],
        y=[f"row {r}" for r in rows],
        colorscale=[[0, "#dbe8f6"], [0.25, BLUE], [0.5, GREEN], [1, ORANGE]],
        zmin=0.4,
        zmax=3,
        showscale=False,
        ygap=4,
    )
    text = f"{source.name}: rows hold {[int(s.max()) for s in segments]} windows, {int((segments == 0).sum())} slots are padding"
    picture = figure(
        trace, title=f"How rows are packed: {source.name} (paler: read without loss)", x="position", height=300
    )
    picture.update_yaxes(autorange="reversed")
    return picture, text


def share_windows(mixture: Mixture, length: int = 1000) -> tuple[go.Figure, str]:
    """The share of each source in every stretch of ``length`` samples, against what was asked."""
    count = max(length, min(mixture.epoch_length, 20 * length))
    _, source, _ = mixture.locate(np.arange(count))
    starts = np.arange(0, count - length + 1, max(1, length // 10))
    asked = sum(s.share for s in mixture.sources)
    traces, worst = [], 0.0
    for i, s in enumerate(mixture.sources):
        cumulative = np.concatenate([[0], np.cumsum(source == i)])
        share = 100 * (cumulative[starts + length] - cumulative[starts]) / length
        worst = max(worst, float(np.abs(share - 100 * s.share / asked).max()))
        traces.append(go.Scatter(x=starts.tolist(), y=rounded(share), name=s.name, line={"color": COLOURS[i]}))
    text = f"largest distance from the asked share in any {length:,} samples: {worst:.2f} percentage points"
    return figure(*traces, title=f"Share of each source in {length:,} samples", x="first sample", y="%"), text


def rank_balance(balances: list[RankBalance], domains: list[str], most: int = 8) -> tuple[go.Figure, str]:
    """Share of each domain that each rank sees, one block of rows a way of sharing out; pale and even is good."""
    weight = np.sum([b.domain_share.sum(0) for b in balances], axis=0)
    shown = np.argsort(-weight, kind="stable")[:most]
    labels = [f"{b.way} · rank {r}" for b in balances for r in range(b.ranks)]
    shares = np.concatenate([b.domain_share[:, shown] for b in balances])
    trace = go.Heatmap(
        z=[[round(100 * float(v), 1) for v in row] for row in shares],
        x=[domains[i] for i in shown],
        y=labels,
        texttemplate="%{z:.0f}",
        colorscale=[[0, "white"], [1, BLUE]],
        zmin=0,
        zmax=100,
        showscale=False,
        ygap=1,
    )
    text = "; ".join(
        f"{b.way}: domains differ by up to {b.domain_spread:.0%} between ranks, loss by {b.loss_spread:.2f} nats"
        for b in balances
    )
    height = 120 + 22 * len(labels)
    picture = figure(trace, title="What each rank gets to see, % of its tokens by domain", height=height)
    picture.update_yaxes(autorange="reversed")
    picture.update_layout(margin={"l": 190, "r": 24, "t": 48, "b": 70})
    return picture, text


def overlap_curves(losses: dict[str, np.ndarray], positions: dict[str, np.ndarray]) -> tuple[go.Figure, str]:
    """Held-out loss against positions computed, the band of the seeds for each arm.

    ``losses`` (seeds, evaluations) and ``positions`` (evaluations,) by the name of the arm.
    """
    traces = []
    for i, (name, runs) in enumerate(losses.items()):
        x, colour = rounded(positions[name]), COLOURS[i % len(COLOURS)]
        band = {"showlegend": False, "hoverinfo": "skip", "line": {"width": 0}, "mode": "lines"}
        shade = {"fill": "tonexty", "fillcolor": "rgba(154,163,173,0.25)"}
        traces += [
            go.Scatter(x=x, y=rounded(runs.max(0)), **band),
            go.Scatter(x=x, y=rounded(runs.min(0)), **shade, **band),
            go.Scatter(x=x, y=rounded(runs.mean(0)), name=name, line={"color": colour}),
        ]
    ends = ", ".join(f"{n}: {r[:, -1].mean():.3f} (±{np.ptp(r[:, -1]) / 2:.3f})" for n, r in losses.items())
    picture = figure(*traces, title="Held-out loss", x="positions computed", y="nats a token")
    return picture, f"last held-out loss, mean of {len(next(iter(losses.values())))} seeds (± half the range): {ends}"
