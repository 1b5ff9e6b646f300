"""What a diagnosis says: a named cause, how bad it is, the evidence for it and the next step.

Costs nothing. It holds no diagnosis itself; the other files of this folder make findings, and
``describe`` prints any list of them.
"""

from dataclasses import dataclass
from typing import Iterable

from workbench.errors import SettingError

SEVERITIES = ("fatal", "warning", "note")
# The order in which they are examined: each layer is cheaper to check than the one after it,
# and a cause in an earlier layer explains symptoms in the later ones.
LAYERS = ("exit", "memory", "data pipeline", "numerics")


@dataclass(frozen=True)
class Finding:
    """One named cause.

    ``cause`` is a short stable phrase (``"host out of memory"``), ``layer`` one of LAYERS,
    ``severity`` one of SEVERITIES, ``evidence`` the observations it rests on, ``next_step`` what
    to do now, ``step`` the training step where it starts (None where there is none).
    Raises SettingError for an unknown severity or layer and for a finding without evidence.
    """

    cause: str
    layer: str
    severity: str
    evidence: tuple[str, ...]
    next_step: str
    step: int | None = None

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise SettingError(f"severity={self.severity!r} is not allowed: one of {', '.join(SEVERITIES)}")
        if self.layer not in LAYERS:
            raise SettingError(f"layer={self.layer!r} is not allowed: one of {', '.join(LAYERS)}")
        if not self.evidence:
            raise SettingError(f"the finding {self.cause!r} has no evidence: give at least one observation")

    def __str__(self) -> str:
        return describe([self])


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Most severe first; among equals by layer, then by step, so that a cause precedes its consequences."""

    def place(finding: Finding) -> tuple[int, int, int]:
        step = -1 if finding.step is None else finding.step
        return SEVERITIES.index(finding.severity), LAYERS.index(finding.layer), step

    return tuple(sorted(findings, key=place))


def describe(findings: Iterable[Finding]) -> str:
    """A readable text table: one heading line a finding, evidence and next step under it.

    Free text stands in the last column only, so text of any width (Chinese too) keeps it aligned.
    """
    lines = [f"{'':3}{'severity':9}{'layer':15}cause"]
    for number, finding in enumerate(findings, start=1):
        at = "" if finding.step is None else f" (step {finding.step})"
        lines.append(f"{number:<3}{finding.severity:9}{finding.layer:15}{finding.cause}{at}")
        for label, texts in (("evidence", finding.evidence), ("next step", (finding.next_step,))):
            for text in texts:
                lines.append(f"{'':12}{label:15}{text}")
                label = ""
    return "\n".join(lines)
