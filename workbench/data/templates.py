"""How a conversation becomes text: as plain questions and answers, or as a tokenizer's chat template says.

    PLAIN     Question: Who leads Alda?\\nAnswer: Mira Voss\\n         问题：谁领导Alda？\\n回答：米拉\\n
    chat      <|im_start|>user\\nWho leads Alda?<|im_end|>\\n<|im_start|>assistant\\nMira Voss<|im_end|>\\n

``templates_for`` makes them from a tokenizer and a setting; they hold no tokenizer, pickle small and
write a conversation in training and evaluation alike. Chat text is what ``apply_chat_template``
gives, but for a leading begin of text and a trailing end of text, which every sample gets as tokens
once. Answers and what ends them carry loss.

Costs a few string joins a conversation. Does not do: tokens, or what ``chat_form`` names.
"""

import re
from dataclasses import dataclass
from typing import Iterator

from workbench.data.chat_form import ChatForm, Piece, Turns, chat_form
from workbench.data.instructions import instruct
from workbench.data.rendered import Rendered
from workbench.errors import DataError, SettingError

STYLES = ("auto", "plain", "chat")
LOSS_ON = {"response": ("answer", "end"), "all": ("answer", "end", "system", "prompt")}  # roles with loss
PROMPTS = {"en": ("Question: {}\nAnswer:", " {}\n"), "zh": ("问题：{}\n回答：", "{}\n")}


@dataclass(frozen=True)
class Templates:
    """A way to write conversations; ``chat`` None is plain questions and answers.

    ``turns`` are (question, answer) pairs; ``language`` of a plain prompt is ``en`` or ``zh``, else
    each question's own. A template that strips what is said does so here too, unless ``trim`` is
    False. All methods raise DataError for no turns and for a system message the template refuses.
    """

    chat: ChatForm | None = None

    @property
    def style(self) -> str:
        """``plain`` or ``chat``."""
        return "chat" if self.chat else "plain"

    def render(
        self, turns: Turns, language: str = "", system: str = "", loss_on: str = "response", trim: bool = True
    ) -> tuple[tuple[str, ...], tuple[bool, ...], tuple[bool, ...]]:
        """(parts, loss, control) of ``Rendered``; control is () where there is none.

        ``loss_on`` "response" is answers and what ends them; "all" is everything but the prompt's
        scaffolding. Raises SettingError for another value.
        """
        if loss_on not in LOSS_ON:
            raise SettingError(f"loss_on={loss_on!r} is not allowed: {' or '.join(map(repr, LOSS_ON))}")
        pieces = [p for p in self._pieces(turns, language, system, trim) if p.text]
        control = tuple(p.control for p in pieces) if any(p.control for p in pieces) else ()
        return tuple(p.text for p in pieces), tuple(p.role in LOSS_ON[loss_on] for p in pieces), control

    def prompt(self, turns: Turns, turn: int, language: str = "", system: str = "") -> tuple[list[str], list[bool]]:
        """(texts, control) of the parts that ``render`` gives before the answer of ``turn``, from 0.

        Some templates write more before a last answer: it is the prompt within these ``turns``.
        """
        texts, control, answers = [], [], 0
        for piece in self._pieces(turns, language, system, trim=True):
            if piece.role == "answer":
                if answers == turn:
                    return texts, control
                answers += 1
            if piece.text:
                texts.append(piece.text)
                control.append(piece.control)
        raise DataError(f"turn {turn} of a conversation of {len(turns)} turns; they are counted from 0")

    def _pieces(self, turns: Turns, language: str, system: str, trim: bool) -> Iterator[Piece]:
        if not turns:
            raise DataError("a conversation without a turn: give at least one question and answer")
        return self.chat.pieces(turns, system, trim) if self.chat else _plain(turns, language, system)


PLAIN = Templates()


def language_of(text: str) -> str:
    """``zh`` when the text has Chinese characters, else ``en``."""
    return "zh" if re.search(r"[\u3400-\u9fff]", text) else "en"


def prompt_of(question: str, language: str) -> str:
    """The plain prompt of one turn."""
    return PROMPTS[language][0].format(question)


def answer_of(answer: str, language: str) -> str:
    """The plain answer of one turn."""
    return PROMPTS[language][1].format(answer)


def _plain(turns: Turns, language: str, system: str) -> Iterator[Piece]:
    if system:
        yield Piece(system + "\n", "system", False)
    for question, answer in turns:
        spoken = language if language in PROMPTS else language_of(question)
        yield Piece(prompt_of(question, spoken), "prompt", False)
        yield Piece(answer_of(answer, spoken), "answer", False)


def inject(text: str, templates: Templates, seed: int, loss_on: str = "response", title: str | None = None) -> Rendered:
    """A document as an instruction and its response; the text and ``seed`` choose the instruction.

    The document stands in it unchanged: its first ``meta["split"]`` characters end the instruction,
    all others are the response. ``meta["template"]`` and ``meta["language"]`` say which instruction
    it is. Raises DataError for an empty text, SettingError for another ``loss_on``.
    """
    made = instruct(text, seed, title)
    parts, loss, control = templates.render([(made.prompt, made.response)], made.language, "", loss_on, trim=False)
    meta = {"template": made.name, "split": made.split, "language": made.language}
    return Rendered(parts, loss, control, task_type="instruction", meta=meta)


def chat_templates(tokenizer) -> Templates:
    """The tokenizer's own chat template. Raises SettingError as ``chat_form.chat_form``."""
    return Templates(chat_form(tokenizer))


def templates_for(tokenizer, style: str = "auto") -> Templates:
    """The templates of a setting: ``plain``, ``chat``, or ``auto``: chat where the tokenizer has a template.

    Raises SettingError for another style, for ``chat`` without a template, and for one that cannot
    be taken apart.
    """
    if style not in STYLES:
        raise SettingError(f"templates={style!r} is not allowed: {', '.join(map(repr, STYLES))}")
    has_one = bool(getattr(tokenizer, "chat_template", None))
    if style == "chat" and not has_one:
        raise SettingError("templates='chat': this tokenizer has no chat template; set templates='plain' or 'auto'")
    return chat_templates(tokenizer) if has_one and style != "plain" else PLAIN
