"""What makes a settings class: a frozen dataclass that refuses wrong names, types and values in one line.

A wrong name is refused with the nearest known one, a wrong type or value with what was given, what
is allowed and which setting to change.
"""

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from workbench.errors import SettingError, unknown_name


def settings(cls: type) -> type:
    """Class decorator: a frozen keyword-only dataclass whose names and types are checked.

    An ``int`` is accepted where a ``float`` is asked for (and stored as a float); nothing else
    is converted. Raises SettingError.
    """
    cls = dataclass(frozen=True, kw_only=True)(cls)
    made, hints, names = cls.__init__, get_type_hints(cls), [f.name for f in fields(cls)]

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in names:
                raise unknown_name("setting", name, names)
            hint = hints[name]
            if hint is float and type(value) is int:
                values[name] = value = float(value)
            if hint in (int, float, str, bool) and type(value) is not hint:
                raise SettingError(f"{name}: {value!r} is a {type(value).__name__}, expected {hint.__name__}")
        made(self, **values)

    cls.__init__ = __init__
    return cls


def require(ok: bool, name: str, value: Any, allowed: str) -> None:
    """Raise SettingError for setting ``name`` unless ``ok``; ``allowed`` says what would be."""
    if not ok:
        raise SettingError(f"{name}={value!r} is not allowed: {allowed}")
