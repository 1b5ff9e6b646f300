"""A training sample as text parts, each asked for or only read; what tasks, templates and copies become.

Parts are encoded one by one, so that a prompt has the same tokens whatever follows it. Holds text
only and pickles small. Does not do: tokens, or begin and end of text, which are added around it.
"""

from dataclasses import dataclass, field
from typing import Any, Mapping


@dataclass(frozen=True)
class Rendered:
    """A sample as ``parts`` in order; ``loss[i]`` says whether part i is asked for.

    ``control[i]`` says that part i is a template's scaffolding, in which the strings of special
    tokens become these tokens; () is none, and text never does. ``truth`` is 1.0 for a text that
    is true, 0.0 for one known to be false, None where unknown. Raises ValueError where the
    lengths disagree.
    """

    parts: tuple[str, ...]
    loss: tuple[bool, ...]
    control: tuple[bool, ...] = ()
    task_type: str = ""
    truth: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.loss) != len(self.parts) or len(self.control) not in (0, len(self.parts)):
            lengths = f"{len(self.parts)} parts, {len(self.loss)} loss, {len(self.control)} control"
            raise ValueError(f"a rendered sample of {lengths}: one loss a part, and one control a part or none")
