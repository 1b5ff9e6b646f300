"""Findings: order, refusal of what is not a finding, and the printed table."""

import random

import pytest

from workbench.diagnose.findings import LAYERS, SEVERITIES, Finding, describe, ranked
from workbench.errors import SettingError


def make(cause="x", layer="exit", severity="note", step=None):
    return Finding(cause, layer, severity, ("seen",), "do this", step)


def test_ranked_sorts_by_severity_then_layer_then_step():
    wanted = [
        make(layer=layer, severity=s, step=step) for s in SEVERITIES for layer in LAYERS for step in (None, 3, 20)
    ]
    mixed = wanted[:]
    random.Random(1).shuffle(mixed)
    assert list(ranked(mixed)) == wanted


@pytest.mark.parametrize("wrong", [{"layer": "disk"}, {"severity": "bad"}])
def test_unknown_words_are_refused(wrong):
    with pytest.raises(SettingError, match="not allowed"):
        make(**wrong)


def test_a_finding_without_evidence_is_refused():
    with pytest.raises(SettingError, match="no evidence"):
        Finding("x", "exit", "note", (), "do this")


def test_describe_shows_everything_in_aligned_columns():
    text = describe(
        [Finding("memory leak", "memory", "warning", ("内存增长 5 MB", "second"), "look", 7), make("finished")]
    )
    lines = text.splitlines()
    assert len(lines) == 1 + 4 + 3
    assert lines[1].startswith("1  warning  memory         memory leak (step 7)")
    assert "内存增长 5 MB" in lines[2] and "second" in lines[3] and "look" in lines[4]
    start = lines[1].index("memory leak")
    assert lines[0].index("cause") == lines[2].index("内") == lines[3].index("second") == start
    assert str(make("finished")) == describe([make("finished")])
