"""Pictures of a run under examination: its vital signs with the findings marked on them."""

from typing import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.diagnose.findings import Finding
from workbench.views.show import COLOURS, RED, figure, rounded, thin

_SIGNS = (
    ("loss", "loss", "nats"),
    ("loss_scale", "loss scale", ""),
    ("rss_mb", "memory", "MB"),
    ("step_seconds", "step time", "s"),
)


def vital_signs(rows: list[dict], findings: Sequence[Finding]) -> tuple[go.Figure, str]:
    """Loss, loss scale, memory and step time by step; steps named by fatal findings and warnings in red."""
    shared = make_subplots(rows=len(_SIGNS), cols=1, shared_xaxes=True, vertical_spacing=0.04)
    keep = thin(rows)
    steps = [rows[i]["step"] for i in keep]
    for at, ((name, label, unit), colour) in enumerate(zip(_SIGNS, COLOURS), 1):
        values = [rows[i].get(name) for i in keep]
        y = rounded([np.nan if v is None else v for v in values])
        shared.add_trace(
            go.Scatter(x=steps, y=y, name=label, line={"color": colour, "width": 1}, showlegend=False), row=at, col=1
        )
        shared.update_yaxes(title_text=f"{label} {unit}".strip(), row=at, col=1)
    shared.update_yaxes(type="log", row=2, col=1)
    look = figure(title="Vital signs").layout
    shared.update_layout(
        template="none", title=look.title, font=look.font, height=560, margin={"l": 76, "r": 24, "t": 48, "b": 48}
    )
    shared.update_xaxes(title_text="step", row=len(_SIGNS), col=1)
    marked = sorted({f.step for f in findings if f.step is not None and f.severity != "note"})
    for step in marked:
        shared.add_vline(x=step, line={"color": RED, "width": 1, "dash": "dot"})
    causes = ", ".join(dict.fromkeys(f.cause for f in findings if f.severity != "note"))
    return shared, f"{len(rows)} steps; {causes or 'no fault'}" + (f"; marked steps {marked}" if marked else "")
