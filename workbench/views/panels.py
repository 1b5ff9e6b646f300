"""Widgets for notebooks: a panel that says what it shows, and redraws when a control moves.

A panel's text form is its state, so that a stored output can be compared and a cell can move a
slider in code and look at the effect. Errors in a redraw are shown inside the panel: a widget
callback's exception is otherwise seen by nobody.
"""

import html
from typing import Any, Callable, Mapping

import ipywidgets as widgets
import plotly.graph_objects as go
from IPython.display import HTML

from workbench.errors import UserError


Drawn = tuple[go.Figure | HTML, str]


class Panel(widgets.VBox):
    """Controls above a live figure, or above live HTML.

    ``draw(**values)`` returns (figure or HTML, text) for the values of the controls; it runs once
    at the start and whenever a control changes, and always returns the same kind. ``panel.controls``
    are the controls by name, ``panel.picture`` is what is shown now (for pages without a kernel),
    ``panel.text`` the current line of numbers and ``panel.error`` the message of the last redraw that
    failed, or "".
    """

    def __init__(self, title: str, controls: Mapping[str, Any], draw: Callable[..., Drawn]) -> None:
        self.title, self.controls, self.draw = title, dict(controls), draw
        self.text, self.error = "", ""
        self.message = widgets.HTML()
        picture, text = draw(**self._values())
        self.figure = widgets.HTML() if isinstance(picture, HTML) else go.FigureWidget()
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        row = widgets.HBox(list(self.controls.values()), layout=widgets.Layout(flex_flow="row wrap"))
        super().__init__([row, self.figure, self.message])
        self._put(picture, text)

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
        self._put(*self.draw(**self._values()))

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def _put(self, picture: go.Figure | HTML, text: str) -> None:
        self.picture = picture
        if isinstance(picture, HTML):
            self.figure.value = picture.data
        else:
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
