"""The alarm settings refuse in one line what makes no sense, and read the one-line form."""

from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.alarm_config import POLICIES, AlarmConfig
from workbench.errors import SettingError

KNOWN = sorted({policy for allowed in POLICIES.values() for policy in allowed})


def test_by_default_nothing_is_done_that_was_not_asked_for():
    stopping = {kind for kind in POLICIES if getattr(AlarmConfig(), kind) != "note"}
    assert stopping == {"non_finite_loss"} and AlarmConfig().non_finite_loss == "stop"
    assert AlarmConfig(**asdict(AlarmConfig(memory="stop"))) == AlarmConfig(memory="stop")


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("policy", KNOWN)
def test_each_alarm_takes_its_policies_and_no_other(kind, policy):
    if policy in POLICIES[kind]:
        assert getattr(AlarmConfig(**{kind: policy}), kind) == policy
    else:
        with pytest.raises(SettingError, match=f"^{kind}='{policy}' is not allowed: note"):
            AlarmConfig(**{kind: policy})


def test_only_what_is_known_before_the_update_is_skipped():
    assert {k for k, allowed in POLICIES.items() if "skip" in allowed} == {"loss_spike", "exploding_gradient"}
    assert all(POLICIES[k] == ("note", "stop") for k in ("throughput", "memory", "disk"))


NUMBERS = [f.name for f in fields(AlarmConfig) if f.name not in POLICIES]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range_are_refused_by_name(name):
    with pytest.raises(SettingError, match=name):
        AlarmConfig(**{name: -1})
    if isinstance(getattr(AlarmConfig(), name), float):
        for value in (float("nan"), float("inf")):
            with pytest.raises(SettingError, match=name):
                AlarmConfig(**{name: value})


def test_one_line_of_text():
    text = " loss_spike=rollback,scale_floor = freeze, rollback_checkpoints=2 , spike_nats=0.25,"
    wanted = AlarmConfig(loss_spike="rollback", scale_floor="freeze", rollback_checkpoints=2, spike_nats=0.25)
    assert AlarmConfig.from_text(text) == wanted
    assert AlarmConfig.from_text("") == AlarmConfig.from_text("  ") == AlarmConfig()


@given(st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in POLICIES.items()}))
def test_every_choice_of_policies_comes_through_the_text(chosen):
    assert AlarmConfig.from_text(", ".join(f"{k}={v}" for k, v in chosen.items())) == AlarmConfig(**chosen)


@pytest.mark.parametrize(
    "text, told",
    [
        ("loss_spikes=note", "unknown alarm setting 'loss_spikes'; did you mean 'loss_spike'?"),
        ("loss_spike", "name=value"),
        ("loss_spike=", "name=value"),
        ("loss_spike=ignore", "note, freeze, skip, rollback or stop"),
        ("memory=rollback", "memory='rollback' is not allowed: note or stop"),
        ("max_rollbacks=two", "max_rollbacks: 'two' is not allowed: expected int"),
        ("spike_nats=nan", "spike_nats"),
        ("loss_spike=note, loss_spike=stop", "given twice"),
        ("loss_spike=note; memory=stop", "loss_spike='note; memory=stop'"),
    ],
)
def test_wrong_text_is_refused(text, told):
    with pytest.raises(SettingError) as error:
        AlarmConfig.from_text(text)
    assert told in str(error.value) and "\n" not in str(error.value)
