"""Tasks rendered part by part; perturbed copies that say what was done."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.documents import Document
from workbench.data.tasks import (
    PERTURBATIONS,
    answer_of,
    perturb,
    prompt_of,
    read_tasks,
    render_task,
    task_ids_of,
)
from workbench.errors import DataError


def test_a_task_is_prompts_without_loss_and_answers_with_loss():
    row = {"task_type": "qa", "language": "zh", "truth": 1, "turns": [{"question": "谁？", "answer": "米拉"}] * 2}
    rendered = render_task(row)
    assert rendered.parts == ("问题：谁？\n回答：", "米拉\n") * 2
    assert rendered.loss == (False, True, False, True)
    assert (rendered.task_type, rendered.truth) == ("qa", 1.0)


def test_an_instruction_with_a_response_is_a_task_of_one_turn():
    rendered = render_task({"instruction": "Say hi.", "response": "hi"})
    assert rendered.parts == (prompt_of("Say hi.", "en"), answer_of("hi", "en"))
    assert rendered.task_type == "instruction" and rendered.truth is None


def test_broken_rows_are_set_aside_with_their_line(tmp_path):
    file = tmp_path / "tasks.jsonl"
    good = json.dumps({"turns": [{"question": "q", "answer": "a"}]})
    lines = [good, "{broken", '{"turns": []}', '{"turns": [{"question": "q"}]}', "[1]", "", good, '{"text": "x"}']
    file.write_bytes("\n".join(lines).encode() + b'\n{"turns": "\xff"}\n')
    rejected = []
    assert len(read_tasks(file, rejected.append)) == 2
    assert [r.line for r in rejected] == [2, 3, 4, 5, 8, 9]
    assert all(r.reason.startswith("not a task: ") for r in rejected)


def test_a_missing_file_is_one_line_with_the_setting(tmp_path):
    with pytest.raises(DataError, match="tasks=.*no such file.*'' for none"):
        read_tasks(tmp_path / "nothing.jsonl", print)


def test_task_ids_start_at_one_and_too_many_types_are_refused():
    assert task_ids_of(["b", "a", "b", ""], 4) == {"a": 1, "b": 2}
    with pytest.raises(DataError, match="raise num_tasks"):
        task_ids_of("abcd", 4)


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=200), st.integers(0, 5))
def test_a_copy_depends_on_text_and_seed_alone_and_says_whether_it_changed(text, seed):
    one, two = (perturb(Document(text, source, 1, {"id": 7}), seed) for source in ("a", "b"))
    assert one.parts == two.parts
    assert one.meta["id"] == 7
    kind, _, unchanged = one.meta["perturbation"].partition(", ")
    assert kind in PERTURBATIONS
    assert (one.parts[0] == text) == (unchanged == "unchanged")


def test_shuffled_sentences_are_the_same_sentences():
    import random

    text = "一。二！三？Four. Five! 六"
    shuffled = PERTURBATIONS["shuffled sentences"](text, random.Random(1))
    assert shuffled != text and sorted(shuffled) == sorted(text)


def test_width_changes_both_ways_and_leaves_chinese_alone():
    change = PERTURBATIONS["width change"]
    assert change("AB 12，中文", None) == "AB 12,中文"
    assert change("AB 12 中文", None) == "ＡＢ １２ 中文"
