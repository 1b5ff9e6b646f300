"""A tokenizer's chat template, taken apart into the text around what is said.

The template is run on marker words; what stands between them are its pieces:

    <|im_start|>user\\n | QUESTION | <|im_end|>\\n<|im_start|>assistant\\n | ANSWER | <|im_end|>\\n
    prefix                         ask                                            end

Put together again they must give what the template itself writes for one, two and three turns,
with and without a system message and with white space around what is said; otherwise the template
is refused. Two strings are left out, because every sample gets them as tokens once: a begin of text
at the beginning, and at the end an end of text with the white space after it.

Costs about twenty renderings, once a tokenizer. Does not follow a template that rewrites what is
said (drops reasoning; strips line ends but no spaces), calls tools or shows pictures; one that
writes the date keeps the date on which it was taken apart.
"""

import re
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Callable, Iterator, NamedTuple, Sequence

from workbench.errors import DataError, SettingError

Turns = Sequence[tuple[str, str]]
_Say = Callable[[Turns, str], str]  # (turns, system message or "") → what the template writes

_SYSTEM = "Zqsys5Kw"
_TURNS = (("Zqask1Kw", "Zqans1Kw"), ("Zqask2Kw", "Zqans2Kw"), ("Zqask3Kw", "Zqans3Kw"))
_PAD = (" \n", "\n ")


class Piece(NamedTuple):
    """Text of one ``role``: system, prompt, answer; scaffold around them; end, which ends an answer.

    ``control``: strings of special tokens in it become these tokens.
    """

    text: str
    role: str
    control: bool


@dataclass(frozen=True)
class ChatForm:
    """What a chat template writes around what is said; ``trim_*`` is "", "left", "right" or "both"."""

    prefix: str
    system: tuple[str, str] | None  # before and after the system message; None: it takes none
    ask: str  # from a question to its answer
    last_ask: str  # the same before the last answer, where some templates write more
    end: str  # ends an answer that another question follows
    next: str  # from there to the question
    last_end: str  # ends the last answer
    trim_system: str = ""
    trim_prompt: str = ""
    trim_answer: str = ""

    def pieces(self, turns: Turns, system: str = "", trim: bool = True) -> Iterator[Piece]:
        """The pieces of a conversation, empty ones too. Raises DataError for a system message it does not take.

        ``trim`` False leaves the white space around what is said even where the template strips it.
        """
        if system and self.system is None:
            raise DataError(
                "a system message, which this chat template does not take: remove it or set plain templates"
            )
        cut = _trimmed if trim else lambda text, sides: text
        if system:
            yield Piece(self.system[0], "scaffold", True)
            yield Piece(cut(system, self.trim_system), "system", False)
        yield Piece(self.system[1] if system else self.prefix, "scaffold", True)
        for number, (question, answer) in enumerate(turns, 1):
            last = number == len(turns)
            yield Piece(cut(question, self.trim_prompt), "prompt", False)
            yield Piece(self.last_ask if last else self.ask, "scaffold", True)
            yield Piece(cut(answer, self.trim_answer), "answer", False)
            yield Piece(self.last_end if last else self.end, "end", True)
            if not last:
                yield Piece(self.next, "scaffold", True)


def chat_form(tokenizer) -> ChatForm:
    """The chat template of ``tokenizer`` (of which only strings and ``apply_chat_template`` are used).

    Raises SettingError where the template fails on a plain conversation, or its pieces do not make
    up what it writes.
    """
    say = _renderer(tokenizer)
    prefix, ask, between, _, _, last_ask, suffix = _between(say(_TURNS, ""), [word for turn in _TURNS for word in turn])
    end = _common_end(between, suffix, _special_strings(tokenizer))
    form = ChatForm(prefix, None, ask, last_ask, between[:end], between[end:], suffix)
    for count in (1, 2, 3):
        _check(say, form, _TURNS[:count])
    form = replace(form, trim_prompt=_trim(say, form, "prompt"), trim_answer=_trim(say, form, "answer"))
    form = _with_system(say, form)
    _check(say, form, [tuple(word.join(_PAD) for word in turn) for turn in _TURNS])
    begin, eos = tokenizer.bos_token or tokenizer.eos_token, tokenizer.eos_token
    # The begin of text may stand before the system message, or at the head of what follows none.
    system = form.system and (_without_begin(form.system[0], begin), form.system[1])
    return replace(form, prefix=_without_begin(prefix, begin), system=system, last_end=_without_end(suffix, eos))


def _renderer(tokenizer) -> _Say:
    from jinja2.exceptions import TemplateError

    def say(turns: Turns, system: str) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        for question, answer in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        try:
            return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise _refused(f"fails on a plain conversation ({' '.join(str(error).split())[:120]})") from error

    return say


def _refused(what: str) -> SettingError:
    return SettingError(f"templates='chat': the tokenizer's chat template {what}; set templates='plain'")


def _between(text: str, words: Sequence[str]) -> list[str]:
    """The len(words) + 1 pieces of ``text`` around ``words``, each of which must occur once and in order."""
    pieces, rest = [], text
    for word in words:
        if text.count(word) != 1 or word not in rest:
            raise _refused("does not write each message once and in order")
        piece, _, rest = rest.partition(word)
        pieces.append(piece)
    return [*pieces, rest]


def _special_strings(tokenizer) -> list[str]:
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    return sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)


def _common_end(between: str, suffix: str, special: list[str]) -> int:
    """How much of ``between`` ends the answer: what it begins with in common with ``suffix``.

    ``<|end|>\\n<|user|>`` and ``<|end|>\\n<|endoftext|>`` agree up to ``<|`` of the second token,
    which is taken back.
    """
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(between, suffix)))
    pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
    for text in (between, suffix):
        common = min([common, *(m.start() for m in pattern.finditer(text) if m.start() < common < m.end())])
    return common


def _trim(say: _Say, form: ChatForm, role: str) -> str:
    """Which sides of a ``role`` (prompt, answer, system) the template strips."""
    word = {"prompt": _TURNS[0][0], "answer": _TURNS[0][1], "system": _SYSTEM}[role]
    padded = word.join(_PAD)
    turn = tuple(padded if said == word else said for said in _TURNS[0])
    written = say([turn], padded if role == "system" else "")
    for sides in ("", "left", "right", "both"):
        tried = replace(form, **{f"trim_{role}": sides})
        if _written(tried, [turn], padded if role == "system" else "") == written:
            return sides
    raise _refused("changes the white space around what is said")


def _with_system(say: _Say, form: ChatForm) -> ChatForm:
    """``form`` with the pieces around a system message, if the template takes one as a piece of its own."""
    try:
        before, after, *_ = _between(say(_TURNS, _SYSTEM), [_SYSTEM, *(word for turn in _TURNS for word in turn)])
        taking = replace(form, system=(before, after))
        taking = replace(taking, trim_system=_trim(say, taking, "system"))
        written = [_written(taking, _TURNS[:count], _SYSTEM) == say(_TURNS[:count], _SYSTEM) for count in (1, 2, 3)]
    except SettingError:
        return form  # it raises for the role, leaves the message out or changes it: conversations with one are refused
    # Others write it into the last question.
    return taking if all(written) else form


def _check(say: _Say, form: ChatForm, turns: Turns) -> None:
    if _written(form, turns, "") != say(turns, ""):
        raise _refused(f"writes a conversation of {len(turns)} turns otherwise than in the pieces it has for 3")


def _written(form: ChatForm, turns: Turns, system: str) -> str:
    return "".join(piece.text for piece in form.pieces(turns, system))


def _without_begin(text: str, begin: str) -> str:
    while begin and text.startswith(begin):
        text = text.removeprefix(begin)
    return text


def _without_end(text: str, eos: str) -> str:
    while eos and text.rstrip().endswith(eos):
        text = text.rstrip().removesuffix(eos)
    return text


def _trimmed(text: str, sides: str) -> str:
    return {"": text, "left": text.lstrip(), "right": text.rstrip(), "both": text.strip()}[sides]
