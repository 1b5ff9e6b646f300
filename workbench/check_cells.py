"""Cells tagged ``check``: what a notebook asks of its parameters, tried before any notebook starts.

A notebook may have one such cell right after its parameters. It builds the settings from them and
nothing else, so that a value that cannot work is refused in one line while nothing has happened
yet, and not in the middle of a run. The cell runs twice, here and in the notebook.

Costs what the cell costs, which must be little: no MindSpore import, no files.
"""

from typing import Any, Mapping

from workbench.errors import DataError, UserError
from workbench.parameters import TAG, Value

CHECK_TAG = "check"


def try_checks(notebook: Mapping[str, Any], values: Mapping[str, Value], name: str) -> None:
    """Run the notebook's check cells with ``values`` in place of its defaults.

    Raises the UserError that a cell raises, with the notebook's name before it, and DataError for
    a cell that fails in any other way.
    """
    tagged = [(c, set(c["metadata"].get("tags", []))) for c in notebook["cells"] if c["cell_type"] == "code"]
    if not any(CHECK_TAG in tags for _, tags in tagged):
        return
    namespace: dict[str, Any] = {}
    try:
        for cell, tags in tagged:
            if TAG in tags:
                exec(cell["source"], namespace)  # it is the notebook that is about to run
                namespace |= values
            elif CHECK_TAG in tags:
                exec(cell["source"], namespace)
    except UserError as error:
        raise type(error)(f"{name}: {error}") from error
    except Exception as error:
        raise DataError(f"{name}: its cell tagged {CHECK_TAG!r} fails: {type(error).__name__}: {error}") from error
