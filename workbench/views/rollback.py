"""The picture of a run that went back: what it is now, and the steps that were taken back."""

import plotly.graph_objects as go

from workbench.run_folder import RunFolder, read_lines
from workbench.views.show import BLUE, ORANGE, RED, figure, rounded


def rolled_back(run: RunFolder) -> tuple[go.Figure, str]:
    """The loss of ``run`` by step, the steps computed and taken back since (red), and where it went on (orange).

    Steps are taken back by a rollback, and by going on from a checkpoint after a crash.
    """
    rows = run.metrics()
    redone = list(read_lines(run.path / "earlier" / "redone-metrics.jsonl"))
    picture = figure(title="Loss of the run, and of the steps that were taken back", x="step", y="loss, nats")
    for name, some, mode, colour in (("the run", rows, "lines", BLUE), ("taken back", redone, "markers", RED)):
        picture.add_trace(
            go.Scatter(
                x=[r["step"] for r in some],
                y=rounded([r["loss"] for r in some], 4),
                mode=mode,
                name=name,
                marker={"color": colour, "size": 6},
                line={"color": colour, "width": 1.5},
            )
        )
    told = []
    for event in run.events():
        if event["kind"] in ("resume", "rollback"):
            picture.add_vline(x=event["step"], line={"color": ORANGE, "width": 1, "dash": "dot"})
            first, last = event.get("excluded", (0, 0))
            told.append(
                f"{event['kind']} to step {event['step']}" + (f", without samples {first} to {last}" if last else "")
            )
    return picture, f"{len(rows)} steps, {len(redone)} taken back; {'; '.join(told) or 'never interrupted'}"
