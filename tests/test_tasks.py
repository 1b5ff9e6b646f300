"""Task rows in the shapes people have them, read from files; what is no task is set aside with a reason."""

import gzip
import json
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from chat_tokenizers import chat_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.rendered import Rendered
from workbench.data.tasks import answer_of, prompt_of, read_tasks, render_task
from workbench.data.templates import chat_templates
from workbench.errors import DataError


def test_a_task_is_prompts_without_loss_and_answers_with_loss():
    row = {"task_type": "qa", "language": "zh", "truth": 1, "turns": [{"question": "谁？", "answer": "米拉"}] * 2}
    rendered = render_task(row)
    assert rendered.parts == ("问题：谁？\n回答：", "米拉\n") * 2
    assert rendered.loss == (False, True, False, True) and rendered.control == ()
    assert (rendered.task_type, rendered.truth) == ("qa", 1.0)
    assert render_task(row, loss_on="all").loss == (True,) * 4


SHAPES = [
    {"turns": [{"question": "Who?", "answer": "Mira"}]},
    {"instruction": "Who?", "response": "Mira"},
    {"instruction": "Who?", "input": "", "output": "Mira"},
    {"instruction": "Who?", "input": None, "output": "Mira"},
    {"instruction": "Who?", "output": "Mira"},
    {"prompt": "Who?", "completion": "Mira"},
    {"question": "Who?", "answer": "Mira"},
    {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Mira"}]},
    {"turns": None, "messages": None, "instruction": None, "prompt": "Who?", "completion": "Mira"},
]


@pytest.mark.parametrize("row", SHAPES, ids=lambda row: "/".join(row))
def test_every_shape_gives_the_same_sample(row):
    rendered = render_task({**row, "id": 7, "domain": "people", "hops": 1, "note": ["x"]})
    assert rendered.parts == (prompt_of("Who?", "en"), answer_of("Mira", "en"))
    assert rendered.task_type == "instruction" and rendered.truth is None
    kept = {k: v for k, v in rendered.meta.items() if v is not None}
    assert kept == {"id": 7, "domain": "people", "hops": 1, "note": ["x"]}


def test_the_input_of_an_instruction_is_below_it():
    row = {"instruction": "Translate.", "input": "砂渡", "output": "Drosk"}
    assert render_task(row).parts[0] == prompt_of("Translate.\n砂渡", "zh")
    assert render_task({**row, "language": "en"}).parts[0] == prompt_of("Translate.\n砂渡", "en")


def test_a_chat_may_begin_with_a_system_message_and_be_rendered_by_a_chat_template(samples):
    said = [("system", "Be brief."), ("user", "Who?"), ("assistant", "Mira"), ("user", "And?"), ("assistant", "Tor")]
    row = {"messages": [{"role": role, "content": content} for role, content in said]}
    assert render_task(row).parts == ("Be brief.\n", *render_task({"messages": row["messages"][1:]}).parts)
    assert render_task(row).loss == (False, False, True, False, True)
    tokenizer = chat_tokenizer(samples, "qwen-like")
    rendered = render_task(row, chat_templates(tokenizer))
    assert "".join(rendered.parts) == tokenizer.apply_chat_template(row["messages"], tokenize=False)
    refusing = chat_templates(chat_tokenizer(samples, "brackets, no system"))
    with pytest.raises(DataError, match="takes? .*system|system message"):
        render_task(row, refusing)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "there are no fields; accepted are turns .* messages .* prompt/completion"),
        ({"text": "x", "id": 1}, "there are 'text', 'id'; accepted are"),
        ({"instruction": "x"}, "there are 'instruction'; accepted are"),
        ({"instruction": "x", "response": None}, "there are 'instruction', 'response'; accepted are"),
        ({"turns": []}, "turns is an empty list; accepted is a list of objects with question and answer"),
        ({"turns": "q"}, "turns is 'q'; accepted is a list"),
        ({"turns": ["q"]}, "turn 1 is 'q'; accepted is an object"),
        ({"turns": [{"question": "q", "answer": "a"}, {"question": "q"}]}, "the answer of turn 2 is missing"),
        ({"turns": [{"question": " \n", "answer": "a"}]}, "the question of turn 1 is empty; accepted is text"),
        ({"turns": [{"question": 3, "answer": "a"}]}, "the question of turn 1 is 3"),
        ({"prompt": [{"role": "user"}], "completion": "a"}, "prompt is a list; accepted is text"),
        ({"instruction": "q", "input": {"a": 1}, "output": "a"}, "input is a dict; accepted is text"),
        ({"messages": {}}, "messages is an empty dict; accepted is a list"),
        ({"messages": ["hi"]}, "message 1 is 'hi'"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "the content of message 1 is a list"),
        (
            {"messages": [{"role": "user", "content": "q"}]},
            "the roles are user; accepted is user and assistant in turn",
        ),
        ({"messages": [{"role": "system", "content": "s"}]}, "after the system message, the roles are none"),
        (
            {"messages": [{"role": "human", "content": "q"}, {"role": "gpt", "content": "a"}]},
            "the roles are human, gpt",
        ),
        (
            {"question": "q", "answer": "a", "truth": "yes"},
            "truth is 'yes'; accepted is 0 .false. to 1 .true., or none",
        ),
        ({"question": "q", "answer": "a", "truth": float("nan")}, "truth is nan"),
        ({"question": "q", "answer": "a", "truth": 2}, "truth is 2"),
        ({"question": "q", "answer": "a", "task_type": ["x"]}, "task_type is a list; accepted is a name"),
    ],
)
def test_a_wrong_shape_is_told_by_what_was_there_and_what_is_accepted(row, said):
    with pytest.raises(DataError, match=said) as caught:
        render_task(row)
    assert "\n" not in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "question", "answer", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_FIELDS = ["turns", "messages", "instruction", "input", "output", "response", "prompt", "completion", "question"]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*_FIELDS, "answer", "truth", "task_type", "language"]), _JSON, max_size=6))
def test_any_row_is_a_sample_or_a_reason(row):
    try:
        rendered = render_task(row)
    except DataError as error:
        assert str(error)
    else:
        assert any(rendered.loss) and all(rendered.parts)


def test_files_of_all_kinds_are_read_with_their_places(tmp_path):
    rows = [{"question": f"q{i} 谁？", "answer": "a", "id": i, "task_type": "qa"} for i in range(4)]
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0], ensure_ascii=False) + "\n\n" + json.dumps(rows[1]) + "\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(rows[2]).encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([rows[3]]), tmp_path / "c.parquet")
    (tmp_path / "README.md").write_text("Not a task.")
    rejected = []
    for patterns in (tmp_path, str(tmp_path / "*"), [tmp_path / "a.jsonl", str(tmp_path / "[bc].*")]):
        tasks = list(read_tasks(patterns, rejected.append))
        assert [t.meta["id"] for t in tasks] == [0, 1, 2, 3] and not rejected
        assert [(t.meta["source"].rsplit("/", 1)[1], t.meta["line"]) for t in tasks] == [
            ("a.jsonl", 1),
            ("a.jsonl", 3),
            ("b.jsonl.gz", 1),
            ("c.parquet", 1),
        ]
    assert all(t.parts[0] == f"问题：q{i} 谁？\n回答：" for i, t in enumerate(tasks))


def test_turns_and_messages_come_through_parquet(tmp_path):
    turns = [{"question": "q", "answer": "a"}, {"question": "r", "answer": "b"}]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"turns": turns, "messages": None}, {"turns": None, "messages": messages}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    rejected = []
    tasks = list(read_tasks(tmp_path / "t.parquet", rejected.append))
    assert not rejected and [len(t.parts) for t in tasks] == [4, 2]


def test_broken_rows_are_set_aside_with_their_line(tmp_path):
    file = tmp_path / "tasks.jsonl"
    good = json.dumps({"turns": [{"question": "q", "answer": "a"}]})
    lines = [good, "{broken", '{"turns": []}', '{"turns": [{"question": "q"}]}', "[1]", "", good, '{"text": "x"}']
    file.write_bytes("\n".join(lines).encode() + b'\n{"turns": "\xff"}\n')
    rejected = []
    assert len(list(read_tasks(file, rejected.append))) == 2
    assert [r.line for r in rejected] == [2, 3, 4, 5, 8, 9]
    assert [r.kind for r in rejected if r.line in (3, 4, 8)] == ["not a task"] * 3
    assert all(r.source == str(file) and r.reason for r in rejected)


def test_a_missing_or_wrong_file_is_one_line_with_the_setting_before_anything_is_read(tmp_path):
    with pytest.raises(DataError, match="tasks=.*nothing.jsonl.*'' for none"):
        read_tasks(tmp_path / "nothing.jsonl", print)
    (tmp_path / "tasks.txt").write_text("x")
    for pattern in (tmp_path / "tasks.txt", tmp_path):
        with pytest.raises(DataError, match="tasks=.*tasks.txt is not .jsonl or .parquet.*'' for none"):
            read_tasks(pattern, print)


def test_a_sample_whose_lengths_disagree_is_refused():
    for loss, control in (((True,), ()), ((True, False), (True,)), ((True, True, True), (True, True))):
        with pytest.raises(ValueError, match="one loss a part"):
            Rendered(("a", "b"), loss, control)


def test_the_modules_that_worker_processes_import_are_light():
    names = ["tasks", "templates", "perturb", "homophones", "selection", "swapped_facts"]
    code = f"import {', '.join(f'workbench.data.{n}' for n in names)}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"transformers", "mindspore", "tokenizers", "pypinyin", "jinja2"} & set(loaded)
