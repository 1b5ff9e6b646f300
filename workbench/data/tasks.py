"""Task samples, and perturbed copies of ordinary text.

A task is one or more turns of question and answer with metadata; a single instruction and its
response is a task of one turn. It is rendered part by part, so that the tokens of a prompt are
the same in training and in evaluation, and only answers carry loss:

    Question: Who is the chief executive of Alda?\nAnswer: Mira Voss\n        (parts: prompt, answer)
    问题：Alda的首席执行官是谁？\n回答：米拉\n

Task ids number the task types found in the file, from 1; id 0 means no task. Perturbed copies
change a text a little (what was done is recorded) so that the model does not depend on
spotless input; each is a pure function of the text and the seed.
"""

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from workbench.data.documents import Document, Rejected
from workbench.errors import DataError

PROMPTS = {"en": ("Question: {}\nAnswer:", " {}\n"), "zh": ("问题：{}\n回答：", "{}\n")}


@dataclass(frozen=True)
class Rendered:
    """A sample as text parts in order; ``loss[i]`` says whether part i is asked for.

    ``truth`` is 1.0 for a text that is true, 0.0 for one known to be false, None where unknown.
    """

    parts: tuple[str, ...]
    loss: tuple[bool, ...]
    task_type: str = ""
    truth: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def plain(document: Document) -> Rendered:
    """A document as it is, with loss on everything."""
    return Rendered((document.text,), (True,), meta=document.meta)


def language_of(text: str) -> str:
    """``zh`` when the text has Chinese characters, else ``en``."""
    return "zh" if re.search(r"[\u3400-\u9fff]", text) else "en"


def prompt_of(question: str, language: str) -> str:
    """The prompt of one turn, exactly as training renders it."""
    return PROMPTS[language][0].format(question)


def answer_of(answer: str, language: str) -> str:
    """The answer of one turn, exactly as training renders it."""
    return PROMPTS[language][1].format(answer)


def render_task(row: Mapping[str, Any]) -> Rendered:
    """Render a task row: ``turns`` of question and answer, or ``instruction`` and ``response``.

    Raises DataError, naming what is missing, for a row that is neither.
    """
    turns = row.get("turns")
    if turns is None and {"instruction", "response"} <= row.keys():
        turns = [{"question": row["instruction"], "answer": row["response"]}]
    if not isinstance(turns, list) or not turns:
        raise DataError("no turns (a list of question and answer) and no instruction with a response")
    parts: list[str] = []
    for turn in turns:
        question, answer = (turn.get("question"), turn.get("answer")) if isinstance(turn, dict) else (None, None)
        if not (isinstance(question, str) and isinstance(answer, str) and question and answer):
            raise DataError("a turn without a question or an answer")
        language = row.get("language") if row.get("language") in PROMPTS else language_of(question)
        parts += [prompt_of(question, language), answer_of(answer, language)]
    return Rendered(
        tuple(parts),
        (False, True) * len(turns),
        task_type=str(row.get("task_type") or "instruction"),
        truth=float(row["truth"]) if isinstance(row.get("truth"), (int, float)) else None,
        meta={k: v for k, v in row.items() if k != "turns"},
    )


def task_file(path: str | Path) -> Path:
    """The file of task samples at ``path``. Raises DataError where there is none."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"tasks={str(path)!r}: no such file; give a .jsonl of task samples, or '' for none")
    return file


def read_tasks(path: str | Path, on_reject: Callable[[Rejected], None]) -> list[Rendered]:
    """Every task of a .jsonl file; broken rows go to ``on_reject`` with their line and reason."""
    file, out = task_file(path), []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
                if not isinstance(row, dict):
                    raise DataError(f"a {type(row).__name__}, expected an object")
                out.append(render_task(row))
            except (DataError, json.JSONDecodeError, UnicodeDecodeError) as error:
                on_reject(Rejected(str(file), number, f"not a task: {error}"))
    return out


def task_ids_of(task_types: Sequence[str], num_tasks: int) -> dict[str, int]:
    """Number the task types, sorted, from 1. Raises DataError where there are more than fit."""
    names = sorted(set(task_types) - {""})
    if len(names) >= num_tasks:
        raise DataError(f"{len(names)} task types, but num_tasks={num_tasks} leaves {num_tasks - 1}: raise num_tasks")
    return {name: i for i, name in enumerate(names, 1)}


def _noise(text: str, rng: random.Random) -> str:
    """Swap, drop or double about 2 % of the letters, as a hasty typist does."""
    chars = list(text)
    for i in range(len(chars) - 1):
        if chars[i].isalnum() and rng.random() < 0.02:
            kind = rng.randrange(3)
            if kind == 0 and chars[i + 1].isalnum():
                chars[i], chars[i + 1] = chars[i + 1], chars[i]
            elif kind == 1:
                chars[i] = ""
            else:
                chars[i] *= 2
    return "".join(chars)


def _width(text: str, rng: random.Random) -> str:
    """ASCII letters, digits and punctuation to full width or back, whichever there is."""
    del rng
    wide = {i: i + 0xFEE0 for i in range(0x21, 0x7F)}
    if any(0xFF01 <= ord(c) <= 0xFF5E for c in text):
        return text.translate({w: n for n, w in wide.items()})
    return text.translate(wide)


def _shuffle_sentences(text: str, rng: random.Random) -> str:
    """The same sentences in another order; line ends stay with their sentence."""
    sentences = re.findall(r"[^。！？.!?\n]*[。！？.!?\n]+\s*|[^。！？.!?\n]+$", text)
    rng.shuffle(sentences)
    return "".join(sentences)


PERTURBATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "character noise": _noise,
    "width change": _width,
    "shuffled sentences": _shuffle_sentences,
}


def perturb(document: Document, seed: int) -> Rendered:
    """One perturbed copy of a document; which kind is chosen by its text and ``seed``.

    ``meta["perturbation"]`` names what was done. A text that the chosen kind leaves as it is
    (a single sentence cannot be shuffled) keeps that name with ``unchanged`` behind it.
    """
    rng = random.Random(f"{seed}:{document.text}")
    kind = rng.choice(sorted(PERTURBATIONS))
    text = PERTURBATIONS[kind](document.text, rng)
    label = kind if text != document.text else f"{kind}, unchanged"
    return Rendered((text,), (True,), meta={**document.meta, "perturbation": label})
