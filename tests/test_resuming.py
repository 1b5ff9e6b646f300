"""What a run goes on from, and what must be as it was."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from workbench.alarm_config import AlarmConfig
from workbench.config import DataConfig, RunConfig, TrainConfig
from workbench.data.fingerprints import order_fingerprint, parts_of, token_fingerprints
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError, SettingError
from workbench.run_folder import RunFolder, write_json
from workbench.train.checkpoint import save_checkpoint
from workbench.train.resuming import check_surroundings, checkpoint_to_resume, is_unfinished
from workbench.train.rollback import Excluded

CONFIG = RunConfig()
PRINTS = {"data": "aa", "tokenizer": "bb", "cleaning": "cc", "settings": "dd", "order": "ee"}
HERE = {"packages": {"numpy": "1.26.4"}, "python": "3.11.2", "system": "Linux", "processor": "x86_64", "ranks": 1}


def state(**changed):
    given = {"fingerprints": PRINTS, "position": 320, "excluded": []}
    return {"step": 20, "config": CONFIG.as_dict(), "data": given, "environment": HERE, **changed}


def check(saved=None, config=CONFIG, prints=PRINTS, allow=(), here=HERE):
    return check_surroundings(saved or state(), config, SimpleNamespace(fingerprints=prints), allow, here)


def with_train(**values):
    return replace(CONFIG, train=replace(CONFIG.train, **values))


def test_the_same_surroundings_are_no_change():
    assert check() == []


def test_a_changed_setting_is_refused_by_name_with_both_values_and_can_be_allowed():
    other = with_train(learning_rate=0.01, weight_decay=0.0)
    with pytest.raises(DataError) as refused:
        check(config=other)
    told = str(refused.value)
    assert "step 20" in told and "train.learning_rate: 0.003 then, 0.01 now" in told and "\n" not in told
    assert "train.weight_decay: 0.1 then, 0.0 now" in told
    assert told.endswith("allow_changes: learning_rate, weight_decay")
    with pytest.raises(DataError, match="weight_decay") as one_left:
        check(config=other, allow=("learning_rate",))
    assert "learning_rate: 0.003" not in str(one_left.value)
    changes = check(config=other, allow=("train.learning_rate", "WEIGHT_DECAY"))
    assert {(c["name"], c["then"], c["now"], c["allowed"]) for c in changes} == {
        ("train.learning_rate", 0.003, 0.01, True),
        ("train.weight_decay", 0.1, 0.0, True),
    }


def test_other_data_is_refused_with_both_fingerprints():
    with pytest.raises(DataError, match="data: 'aa' then, 'ff' now"):
        check(prints={**PRINTS, "data": "ff"})
    with pytest.raises(DataError, match="tokenizer: 'bb' then, 'ff' now"):
        check(prints={**PRINTS, "tokenizer": "ff"}, allow=("data",))
    changes = check(prints={**PRINTS, "data": "ff"}, allow=("data",))
    assert changes == [{"name": "data", "then": "aa", "now": "ff", "allowed": True}]


def test_a_changed_setting_of_the_data_explains_the_fingerprint_and_allows_it():
    other, prints = replace(CONFIG, data=DataConfig(overlap=0.5)), {**PRINTS, "order": "ff"}
    with pytest.raises(DataError, match="order: 'ee' then, 'ff' now; data.overlap: 0.25 then, 0.5 now"):
        check(config=other, prints=prints)
    assert {c["name"]: c["allowed"] for c in check(config=other, prints=prints, allow=("overlap",))} == {
        "order": True,
        "data.overlap": True,
    }


def test_a_setting_that_is_allowed_does_not_let_other_data_through():
    other, prints = replace(CONFIG, data=DataConfig(overlap=0.5)), {**PRINTS, "order": "ff", "data": "gg"}
    with pytest.raises(DataError, match="data: 'aa' then, 'gg' now"):
        check(config=other, prints=prints, allow=("overlap",))
    assert len(check(config=other, prints=prints, allow=("overlap", "data"))) == 3


def test_every_setting_of_the_data_changes_the_parts_that_it_is_said_to():
    values = {True: False, False: True, "text": "body", "NFC": "NFKC", "auto": "plain", "keep": "simplified"}
    values |= {"domain": "kind", "samples": "tokens", "base_exhausted": "all_exhausted", "response": "all"}
    tokenizer = load_tokenizer(CONFIG.data.tokenizer)

    def prints(config):
        return {**token_fingerprints(config, tokenizer, None), "order": order_fingerprint(config)}

    before = prints(CONFIG.data)
    for name, value in vars(CONFIG.data).items():
        if name in ("data", "tasks", "tokenizer", "base_share", "task_share", "perturbed_share"):
            continue
        other = 7 if name == "seed" else value * 2 if type(value) in (int, float) else values[value]
        other = "always" if name == "markup" else other
        after = prints(replace(CONFIG.data, **{name: other}))
        assert {part for part in before if before[part] != after[part]} <= parts_of(name), name


def test_data_that_was_moved_is_the_same_data():
    changes = check(config=replace(CONFIG, data=DataConfig(data="/elsewhere/corpus", tasks="/elsewhere/t.jsonl")))
    assert [c["name"] for c in changes] == ["data.data", "data.tasks"]


@pytest.mark.parametrize(
    "values", [{"save_steps": 7}, {"eval_steps": 3}, {"recompute": "block"}, {"optimizer_offload": "host"}]
)
def test_what_leaves_the_numbers_alone_is_told_and_not_refused(values):
    (change,) = check(config=with_train(**values))
    assert change["name"] == f"train.{next(iter(values))}" and not change["allowed"]


def test_alarms_versions_and_ranks_are_told_and_not_refused():
    alarms = replace(CONFIG, alarms=AlarmConfig(loss_spike="rollback"))
    here = {**HERE, "packages": {"numpy": "1.26.5"}, "ranks": 4}
    told = {c["name"]: (c["then"], c["now"]) for c in check(config=alarms, here=here)}
    assert told["alarms.loss_spike"] == ("note", "rollback") and told["ranks"] == (1, 4)
    assert told["packages"] == ({"numpy": "1.26.4"}, {"numpy": "1.26.5"})


def test_a_name_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match="did you mean 'learning_rate'"):
        check(allow=("learning_rat",))


@pytest.fixture
def run(tmp_path):
    run = RunFolder.at(tmp_path)
    run.log_event("start", steps=30)
    for step in (10, 20):
        facts = {**state(), "data": {**state()["data"], "position": 16 * step}}
        save_checkpoint(run, step, {"w": np.ones(3, np.float32)}, {"m": np.ones(3, np.float32)}, facts, 5)
    return run


def test_an_unfinished_run_is_gone_on_with_and_a_finished_one_begun_anew(run):
    assert is_unfinished(run) and checkpoint_to_resume(run, "auto")[0].state["step"] == 20
    assert checkpoint_to_resume(run, "never") == (None, ())
    run.log_event("finish", step=30)
    assert checkpoint_to_resume(run, "auto") == (None, ())
    assert checkpoint_to_resume(run, "always")[0].state["step"] == 20
    run.log_event("resume", step=20)
    assert checkpoint_to_resume(run, "auto")[0].state["step"] == 20


def test_a_damaged_one_is_named_and_the_one_before_used(run):
    with (run.checkpoints / "step_000020" / "optimizer.safetensors").open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"x")
    checkpoint, ((error, path),) = checkpoint_to_resume(run, "auto")
    assert checkpoint.state["step"] == 10 and path.name == "step_000020" and "optimizer.safetensors" in str(error)
    (run.checkpoints / "step_000010" / "state.json").unlink()
    with pytest.raises(DataError, match="begin anew with resume='never'"):
        checkpoint_to_resume(run, "auto")


def test_a_checkpoint_that_was_trained_on_excluded_data_is_not_used(run):
    back = {"step": 10, "from_step": 14, "excluded": [200, 216]}
    write_json(run.path / "excluded.json", {"ranges": [[200, 216]], "rollbacks": [back]})
    checkpoint, ((error, path),) = checkpoint_to_resume(run, "auto")
    assert checkpoint.state["step"] == 10 and path.name == "step_000020" and "200 to 216" in str(error)


def test_killed_while_rolling_back_by_two_the_one_between_is_not_used(run):
    back = {"step": 10, "from_step": 24, "excluded": [368, 384]}  # step 20 has not seen the samples
    write_json(run.path / "excluded.json", {"ranges": [[368, 384]], "rollbacks": [back]})
    checkpoint, ((error, path),) = checkpoint_to_resume(run, "auto")
    assert checkpoint.state["step"] == 10 and path.name == "step_000020" and "from step 24 to step 10" in str(error)
    excluded = Excluded.of(run)
    excluded.tell(run)
    excluded.tell(run)
    (event,) = run.events("rollback")
    assert {name: event[name] for name in back} == back


def test_killed_while_a_new_run_sets_the_old_one_aside(run, monkeypatch):
    rename, left = Path.rename, [0]

    def killed(self, target):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    run.log_metrics({"step": 1})
    for renamed in (0, 1, 0, 1, 0):
        left[0] = renamed
        with pytest.raises(KeyboardInterrupt):
            run.start_logs()
        assert left[0] < 0 and (run.checkpoints.exists() or checkpoint_to_resume(run, "auto") == (None, ()))
    left[0] = 9
    run.start_logs()
    assert [p.name for p in run.path.iterdir()] == ["earlier"]


def test_nothing_to_go_on_from(tmp_path):
    empty = RunFolder.at(tmp_path / "empty")
    assert checkpoint_to_resume(empty, "auto") == (None, ())
    with pytest.raises(DataError, match="no checkpoint in .*begins anew"):
        checkpoint_to_resume(empty, "always")
    with pytest.raises(SettingError, match="resume='yes' is not allowed: auto, always, never"):
        checkpoint_to_resume(empty, "yes")
    empty.log_event("start")
    assert checkpoint_to_resume(empty, "auto") == (None, ())


def test_train_settings_that_are_free_exist():
    from workbench.train.resuming import FREE

    names = {f"train.{n}" for n in vars(TrainConfig())} | {"device"}
    assert set(FREE) <= names
