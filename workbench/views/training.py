"""Pictures of training: loss, and the health of a run."""

import numpy as np
import plotly.graph_objects as go

from workbench.diagnose.health import LOWER_IS_WORSE, METRICS, HealthReport
from workbench.evaluate.perplexity import Perplexity
from workbench.views.show import BLUE, COLOURS, GREEN, GREY, ORANGE, RED, figure, rounded, thin


def loss_curve(
    rows: list[dict], perplexities: list[tuple[int, Perplexity]], unigram: Perplexity | None = None
) -> tuple[go.Figure, str]:
    """Training loss by step, and validation loss with its interval, beside the unigram model's."""
    keep = thin(rows)
    traces = [
        go.Scatter(
            x=[rows[i]["step"] for i in keep],
            y=rounded([rows[i]["lm_loss"] for i in keep]),
            name="training",
            line={"color": GREY, "width": 1},
        )
    ]
    steps = [s for s, _ in perplexities]
    if perplexities:
        loss = np.asarray([p.loss for _, p in perplexities])
        high = np.log([p.high for _, p in perplexities]) - loss
        low = loss - np.log([p.low for _, p in perplexities])
        traces.append(
            go.Scatter(
                x=steps,
                y=rounded(loss),
                name="validation, 95 % interval",
                mode="lines+markers",
                line={"color": BLUE},
                error_y={"type": "data", "array": rounded(high), "arrayminus": rounded(low)},
            )
        )
    text = f"{len(rows)} steps, training loss {rows[0]['lm_loss']:.2f} → {rows[-1]['lm_loss']:.2f} nats a token"
    if perplexities:
        text += f"; validation perplexity {perplexities[0][1].value:.0f} → {perplexities[-1][1].value:.1f}"
    if unigram:
        traces.append(
            go.Scatter(
                x=[0, rows[-1]["step"]],
                y=rounded([unigram.loss] * 2),
                name="unigram model",
                line={"color": ORANGE, "dash": "dash"},
            )
        )
        text += f" (unigram model {unigram.value:.0f})"
    return figure(*traces, title="Loss", x="step", y="nats a token"), text


def scale_and_norm(rows: list[dict]) -> tuple[go.Figure, str]:
    """Loss scale and gradient norm by step on logarithmic axes, skipped steps marked."""
    keep = thin(rows)
    steps = [rows[i]["step"] for i in keep]
    skipped = [r["step"] for r in rows if r["overflow"]]
    traces = [
        go.Scatter(
            x=steps,
            y=rounded([rows[i]["loss_scale"] for i in keep]),
            name="loss scale",
            line={"color": BLUE, "shape": "hv"},
        ),
        go.Scatter(
            x=steps,
            y=rounded([rows[i]["grad_norm"] for i in keep]),
            name="gradient norm",
            yaxis="y2",
            line={"color": GREEN, "width": 1},
        ),
    ]
    if skipped:
        scales = {r["step"]: r["loss_scale"] for r in rows}
        traces.append(
            go.Scatter(
                x=skipped,
                y=rounded([scales[s] for s in skipped]),
                name="skipped",
                mode="markers",
                marker={"color": RED, "symbol": "x"},
            )
        )
    picture = figure(
        *traces,
        title="Loss scale and gradient norm",
        x="step",
        y="loss scale",
        yaxis2={"overlaying": "y", "side": "right", "type": "log", "title": {"text": "norm"}, "showgrid": False},
    )
    picture.update_yaxes(type="log", selector={"side": None})
    picture.update_layout(yaxis_type="log", margin_r=64)
    norms = [r["grad_norm"] for r in rows if not r["overflow"]]
    text = f"{len(skipped)} of {len(rows)} steps skipped, scale {rows[0]['loss_scale']:g} → {rows[-1]['loss_scale']:g}"
    return picture, text + (f", median gradient norm {np.median(norms):.2f}" if norms else "")


def chain_survival(named: dict) -> tuple[go.Figure, str]:
    """Share of chains still right after each hop, and (dotted, where not zero) hop accuracy with given answers."""
    traces = []
    for colour, (name, report) in zip(COLOURS, named.items()):
        hops = list(range(1, len(report.survival) + 1))
        traces.append(
            go.Scatter(
                x=hops, y=rounded(100 * report.survival), name=name, mode="lines+markers", line={"color": colour}
            )
        )
        if not report.given.any():
            continue
        traces.append(
            go.Scatter(
                x=hops,
                y=rounded(100 * report.given),
                name=f"{name}, answers given",
                mode="lines",
                line={"color": colour, "dash": "dot"},
            )
        )
    text = "; ".join(f"{name}: depth {report.depth}" for name, report in named.items())
    return figure(*traces, title="Chains still right after each hop", x="hop", y="% of chains"), text


def health_readings(report: HealthReport, word: str) -> tuple[go.Figure, str]:
    """Each health metric as a multiple of its limit; where a manual review is asked for is marked.

    For a metric that is bad when low (device_utilization) the picture shows limit / value, so that
    above 1 is over the limit for every line.
    """
    lines = []
    for colour, name in zip(COLOURS, METRICS):
        mine = [r for r in report.readings if r.metric == name and r.value is not None]
        ratio = [r.limit / max(r.value, 1e-9) if name in LOWER_IS_WORSE else r.value / r.limit for r in mine]
        lines.append(
            go.Scatter(
                x=[r.day for r in mine], y=rounded(ratio, 4), name=name, mode="lines+markers", line={"color": colour}
            )
        )
    picture = figure(*lines, title="Health metrics as multiples of their limits", x=word, y="× limit")
    picture.add_hline(y=1, line={"color": RED, "dash": "dash"})
    for review in report.reviews:
        picture.add_vline(x=review.day, line={"color": RED, "width": 1})
    reviews = ", ".join(f"{r.metric} in {word} {r.day}" for r in report.reviews)
    return picture, f"{len({r.day for r in report.readings})} {word}s, manual review asked for: {reviews or 'none'}"
