"""Task samples: conversations with metadata, in the shapes people have them, made into text parts.

    {"task_type": "qa", "turns": [{"question": …, "answer": …}, …]}         one or more turns
    {"instruction": …, "response": …}                                       one turn
    {"instruction": …, "input": …, "output": …}                             Alpaca; input may be missing
    {"prompt": …, "completion": …}      {"question": …, "answer": …}
    {"messages": [{"role": "user", "content": …}, …]}                       Hugging Face chat

A row of several shapes is read as the first it has in this order. ``task_type``, ``language``
(``en`` or ``zh``) and ``truth`` (0 to 1) are read; they and all other fields, ``domain``, ``hops`` and
``id`` among them, stay in ``meta``. Task ids number the task types, from 1; id 0 means no task.

Costs a line in memory at a time. Does not do: tokens, or pictures, tools and reasoning in messages.
"""

from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from workbench.data.documents import Rejected, read_documents
from workbench.data.files import find_files, kind_of
from workbench.data.rendered import Rendered
from workbench.data.templates import PLAIN, Templates, answer_of, language_of, prompt_of
from workbench.errors import DataError

__all__ = [
    "Rendered",
    "answer_of",
    "language_of",
    "prompt_of",
    "read_tasks",
    "render_task",
]

KINDS = (".jsonl", ".parquet")
# Question field, then the fields one of which holds the answer.
_PAIRS = (
    ("instruction", ("response", "output")),
    ("prompt", ("completion",)),
    ("question", ("answer",)),
)
_ACCEPTED = (
    "turns (a list of question and answer), messages (a list of role and content), or a pair "
    "instruction/response, instruction/output, prompt/completion, question/answer"
)


def render_task(row: Mapping[str, Any], templates: Templates = PLAIN, loss_on: str = "response") -> Rendered:
    """A task row as text parts. Raises DataError that says what was there and what is accepted."""
    system, turns, used = _conversation(row)
    language, truth = row.get("language"), _truth(row)
    task_type = row.get("task_type")
    if task_type is not None and not isinstance(task_type, (str, int)):
        raise DataError(f"task_type is {_told(task_type)}; accepted is a name")
    language = language if language in ("en", "zh") else ""
    parts, loss, control = templates.render(turns, language, system, loss_on)
    meta = {name: value for name, value in row.items() if name not in used}
    return Rendered(parts, loss, control, "instruction" if task_type in (None, "") else str(task_type), truth, meta)


def read_tasks(
    patterns: str | Path | Sequence[str | Path],
    on_reject: Callable[[Rejected], None],
    templates: Templates = PLAIN,
    loss_on: str = "response",
) -> Iterator[Rendered]:
    """The tasks of .jsonl (also .gz, .zst) and .parquet files, folders and globs, one at a time.

    ``meta`` gets the ``source`` (file) and ``line`` of each. What is no task goes to ``on_reject``.
    Raises DataError at once where there is no file of these kinds; others in a folder are passed over.
    """
    files = _task_files(patterns)

    def tasks() -> Iterator[Rendered]:
        for document in read_documents(files, text_field=None, on_reject=on_reject):
            try:
                done = render_task(document.meta, templates, loss_on)
            except DataError as error:
                on_reject(Rejected(document.source, document.line, f"not a task: {error}"))
                continue
            meta = {**done.meta, "source": document.source, "line": document.line}
            yield Rendered(done.parts, done.loss, done.control, done.task_type, done.truth, meta)

    return tasks()


def _task_files(patterns: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [patterns] if isinstance(patterns, (str, Path)) else list(patterns)
    shown = ", ".join(map(str, given))
    try:
        files = find_files(given)
    except DataError as error:
        raise DataError(f"tasks={shown!r}: {error}; give .jsonl or .parquet files of tasks, or '' for none") from error
    named = {Path(pattern).expanduser() for pattern in given}
    kept = [file for file in files if kind_of(file) in KINDS]
    wrong = [file for file in files if kind_of(file) not in KINDS and (file in named or not kept)]
    if wrong:
        raise DataError(f"tasks={shown!r}: {wrong[0].name} is not .jsonl or .parquet; give such files, or '' for none")
    return kept


def _conversation(row: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], tuple[str, ...]]:
    """(system message or "", turns, the fields they were in)."""
    if row.get("turns") is not None:
        return "", _turns(row["turns"]), ("turns",)
    if row.get("messages") is not None:
        return *_messages(row["messages"]), ("messages",)
    for asking, answering in _PAIRS:
        answers = [name for name in answering if row.get(name) is not None]
        if row.get(asking) is not None and answers:
            question, answer = _text(row[asking], asking), _text(row[answers[0]], answers[0])
            if asking != "instruction":
                return "", [(question, answer)], (asking, answers[0])
            more = row.get("input") or ""
            if not isinstance(more, str):
                raise DataError(f"input is {_told(more)}; accepted is text, or none")
            question = f"{question}\n{more}" if more.strip() else question
            return "", [(question, answer)], (asking, "input", answers[0])
    there = ", ".join(map(repr, list(row)[:8])) or "no fields"
    raise DataError(f"there are {there}; accepted are {_ACCEPTED}")


def _turns(turns: Any) -> list[tuple[str, str]]:
    if not isinstance(turns, list) or not turns:
        raise DataError(f"turns is {_told(turns)}; accepted is a list of objects with question and answer")
    found = []
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            raise DataError(f"turn {number} is {_told(turn)}; accepted is an object with question and answer")
        question = _text(turn.get("question"), f"the question of turn {number}")
        found.append((question, _text(turn.get("answer"), f"the answer of turn {number}")))
    return found


def _messages(messages: Any) -> tuple[str, list[tuple[str, str]]]:
    if not isinstance(messages, list) or not messages:
        raise DataError(f"messages is {_told(messages)}; accepted is a list of objects with role and content")
    said = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise DataError(f"message {number} is {_told(message)}; accepted is an object with role and content")
        said.append((message.get("role"), _text(message.get("content"), f"the content of message {number}")))
    system = said.pop(0)[1] if said[0][0] == "system" else ""
    roles = [role for role, _ in said]
    if not said or len(said) % 2 or roles != ["user", "assistant"] * (len(said) // 2):
        told = ", ".join(map(str, roles[:8])) or "none"
        first = "after the system message, " if system else ""
        raise DataError(f"{first}the roles are {told}; accepted is user and assistant in turn, assistant last")
    texts = [text for _, text in said]
    return system, list(zip(texts[::2], texts[1::2]))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{name} is {_told(value)}; accepted is text")
    return value


def _truth(row: Mapping[str, Any]) -> float | None:
    truth = row.get("truth")
    if truth is None:
        return None
    if not isinstance(truth, (bool, int, float)) or not 0 <= truth <= 1:
        raise DataError(f"truth is {_told(truth)}; accepted is 0 (false) to 1 (true), or none")
    return float(truth)


def _told(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return repr(value[:20]) if value.strip() else "empty"
    if isinstance(value, (bool, int, float)):
        return repr(value)
    return f"a {type(value).__name__}" if value else f"an empty {type(value).__name__}"
