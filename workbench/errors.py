"""Mistakes a person can mend, told in one line.

``UserError`` carries what was given, what is allowed and which setting to change. The command
line prints it and exits with 2; a notebook shows the line alone, without a traceback. Anything
else that is raised is a defect of the workbench and keeps its traceback.
"""

from difflib import get_close_matches
from typing import Iterable


class UserError(ValueError):
    """A wrong setting, file or input; the message is one line and says what to change."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this in place of its own traceback.
        return [f"{type(self).__name__}: {self}"]


class SettingError(UserError):
    """A setting has a wrong name, type or value."""


class DataError(UserError):
    """The given data cannot be used."""


class StorageError(UserError):
    """A file cannot be written: the disk is full, the folder is gone or may not be written."""


class AlarmStop(UserError):
    """An alarm whose policy is ``stop`` ended the run."""


class RunStopped(KeyboardInterrupt):
    """A run was asked to stop: it saved a checkpoint, and the same call goes on from there."""

    _render_traceback_ = UserError._render_traceback_


def unknown_name(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a ``kind`` (``setting``, ``parameter``, ...) called ``name`` that does not exist."""
    known = sorted(known)
    # HIDDEN_SIZE is how a notebook spells hidden_size.
    near = [n for n in known if n.lower() == name.lower()] or get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return SettingError(f"unknown {kind} {name!r}{hint} (known: {', '.join(known)})")
