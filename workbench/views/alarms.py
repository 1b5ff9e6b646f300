"""Pictures of alarms: what was watched, where the fault began and where it was told."""

import math
from typing import Mapping

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.train.alarm_drills import Drill, Trace
from workbench.train.alarms import Alarm
from workbench.views.show import BLUE, GREY, ORANGE, RED, figure, rounded, thin

# What each alarm watches: title, field of the rows, whether on a logarithmic axis.
_WATCHED = {
    "perplexity_jump": ("validation perplexity", "", True),
    "loss_spike": ("loss, nats", "loss", False),
    "non_finite_loss": ("loss, nats", "loss", False),
    "scale_floor": ("loss scale", "loss_scale", True),
    "rank_divergence": ("between ranks, nats", "rank_losses", False),
    "dead_gradient": ("gradient norm", "grad_norm", True),
    "exploding_gradient": ("gradient norm", "grad_norm", True),
    "throughput": ("tokens a second", "tokens_per_second", True),
    "memory": ("memory, MB", "rss_mb", False),
    "disk": ("free disk, MB", "disk_free_mb", True),
}
Tried = Mapping[str, tuple[Drill, Trace, list[Alarm]]]


def drills(clean: Trace, tried: Tried, at: int) -> tuple[go.Figure, str]:
    """A small picture for each fault of ``tried``: what its alarm watches, with the fault at step ``at`` and without.

    ``tried`` maps a name to (drill, the trace with the fault, the alarms it raised). Orange is where the
    fault began, red each alarm.
    """
    columns = min(3, len(tried))
    lines = math.ceil(len(tried) / columns)
    titles = [f"{name}: {_WATCHED[drill.kind][0]}" for name, (drill, _, _) in tried.items()]
    shared = make_subplots(
        rows=lines, cols=columns, subplot_titles=titles, vertical_spacing=0.3 / lines, horizontal_spacing=0.07
    )
    said = []
    for number, (name, (drill, trace, alarms)) in enumerate(tried.items()):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        last = max([a.step for a in alarms], default=at)
        window = (at - 80, last + max(40, (last - at) // 4))
        for one, colour in ((clean, GREY), (trace, BLUE)):
            steps, values = _series(one, drill.kind, *window)
            keep = thin(steps, 120)
            shared.add_trace(
                go.Scatter(
                    x=[steps[i] for i in keep],
                    y=rounded([values[i] for i in keep], 4),
                    line={"color": colour, "width": 1},
                    showlegend=False,
                    name="with the fault" if one is trace else "without",
                ),
                **place,
            )
        shared.add_vline(x=at, line={"color": ORANGE, "width": 1, "dash": "dot"}, **place)
        for alarm in alarms:
            shared.add_vline(x=alarm.step, line={"color": RED, "width": 2}, **place)
        if _WATCHED[drill.kind][2]:
            shared.update_yaxes(type="log", **place)
        said.append(f"{name} {', '.join(f'+{a.step - at}' for a in alarms) or 'not found'}")
    look = figure(title="Faults (orange) and their alarms (red)").layout
    shared.update_layout(
        template="none",
        title=look.title,
        font=look.font,
        height=90 + 170 * lines,
        margin={"l": 56, "r": 16, "t": 72, "b": 36},
    )
    shared.update_annotations(font_size=11)
    return shared, f"steps from fault to alarm: {'; '.join(said)}"


def _series(trace: Trace, kind: str, first: int, last: int) -> tuple[list[int], list[float]]:
    """(steps, values) of what alarm ``kind`` watches, from step ``first`` to ``last``."""
    if kind == "perplexity_jump":
        kept = [(step, perplexity.value) for step, perplexity in trace.evaluations]
    else:
        name = _WATCHED[kind][1]
        kept = [(row["step"], row[name]) for row in trace.rows if row.get(name) is not None]
    kept = [(step, float(np.ptp(value))) if isinstance(value, list) else (step, value) for step, value in kept]
    kept = [(step, value) for step, value in kept if first <= step <= last]
    return [step for step, _ in kept], [value for _, value in kept]
