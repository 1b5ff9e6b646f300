"""Widgets for notebooks: a panel that says what it shows, and redraws when a control moves.

A panel's text form is its state, so that a stored output can be compared and a cell can move a
slider in code and look at the effect. Errors in a redraw are shown inside the panel: a widget
callback's exception is otherwise seen by nobody.
"""

from typing import Any, Callable, Mapping

import ipywidgets as widgets
import plotly.graph_objects as go

from workbench.errors import UserError


class Panel(widgets.VBox):
    """Controls above a live figure.

    ``draw(**values)`` returns (figure, text) for the values of the controls; it runs once at the
    start and whenever a control changes. ``panel.text`` is the current line of numbers and
    ``panel.error`` the message of the last redraw that failed, or "".
    """

    def __init__(self, title: str, controls: Mapping[str, Any], draw: Callable[..., tuple[go.Figure, str]]) -> None:
        self._title, self._controls, self._draw = title, dict(controls), draw
        self.text, self.error = "", ""
        self._message = widgets.HTML()
        self._figure = go.FigureWidget()
        for control in self._controls.values():
            control.observe(self._changed, names="value")
        super().__init__([widgets.HBox(list(self._controls.values())), self._figure, self._message])
        self.redraw()

    def _changed(self, _: Any) -> None:
        try:
            self.redraw()
        except Exception as error:  # shown to the person; kept in `error` for whoever asks
            self.error = f"{type(error).__name__}: {error}"
            self._message.value = f"<b style='color:#c8473d'>{self.error}</b>"
            if not isinstance(error, UserError):
                raise

    def redraw(self) -> None:
        """Draw again for the current values of the controls."""
        picture, text = self._draw(**{name: control.value for name, control in self._controls.items()})
        with self._figure.batch_update():
            self._figure.data = []
            self._figure.add_traces(list(picture.data))
            self._figure.layout = picture.layout
        self.text, self.error, self._message.value = text, "", f"<span>{text}</span>"

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={control.value!r}" for name, control in self._controls.items())
        return f"<{self._title}: {values} → {self.text}>"


def slider(label: str, value: Any, choices: list[Any]) -> widgets.SelectionSlider:
    """A slider over ``choices``; ``value`` is where it starts."""
    return widgets.SelectionSlider(
        options=choices, value=value, description=label, continuous_update=False, style={"description_width": "initial"}
    )


def chooser(label: str, value: Any, choices: list[Any]) -> widgets.Dropdown:
    """A drop-down list over ``choices``."""
    return widgets.Dropdown(options=choices, value=value, description=label, style={"description_width": "initial"})
