"""Words written as others that sound the same: Chinese by pinyin with tone, English by a table.

    他们在公司附近散步。   →  他们再公司附近散步。
    Their results are in.  →  There results are in.

A Chinese character is replaced by one of the everyday characters (the 3,755 of GB 2312, level 1) whose
first reading is the same syllable and tone as the reading here, which pypinyin takes from the words
around. About 3 % of the Han characters change, only beside others that do not, so a word of several
characters keeps some of its own. Of English words 3 % change, where the table has as many; case is kept.

Costs the table of readings, once a process (0.5 s, and some 60 MB for pypinyin), then about 10 ms for
1,000 Han characters. Does not know dialects; a replaced character may by chance make a real word.
"""

import random
from functools import cache

import regex

Change = tuple[int, int, str]  # start and end in the text, and what stands there instead

RATE = 0.03
_CONTEXT = 4  # characters on either side that tell which reading a character has
_GROUPS = """
their there they're|its it's|your you're|whose who's|to too two|hear here|know no|knew new|by buy|for four|one won
right write|sea see|son sun|weak week|peace piece|plain plane|brake break|hole whole|led lead|passed past
principal principle|weather whether|threw through|wood would|which witch|made maid|mail male|main mane|meat meet
knight night|hour our|pair pear|rain reign|road rode|role roll|scene seen|sight site|some sum|steal steel|tail tale
wait weight|way weigh|wear where|air heir|board bored|cell sell|cent sent|coarse course|days daze|fair fare
flour flower|grate great|hair hare|heard herd|allowed aloud|bare bear|blew blue|hi high|higher hire|loan lone
"""
# word → the words that sound like it
ENGLISH = {
    word: tuple(other for other in group.split() if other != word)
    for group in _GROUPS.strip().replace("\n", "|").split("|")
    for word in group.split()
}
_HAN = regex.compile(r"[\u3400-\u4dbf\u4e00-\u9fff](?![\p{M}\u200d])")
_WORD = regex.compile(r"(?<![\p{L}\p{M}\p{N}'’\u200d])[A-Za-z]+(?:['’][A-Za-z]+)?(?![\p{L}\p{M}\p{N}'’\u200d])")


def homophone_changes(text: str, rng: random.Random) -> list[Change]:
    """Changes of ``text``, sorted; none where no word has another that sounds like it."""
    return sorted(_chinese(text, rng) + _english(text, rng))


def _chinese(text: str, rng: random.Random) -> list[Change]:
    places = [m.start() for m in _HAN.finditer(text)]
    here = set(places)
    wanted = max(1, round(RATE * len(places)))
    rng.shuffle(places)
    changes: dict[int, Change] = {}
    for at in places:
        if len(changes) == wanted:
            break
        beside = {at - 1, at + 1}
        if not beside & here or beside & changes.keys():
            continue
        if others := [c for c in _alike().get(_reading(text, at), ()) if c != text[at]]:
            changes[at] = (at, at + 1, rng.choice(others))
    return list(changes.values())


def _reading(text: str, at: int) -> str:
    """The reading of the character at ``at``, ``hang2``, from the Han characters around it."""
    from pypinyin import Style, pinyin

    low, high = at, at + 1
    while low and at - low < _CONTEXT and _HAN.match(text, low - 1):
        low -= 1
    while high < len(text) and high - at <= _CONTEXT and _HAN.match(text, high):
        high += 1
    return pinyin(text[low:high], style=Style.TONE3)[at - low][0]


@cache
def _alike() -> dict[str, tuple[str, ...]]:
    """Reading → the characters of GB 2312 level 1 (rows 16 to 55) that it is the first reading of."""
    from pypinyin import Style, pinyin

    codes = [bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF if row < 0xD7 else 0xFA)]
    characters = [code.decode("gb2312") for code in codes]
    table: dict[str, list[str]] = {}
    for character, readings in zip(characters, pinyin(characters, style=Style.TONE3), strict=True):
        table.setdefault(readings[0], []).append(character)
    # The most common confusion of all: 地 and 得 have the reading "de" as their second.
    table["de"] = sorted({*table.get("de", ()), "的", "地", "得"})
    return {reading: tuple(alike) for reading, alike in table.items()}


def _english(text: str, rng: random.Random) -> list[Change]:
    words = list(_WORD.finditer(text))
    known = [m for m in words if m.group().lower().replace("’", "'") in ENGLISH]
    changes = []
    for match in rng.sample(known, min(len(known), max(1, round(RATE * len(words))))):
        word = match.group()
        other = rng.choice(ENGLISH[word.lower().replace("’", "'")])
        other = other.upper() if len(word) > 1 and word.isupper() else other
        other = other[0].upper() + other[1:] if word[0].isupper() else other
        changes.append((match.start(), match.end(), other))
    return changes
