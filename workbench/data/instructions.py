"""A plain document turned into an instruction and a response, without changing a character of it.

    continue   Continue this text from its beginning:\\n\\nThe harbour froze early. | The ships stayed …
    next       What comes next in this text?\\n\\n…                         the same, in other words
    complete   Complete the sentence and go on with the text:\\n\\nThe harbour | froze early. The …
    begin      Write a text that begins with these words:\\n\\nThe harbour      the whole text
    about, report   Write a text about the topic "The winter of 1911".         the whole text

The first two cut the text after a sentence, the third after a word, near a third of it and never
inside a grapheme cluster; what cannot be cut so is not asked so. The last two need a title. Which
one is taken depends on the text, its title and the seed alone.

Costs about 0.1 ms a document, however long it is. Does not judge whether the text is a good
answer: that a document follows the instruction is by construction, that it is worth reading is not.
"""

import random
import re
from dataclasses import dataclass
from typing import Callable, Iterable

from workbench.data.boundaries import is_boundary, nearest_boundary, sentence_ends, word_starts
from workbench.data.selection import content_hash
from workbench.errors import DataError

INSTRUCTIONS = {
    "en": {
        "continue": "Continue this text from its beginning:\n\n{}",
        "next": "What comes next in this text? Write the rest of it.\n\n{}",
        "complete": "Complete the sentence and go on with the text:\n\n{}",
        "begin": "Write a text that begins with these words:\n\n{}",
        "about": "Write a text about the topic “{}”.",
        "report": "What can you tell me about “{}”? Answer in a text of your own.",
    },
    "zh": {
        "continue": "请接着下面的开头继续写：\n\n{}",
        "next": "下面这段文字的后文是什么？请把它写完。\n\n{}",
        "complete": "请把这句话补充完整，并继续写下去：\n\n{}",
        "begin": "请写一篇文章，以下面的文字开头：\n\n{}",
        "about": "请以“{}”为题写一篇文章。",
        "report": "关于“{}”，你知道些什么？请写一段文字。",
    },
}
_SENTENCE_REACH, _WORD_REACH = 2000, 100  # characters either way of a third in which the cut is looked for
_HEAD = 1000  # characters that tell the language
_OPENING = 60  # characters of a text that are quoted to name its beginning
_HAN, _LATIN = re.compile("[\u3400-\u9fff]"), re.compile("[A-Za-z\u00c0-\u024f]")


@dataclass(frozen=True)
class Instruction:
    """An instruction and its response; ``response`` is the document from character ``split`` on."""

    name: str
    language: str
    prompt: str
    response: str
    split: int


def instruct(text: str, seed: int, title: str | None = None) -> Instruction:
    """The instruction for ``text``. Raises DataError for an empty text."""
    if not text:
        raise DataError("an empty text has no instruction: leave it out")
    title = " ".join((title or "").split())
    kinds = ["continue", "next", "complete", "begin"] + (["about", "report"] if title else [])
    split = 0
    # A random order, of which the first that can is taken, is a fair draw among those that can.
    for name in random.Random(content_hash(f"{title}\n{text}", seed)).sample(kinds, len(kinds)):
        if name in ("continue", "next"):
            split = _near_a_third(text, sentence_ends, _SENTENCE_REACH)
        elif name == "complete":
            split = _near_a_third(text, _words_in_sentences, _WORD_REACH)
        if split or name in ("begin", "about", "report"):
            break
    language = _language(text)
    shown = title if name in ("about", "report") else _opening(text) if name == "begin" else text[:split]
    # Not format: it would take the braces of a title or text for its own.
    prompt = INSTRUCTIONS[language][name].replace("{}", shown)
    return Instruction(name, language, prompt, text[split:], split)


def _near_a_third(text: str, places: Callable[[str, int, int], Iterable[int]], reach: int) -> int:
    """The one of ``places`` nearest to a third that leaves something to say on both sides; 0 if there is none."""
    third = len(text) // 3
    found = places(text, max(0, third - reach), min(len(text), 2 * third + 3, third + reach))
    for at in sorted(found, key=lambda at: (abs(at - third), at)):
        if text[:at].strip() and text[at:].strip():
            return at
    return 0


def _words_in_sentences(text: str, low: int, high: int) -> list[int]:
    """Starts of words that begin no sentence; where there are none, the characters' boundary near a third."""
    ends = set(sentence_ends(text, low, high))
    words = [at for at in word_starts(text, low, high) if at not in ends]
    return words or [nearest_boundary(text, max(1, len(text) // 3))]


def _opening(text: str) -> str:
    """The first words of ``text``, at most half of it: its first sentence if that is short, else some words."""
    most = min(_OPENING, (len(text) + 1) // 2)
    ends = [at for at in sentence_ends(text, 0, most) if text[:at].strip()]
    words = ends[:1] or [at for at in word_starts(text, 0, most) if text[:at].strip()][-1:]
    return text[: words[0] if words else next(at for at in range(most, len(text) + 1) if is_boundary(text, at))]


def _language(text: str) -> str:
    """``zh`` where Chinese outweighs the rest, four Latin letters for a character."""
    head = text[:_HEAD]
    return "zh" if 4 * len(_HAN.findall(head)) > len(_LATIN.findall(head)) else "en"
