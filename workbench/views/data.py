"""Pictures of the data pipeline: marked text, token boundaries, ledger, packing, mixture."""

import html

import numpy as np
import plotly.graph_objects as go
from IPython.display import HTML

from workbench.data.cleaning import Cleaned
from workbench.data.mixture import Mixture
from workbench.data.store import SampleSource
from workbench.data.windows import Ledger
from workbench.views.show import BLUE, COLOURS, GREEN, GREY, ORANGE, RED, figure, rounded

_SIGNS = {"\n": "\n", "\t": "⇥", "\r": "␍"}
_TINTS = ("#dbe8f6", "#fbe6cf", "#d9efe2", "#eadff5")


def marked_changes(raw: str, cleaned: Cleaned, limit: int = 1500) -> HTML:
    """The raw text with what cleaning removed struck out and what it replaced beside it, then the result."""
    out, at = [], 0
    for change in sorted(cleaned.changes, key=lambda c: (c.raw_start, c.raw_end)):
        if change.raw_start < at or change.raw_end > limit:
            continue
        out.append(html.escape(raw[at : change.raw_start]))
        out.append(
            f'<del title="{html.escape(change.rule)}" style="background:#f9d9d6">{_visible(change.before)}</del>'
            f'<ins style="background:#d9efe2;text-decoration:none">{_visible(change.after)}</ins>'
        )
        at = change.raw_end
    out.append(html.escape(raw[at:limit]))
    style = "white-space:pre-wrap;border:1px solid #e3e7eb;padding:8px;max-height:300px;overflow:auto;flex:1"
    return HTML(
        f'<div style="display:flex;gap:12px"><div style="{style}">{"".join(out)}</div>'
        f'<div style="{style}">{html.escape(cleaned.text[:limit])}</div></div>'
    )


def _visible(text: str) -> str:
    """Escaped for HTML, with what has no shape of its own (controls, zero width) as its code point."""
    shown = "".join(_SIGNS.get(c) or (c if c.isprintable() else f"⟨U+{ord(c):04X}⟩") for c in text)
    return html.escape(shown)


def coloured_tokens(pieces: list[str]) -> HTML:
    """Token boundaries on the text: each token in the next of four tints."""
    spans = [f'<span style="background:{_TINTS[i % 4]}">{html.escape(piece)}</span>' for i, piece in enumerate(pieces)]
    return HTML(f'<div style="white-space:pre-wrap;line-height:1.9">{"".join(spans)}</div>')


def ledger_waterfall(ledger: Ledger, name: str) -> tuple[go.Figure, str]:
    """Where the tokens of a source went, and what fills the slots of its rows."""
    token_steps = [
        ("tokens in", ledger.tokens_in, "absolute"),
        ("targets with loss", -ledger.targets_with_loss, "relative"),
        ("targets without loss", -ledger.targets_without_loss, "relative"),
        ("first of a document", -ledger.first_tokens, "relative"),
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
        f"+ {ledger.targets_without_loss:,} without loss + {ledger.first_tokens:,} first of a document; "
        f"{ledger.rows:,} rows, {ledger.utilisation:.2%} of slots hold a token"
    )
    return figure(trace, title=f"Token ledger: {name}", y="tokens", showlegend=False), text


def slot_shares(ledgers: dict[str, Ledger]) -> tuple[go.Figure, str]:
    """What fills the slots of each source's rows, in per cent."""
    parts = {
        "loss": ("slots_with_loss", BLUE),
        "read, no loss": ("slots_without_loss", GREEN),
        "overlap context": ("slots_overlap", ORANGE),
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
        *traces, title="What fills the rows", x="% of slots", barmode="stack", height=260
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
