"""Widgets for notebooks: a panel that says what it shows, and redraws when a control moves.

A panel's text form is its state, so that a stored output can be compared and a cell can move a
slider in code and look at the effect. Errors in a redraw are shown inside the panel: a widget
callback's exception is otherwise seen by nobody.
"""

import html
from typing import Any, Callable, Mapping

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench.errors import UserError


class Panel(widgets.VBox):
    """Controls above a live figure.

    ``draw(**values)`` returns (figure, text) for the values of the controls; it runs once at the
    start and whenever a control changes. ``panel.controls`` are the controls by name,
    ``panel.text`` is the current line of numbers and ``panel.error`` the message of the last redraw that failed, or "".
    """

    def __init__(self, title: str, controls: Mapping[str, Any], draw: Callable[..., tuple[go.Figure, str]]) -> None:
        self.title, self.controls, self.draw = title, dict(controls), draw
        self.text, self.error = "", ""
        self.message = widgets.HTML()
        self.figure = go.FigureWidget()
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        super().__init__([widgets.HBox(list(self.controls.values())), self.figure, self.message])
        self.redraw()

    def _changed(self, _: Any) -> None:
        try:
            self.redraw()
        except Exception as error:  # nobody sees what a widget's callback raises: show it here
            self.error = f"{type(error).__name__}: {error}"
            self.message.value = f"<b style='color:#c8473d'>{html.escape(self.error)}</b>"
            if not isinstance(error, UserError):
                raise

    def redraw(self) -> None:
        """Draw again for the current values of the controls."""
        picture, text = self.draw(**{name: control.value for name, control in self.controls.items()})
        with self.figure.batch_update():
            self.figure.data = []
            self.figure.add_traces(list(picture.data))
            self.figure.layout = picture.layout
        self.text, self.error, self.message.value = text, "", f"<span>{html.escape(text)}</span>"

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={control.value!r}" for name, control in self.controls.items())
        return f"<{self.title}: {values} → {self.error or self.text}>"


def slider(label: str, value: Any, choices: list[Any]) -> widgets.SelectionSlider:
    """A slider over ``choices``; ``value`` is where it starts."""
    return widgets.SelectionSlider(
        options=choices, value=value, description=label, continuous_update=False, style={"description_width": "initial"}
    )


def chooser(label: str, value: Any, choices: list[Any]) -> widgets.Dropdown:
    """A drop-down list over ``choices``."""
    return widgets.Dropdown(options=choices, value=value, description=label, style={"description_width": "initial"})
