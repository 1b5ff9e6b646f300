"""Pictures of the loss scale: policies, runs with faults, and gradients against float16's limits."""

from typing import Mapping

import numpy as np
import plotly.graph_objects as go

from workbench.train.gradient_values import LARGEST, SMALLEST_NORMAL, SMALLEST_SUBNORMAL, Lost
from workbench.train.scaling import ScaleTrace
from workbench.train.stability import Course
from workbench.views.show import BLUE, COLOURS, GREY, ORANGE, RED, figure, rounded, thin


def scale_policies(traces: Mapping[str, ScaleTrace]) -> tuple[go.Figure, str]:
    """The loss scale of several policies over the same steps; crosses are skipped steps."""
    lines = []
    for colour, (name, trace) in zip(COLOURS, traces.items()):
        steps = np.arange(1, len(trace.scale) + 1)
        keep = np.unique(np.concatenate([thin(steps), np.flatnonzero(trace.skipped)]))
        lines.append(
            go.Scatter(
                x=steps[keep].tolist(),
                y=rounded(trace.scale[keep]),
                name=name,
                line={"color": colour, "shape": "hv"},
            )
        )
        at = np.flatnonzero(trace.skipped)
        lines.append(
            go.Scatter(
                x=steps[at].tolist(),
                y=rounded(trace.scale[at]),
                mode="markers",
                marker={"color": colour, "symbol": "x", "size": 7},
                showlegend=False,
                name=f"{name}, skipped",
            )
        )
    picture = figure(*lines, title="Loss scale by policy (× = skipped step)", x="step", y="scale")
    picture.update_yaxes(type="log")
    text = "; ".join(
        f"{name}: {int(t.skipped.sum())} of {len(t.scale)} steps skipped, last scale {t.scale[-1]:g}"
        for name, t in traces.items()
    )
    return picture, text


def losses_with_faults(courses: Mapping[str, Course]) -> tuple[go.Figure, str]:
    """The loss of several policies in training with faults (lines below); a curve ends with the parameters."""
    lines, told = [], []
    for number, (colour, (name, course)) in enumerate(zip(COLOURS, courses.items())):
        keep = thin(course.loss)
        # Policies that skip the same steps have the same curve: the first stays visible below the others.
        line = {"color": colour, "width": 6 if number == 0 else 2}
        lines.append(go.Scatter(x=(keep + 1).tolist(), y=rounded(course.loss[keep]), name=name, line=line))
        dead = np.flatnonzero(~course.finite)
        if dead.size:
            lines.append(
                go.Scatter(
                    x=[int(dead[0]) + 1],
                    y=rounded([course.loss[dead[0]]]),
                    mode="markers",
                    marker={"color": colour, "symbol": "x", "size": 12},
                    showlegend=False,
                    name=f"{name}, parameters not finite",
                )
            )
        end = f"parameters not finite after step {dead[0] + 1}" if dead.size else f"last loss {course.loss[-1]:.2f}"
        told.append(f"{name}: {int((~course.applied).sum())} of {len(course.loss)} steps skipped, {end}")
    struck = np.flatnonzero(next(iter(courses.values())).fault) + 1
    picture = figure(*lines, title="Loss with injected overflows (× = parameters lost)", x="step", y="nats a token")
    for step in struck[:50].tolist():
        picture.add_vline(x=step, line={"color": GREY, "width": 1, "dash": "dot"})
    return picture, f"{struck.size} faults; " + "; ".join(told)


def gradient_sizes(powers: np.ndarray, shares: np.ndarray, scale: float, lost: Lost) -> tuple[go.Figure, str]:
    """How large the scaled gradient values are (``sizes_by_power``), between float16's limits."""
    powers = powers + np.log2(scale)
    # A float16 below 2^-25 is zero, which is the end of the bar at -26.
    colours = np.where(powers < -25, BLUE, np.where(powers < -14, ORANGE, np.where(powers < 16, GREY, RED)))
    bars = go.Bar(x=powers.tolist(), y=rounded(100 * shares, 4), marker={"color": colours.tolist()}, width=1, offset=0)
    picture = figure(
        bars,
        title=f"Gradient values times a loss scale of 2^{np.log2(scale):g}",
        x="size, power of two",
        y="% of values",
        bargap=0,
    )
    limits = (
        (SMALLEST_SUBNORMAL, "smallest 6.0e-8", BLUE, "top left"),
        (SMALLEST_NORMAL, "full bits 6.1e-5", ORANGE, "top right"),
        (LARGEST, "largest 65,504", RED, "top right"),
    )
    for limit, word, colour, place in limits:
        picture.add_vline(
            x=float(np.log2(limit)),
            line={"color": colour, "dash": "dash"},
            annotation={"text": word, "font": {"size": 11}},
            annotation_position=place,
        )
    picture.update_xaxes(range=[-52, 44])
    return picture, (
        f"scale 2^{np.log2(scale):g}: {lost.to_zero:.2%} of the values round to zero, "
        f"{lost.subnormal:.2%} keep fewer bits, {lost.infinite:.2%} overflow"
    )


def half_precision_losses(
    exponents: np.ndarray, lost: list[Lost], errors: np.ndarray | None = None
) -> tuple[go.Figure, str]:
    """Share of gradient values that float16 loses at each loss scale 2**exponent, at both ends.

    ``errors`` are relative errors of real float16 gradients at the same scales, NaN where not measured.
    """
    shares = {"rounds to zero": [v.to_zero for v in lost], "overflows": [v.infinite for v in lost]}
    lines = [
        go.Scatter(
            x=exponents.tolist(),
            y=rounded(100 * np.asarray(share), 4),
            name=name,
            mode="lines+markers",
            line={"color": colour},
        )
        for (name, share), colour in zip(shares.items(), (BLUE, RED))
    ]
    safe = [int(e) for e, v in zip(exponents, lost) if v.to_zero < 0.001 and v.infinite == 0]
    text = (
        f"at scale 2^{exponents[0]} {lost[0].to_zero:.1%} round to zero, at 2^{exponents[-1]} "
        f"{lost[-1].infinite:.1%} overflow; safe (less than 0.1 % lost): "
        + (f"2^{min(safe)} to 2^{max(safe)}" if safe else "no scale")
    )
    if errors is not None:
        lines.append(
            go.Scatter(
                x=exponents.tolist(),
                y=rounded(100 * errors, 4),
                name="error of a float16 backward pass",
                mode="lines+markers",
                line={"color": GREY, "dash": "dot"},
                connectgaps=True,
            )
        )
        text += (
            f"; a float16 backward pass is off by {errors[0]:.1%} at 2^{exponents[0]}, {np.nanmin(errors):.2%} at best"
        )
        if np.isinf(errors).any():
            text += f", and overflows at 2^{exponents[np.isinf(errors)].min()}"
    return figure(
        *lines, title="What float16 loses of a gradient", x="loss scale, power of two", y="% of values, % error"
    ), text


def precision_losses(curves: Mapping[str, np.ndarray]) -> tuple[go.Figure, str]:
    """Losses (seeds, steps) by precision, minus those of the first one: mean and range over the seeds."""
    names = list(curves)
    exact, lines, told = curves[names[0]], [], []
    for colour, name in zip(COLOURS, names[1:]):
        apart = curves[name] - exact
        steps = list(range(1, apart.shape[1] + 1))
        for edge, options in ((apart.max(0), {}), (apart.min(0), {"fill": "tonexty"})):
            lines.append(
                go.Scatter(
                    x=steps, y=rounded(edge), line={"color": colour, "width": 0}, showlegend=False, name=name, **options
                )
            )
        lines.append(go.Scatter(x=steps, y=rounded(apart.mean(0)), name=name, line={"color": colour}))
        last = apart[:, -10:].mean(1)
        told.append(
            f"{name}: last ten steps {last.mean():+.4f} nats from {names[0]} ({last.min():+.4f} to {last.max():+.4f})"
        )
    seeds = exact[:, -10:].mean(1)
    text = f"{len(seeds)} seeds, which differ by {np.ptp(seeds):.4f} themselves; " + "; ".join(told)
    return figure(*lines, title=f"Loss minus that of {names[0]}, mean and range", x="step", y="nats a token"), text
