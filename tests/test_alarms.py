"""Whole runs: clean ones raise no alarm, each fault one within its bound, and an interruption changes nothing."""

import json
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.alarm_config import POLICIES, AlarmConfig
from workbench.config import TrainConfig
from workbench.diagnose.leaks import leak_finding
from workbench.train.alarm_drills import DRILLS, RANKS, Trace, clean_trace, raised
from workbench.train.alarms import Alarms

CONFIG, TRAIN = AlarmConfig(), TrainConfig()
trace_of = lru_cache(maxsize=None)(clean_trace)


@pytest.mark.parametrize("seed", range(6))
def test_clean_runs_are_silent(seed):
    assert raised(trace_of(seed), CONFIG) == []


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("seed, at", [(0, 251), (1, 300), (2, 337)])
def test_each_fault_is_one_alarm_within_its_bound(name, seed, at):
    drill = DRILLS[name]
    (alarm,) = raised(drill.inject(trace_of(seed), at), CONFIG)
    assert alarm.kind == drill.kind and at <= alarm.step <= at + drill.bound
    assert alarm.policy == getattr(CONFIG, drill.kind) and "\n" not in alarm.message
    if alarm.about_data:
        assert at - 25 <= alarm.first_step <= alarm.last_step == alarm.step
    assert alarm.event()["alarm"] == drill.kind and "kind" not in alarm.event()


def test_every_alarm_has_a_drill():
    assert {drill.kind for drill in DRILLS.values()} == set(POLICIES)


def replayed(trace, config, cuts):
    """As ``raised``, going through JSON into a new object after each of the steps ``cuts``."""
    alarms, found, measured = Alarms(config, TRAIN, RANKS), [], dict(trace.evaluations)
    for row in trace.rows:
        found += alarms.after_step(row)
        if row["step"] in measured:
            found += alarms.after_evaluation(row["step"], measured[row["step"]])
        if row["step"] in cuts:
            state = json.loads(json.dumps(alarms.state(), allow_nan=False))
            alarms = Alarms(config, TRAIN, RANKS)
            alarms.load(state)
            assert alarms.state() == state
    return found


@settings(max_examples=8, deadline=None)
@given(
    st.sets(st.integers(1, 400), min_size=1, max_size=5),
    st.sets(st.sampled_from(sorted(DRILLS)), max_size=3),
    st.integers(20, 350),
    st.booleans(),
)
def test_an_interruption_changes_no_alarm(cuts, faults, at, skip):
    trace = Trace(trace_of(3).rows[:400], [e for e in trace_of(3).evaluations if e[0] <= 400])
    for name in sorted(faults):
        trace = DRILLS[name].inject(trace, at)
    config = AlarmConfig(loss_spike="skip", exploding_gradient="skip") if skip else CONFIG
    assert replayed(trace, config, cuts) == raised(trace, config)


def test_state_is_a_copy():
    alarms = Alarms(CONFIG, TRAIN, RANKS)
    for row in trace_of(0).rows[:60]:
        alarms.after_step(row)
    state = alarms.state()
    kept = json.dumps(state)
    other = Alarms(CONFIG, TRAIN, RANKS)
    other.load(state)
    for row in trace_of(0).rows[60:80]:
        alarms.after_step(row)
        other.after_step(row)
    assert json.dumps(state) == kept and other.state() == alarms.state()


def test_what_is_remembered_stays_small():
    alarms, sizes = Alarms(CONFIG, TRAIN, RANKS), []
    rows = trace_of(0).rows
    for number in range(3000):
        alarms.after_step({**rows[number % 600], "step": number + 1})
        if number % 1500 == 1499:
            sizes.append(len(json.dumps(alarms.state())))
    assert sizes[1] < 1.2 * sizes[0] < 20_000


def test_an_alarm_comes_again_only_after_it_has_cleared():
    trace = trace_of(4)
    for gap, count in ((30, 1), (51, 2), (120, 2)):
        twice = DRILLS["loss spike"].inject(DRILLS["loss spike"].inject(trace, 300), 300 + gap)
        assert [a.step for a in raised(twice, CONFIG)] == [300, 300 + gap][:count]
    dead = DRILLS["dead gradient"].inject(trace, 300)
    again = [r if 300 <= r["step"] < 320 or r["step"] >= 400 else trace.rows[i] for i, r in enumerate(dead.rows)]
    assert [a.step for a in raised(replace(trace, rows=again), CONFIG)] == [304, 404]


SKIPPING = AlarmConfig(loss_spike="skip", exploding_gradient="skip")


def skipped_as_trained(rows, config):
    """The alarms when steps above the limits are not applied, as the compiled step does it; and the limits."""
    alarms, found, limits = Alarms(config, TRAIN, RANKS), [], []
    for row in rows:
        limits.append(alarms.limits())
        skip = not row["overflow"] and (row["loss"] > limits[-1][0] or row["grad_norm"] > limits[-1][1])
        found += alarms.after_step({**row, "skipped": int(skip)})
    return found, limits


def test_skipped_steps_do_not_become_what_is_usual():
    shift = [{**r, "loss": r["loss"] + 3} if r["step"] >= 300 else r for r in trace_of(0).rows]
    found, limits = skipped_as_trained(shift, SKIPPING)
    assert [(a.step, a.policy) for a in found] == [(300, "skip"), (309, "stop")]
    assert found[1].first_step == 300 and "10 steps in a row" in found[1].message
    assert {loss for loss, _ in limits[300:]} == {limits[300][0]}
    # A shorter one is passed over, and the run goes on from where it was.
    short = [trace_of(0).rows[i] if r["step"] >= 309 else r for i, r in enumerate(shift)]
    found, _ = skipped_as_trained(short, SKIPPING)
    assert [(a.step, a.policy) for a in found] == [(300, "skip")]


def test_limits_are_for_skipping_only_and_need_a_window():
    for config, finite in ((CONFIG, (0, 0)), (AlarmConfig(loss_spike="skip"), (1, 0)), (SKIPPING, (1, 1))):
        _, limits = skipped_as_trained(trace_of(0).rows[:100], config)
        assert [x < float("inf") for x in limits[-1]] == list(map(bool, finite))
        assert limits[0] == limits[9] == (float("inf"), float("inf"))


def test_a_row_that_lacks_fields_is_not_watched_for_them():
    alarms = Alarms(CONFIG, TRAIN)
    assert [a for i in range(300) for a in alarms.after_step({"step": i})] == []


def test_another_number_of_ranks_begins_anew_what_is_not_comparable():
    alarms = Alarms(CONFIG, TRAIN, RANKS)
    hurt = DRILLS["ranks apart"].inject(trace_of(0), 300)
    (alarm,) = [a for row in hurt.rows for a in alarms.after_step(row)]
    fewer = Alarms(CONFIG, TRAIN, 2)
    fewer.load(alarms.state())
    half = [{**r, "rank_losses": r["rank_losses"][:2], "tokens_per_second": 1.0} for r in hurt.rows]
    again = [a for row in half for a in fewer.after_step(row) if a.kind in ("rank_divergence", "throughput")]
    assert [a.kind for a in again] == ["rank_divergence"]


def readings(level, steps=1700):
    return [{"step": i + 1, "rss_mb": float(level(i))} for i in range(steps)]


@pytest.mark.parametrize(
    "level, leaks",
    [
        (lambda i: 1000 + 0.1 * i + (i * 7919 % 13) / 3, True),
        (lambda i: 1000 + 0.03 * i, True),
        (lambda i: 1000 + (i * 7919 % 13) * 3, False),
        *((lambda i, at=at: 1000 + 300 * (i > at), False) for at in (500, 700, 703, 950)),
        (lambda i: 1000 + 200 * min(i, 90) / 90, False),
        (lambda i: 1000 + 500 * (i % 100 == 0), False),
    ],
    ids=["leak", "slow leak", "scatter", *["step"] * 4, "fills up", "peaks"],
)
def test_memory_agrees_with_the_finding_afterwards(level, leaks):
    rows = readings(level)
    online = [a for alarms in [Alarms(CONFIG, TRAIN)] for r in rows for a in alarms.after_step(r)]
    afterwards = leak_finding([r["step"] for r in rows], [r["rss_mb"] for r in rows])
    assert bool(online) == bool(afterwards) == leaks and len(online) <= 1


def test_a_late_leak_is_found_soon_and_a_new_process_begins_anew():
    late = readings(lambda i: 1000 + max(0, i - 4000) * 0.5, 5000)
    alarms = Alarms(CONFIG, TRAIN)
    (alarm,) = [a for r in late for a in alarms.after_step(r)]
    assert 4001 <= alarm.step <= 4240
    restarted = [{**r, "rss_mb": r["rss_mb"] - 950, "step": r["step"] + 5000} for r in readings(lambda i: 1000, 400)]
    assert [a for r in restarted for a in alarms.after_step(r)] == []


def test_the_disk_needs_room_for_the_checkpoints_that_are_known():
    alarms = Alarms(AlarmConfig(disk_checkpoints=3, disk_reserve_mb=100), TRAIN)

    def at(step, **row):
        return [a.message for a in alarms.after_step({"step": step, **row})]

    assert at(1, disk_free_mb=101.0) == [] and at(2, checkpoint_mb=200.0) == []
    (message,) = at(3, disk_free_mb=699.0)
    assert "699 MB free" in message and "limit 700 MB" in message
    assert at(4, disk_free_mb=600.0) == at(5, disk_free_mb=710.0) == at(6, disk_free_mb=690.0) == []
    assert at(7, disk_free_mb=771.0) == [] and len(at(8, disk_free_mb=690.0)) == 1
