"""A panel in JupyterLab that watches a run and steers it through its folder, while another process trains.

    live_panel(RunFolder.at("runs/demo"))

The status line, loss with validation perplexity, loss scale, throughput, memory, the last events, and
buttons: Pause or Continue, Stop, Save now. It knows nothing but the run folder, so it can be opened and
closed at any time, beside a run on this machine or on one that shares the folder. Open it in a notebook
with a kernel of its own: in the kernel that trains, the numbers move, but a click is heard only when the
cell has ended (ipykernel 7.4 hands a widget's messages to the shell that made the widget, also where
JupyterLab 4.6 sends them to a subshell; 2026-11-30, in Chromium), so the buttons are off there.

Costs, once a second while the run goes on: the new bytes of the logs, and one message to the browser
with the curves that changed, of at most ``following.POINTS`` points each. A thread does that until the
run has ended, the panel is closed, or another panel is made for the same folder. Where nobody looks on
(``progress.quiet``) there is no thread, and the panel is shown as a picture of what is known.
"""

import html
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench.control import ask
from workbench.errors import UserError
from workbench.following import RunWatch, event_text
from workbench.progress import quiet, step_line
from workbench.run_folder import RunFolder
from workbench.views.show import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, figure, rounded

EVENTS = 8  # shown
_GOING_ON = ("starting", "training", "paused", "stopping", "silent")
_OVER = ("finished", "stopped")
_open: dict[Path, "LivePanel"] = {}


def live_panel(run: RunFolder, every: float = 1.0) -> "LivePanel":
    """The panel of ``run``, which need not have begun, brought up to date ``every`` so many seconds."""
    if run.path in _open:
        _open[run.path].close()
    panel = _open[run.path] = LivePanel(run)
    if not quiet() and not panel.over:
        threading.Thread(target=panel.follow, args=(every,), daemon=True, name=f"panel of {run.path}").start()
    return panel


class LivePanel(widgets.VBox):
    """``text`` is the line on top, ``error`` what went wrong at the last update or request, or ""."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.watched = run, RunWatch(run)
        self.text, self.error, self.over = "", "", False
        self._closed, self._one_at_a_time = threading.Event(), threading.Lock()
        self.status, self.told, self.message = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.buttons = {what: widgets.Button(description=word) for what, word in _WORDS.items()}
        for what, button in self.buttons.items():
            button.on_click(lambda _, what=what: self._ask(what))
        self.chart = go.FigureWidget(live_figure(self.watched))
        super().__init__([widgets.HBox(list(self.buttons.values())), self.message, self.status, self.chart, self.told])
        self.update()

    @property
    def picture(self) -> go.Figure:
        """What the panel shows now, for a page without a kernel."""
        return live_figure(self.watched)

    def follow(self, every: float) -> None:
        """Update until the run has ended or the panel is closed."""
        while not self.over and not self._closed.wait(0 if self.watched.unread else every):
            self.update()

    def update(self) -> None:
        """Read what is new and show it; what goes wrong is shown until the next request, and the update tried again."""
        with self._one_at_a_time:
            try:
                self._update()
            except Exception as error:  # nobody sees what a thread raises
                self._say(f"{type(error).__name__}: {error}", wrong=True)

    def _update(self) -> None:
        self.watched.read(whole=quiet())
        word, sentence = self.watched.state()
        line = step_line(**self.watched.facts())
        self.text = " · ".join(part for part in (sentence, line) if part) if word != "training" else line
        colour = {"died": RED, "silent": RED, "paused": ORANGE, "stopping": ORANGE}.get(word, GREEN)
        self.status.value = f"<b style='color:{colour}'>{word}</b> &ensp;{html.escape(self.text)}"
        self._draw()
        self.told.value = _events(list(self.watched.events)[-EVENTS:])
        opened = self.watched.opened
        own = opened is not None and (opened["pid"], opened["host"]) == (os.getpid(), socket.gethostname())
        for what, button in self.buttons.items():
            button.disabled = own or word not in _GOING_ON or word == "stopping"
            button.layout.display = "none" if what == ("pause" if word == "paused" else "continue") else ""
        self.over = word in _OVER
        if self.over and not self.error:
            self._say("the run has ended; run this cell again to watch another one in the same folder")
        elif own and not self.error:
            self._say(
                f"this kernel is busy training: steer it from notebook 12, or with workbench ask {self.run.path} stop"
            )

    def _draw(self) -> None:
        new = [(trace, shown) for trace, shown in zip(self.chart.data, _curves(self.watched))]
        changed = [(trace, x, y) for trace, (x, y) in new if x != list(trace.x or ()) or y != list(trace.y or ())]
        if changed:
            with self.chart.batch_update():
                for trace, x, y in changed:
                    trace.update(x=x, y=y)

    def _ask(self, what: str) -> None:
        try:
            ask(self.run, what)
        except Exception as error:  # nobody sees what a click raises
            self._say(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}", wrong=True)
        else:
            self.update()
            self._say(f"asked to {what}: it is done after the step that is going on")

    def _say(self, text: str, wrong: bool = False) -> None:
        self.error = text if wrong else ""
        colour = f" style='color:{RED}'" if wrong else ""
        self.message.value = f"<span{colour}>{html.escape(text)}</span>" if text else ""

    def close(self) -> None:
        """Stop updating and take the panel away."""
        self._closed.set()
        super().close()

    def __repr__(self) -> str:
        return f"<live panel: {self.error or self.text}>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if quiet():
            return {"application/vnd.plotly.v1+json": json.loads(self.picture.to_json()), "text/plain": self.text}
        return super()._repr_mimebundle_(**options)


_WORDS = {"pause": "Pause", "continue": "Continue", "save": "Save now", "stop": "Stop"}


def live_figure(watched: RunWatch) -> go.Figure:
    """Four small plots over the steps: loss with validation perplexity, loss scale, throughput, memory."""
    looks = (
        ("loss", "x", "y", {"line": {"color": BLUE, "width": 1}, "mode": "lines"}),
        ("validation perplexity", "x", "y5", {"line": {"color": ORANGE}, "mode": "lines+markers"}),
        ("loss scale", "x2", "y2", {"line": {"color": PURPLE, "shape": "hv"}, "mode": "lines"}),
        ("tokens/s", "x3", "y3", {"line": {"color": GREEN, "width": 1}, "mode": "lines"}),
        ("memory", "x4", "y4", {"line": {"color": GREY}, "mode": "lines"}),
    )
    traces = [
        go.Scatter(x=x, y=y, name=name, xaxis=xaxis, yaxis=yaxis, **look)
        for (name, xaxis, yaxis, look), (x, y) in zip(looks, _curves(watched))
    ]
    picture = figure(*traces, title="", height=460, showlegend=False)
    axis = {k: v for k, v in picture.layout.xaxis.to_plotly_json().items() if k != "title"}
    left, right, above, below = [0, 0.42], [0.56, 0.98], [0.58, 0.96], [0, 0.38]
    places = {"": (left, above), "2": (right, above), "3": (left, below), "4": (right, below)}
    titles = ("loss (blue), validation perplexity (orange)", "loss scale", "tokens per second", "resident memory, MB")
    for (n, (x, y)), title in zip(places.items(), titles):
        picture.update_layout({f"xaxis{n}": {**axis, "domain": x, "anchor": f"y{n}"}})
        picture.update_layout({f"yaxis{n}": {**axis, "domain": y, "anchor": f"x{n}", "automargin": True}})
        picture.add_annotation(
            text=title, x=x[0], y=y[1], xref="paper", yref="paper", xanchor="left", yanchor="bottom", showarrow=False
        )
    second = {"overlaying": "y", "anchor": "x", "side": "right", "type": "log", "showgrid": False, "tickcolor": ORANGE}
    picture.update_layout(yaxis5=second, yaxis2_type="log", margin={"t": 24, "b": 36})
    return picture.update_layout(yaxis2_tickformat=".2~s", yaxis5_tickformat=".2~s")


def _curves(watched: RunWatch) -> list[tuple[list[float], list[float]]]:
    curves = watched.curves
    shown = (curves["loss"], watched.perplexities, curves["scale"], curves["throughput"], curves["memory"])
    return [(x, rounded(y)) for x, y in (curve.points() for curve in shown)]


def _events(events: list[dict[str, Any]]) -> str:
    bad = ("alarm", "rollback", "overflow", "skipped", "damaged checkpoint")
    lines = [(f" style='color:{RED}'" if e["kind"] in bad else "", html.escape(event_text(e))) for e in events]
    return "<div style='line-height:1.4'>" + "".join(f"<div{style}>{text}</div>" for style, text in lines) + "</div>"
