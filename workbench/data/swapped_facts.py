"""Two facts of a text exchanged, so that it says something false: years, numbers, dates, tickers, names.

    Alda had 12 % in 1998. Borea had 30 %.    →  Alda had 30 % in 1998. Borea had 12 %.

The spans exchanged are of one kind and differ: ISO, English or Chinese dates of one form, years,
numbers with the same unit, $TICKERS, 《titles》, English names of several words (people and
organisations apart), and what stands in a place that only such a thing can take: "born in …",
"毕业于……大学", "首席执行官是……" with a common family name. Names come from two different sentences that
differ in more than the name, and no third name may stand beside both of them anywhere in the text: two
people who were both born in Oslo can change places and all stays true. Members of one list are never
exchanged.

Not guaranteed: the text may stay true. What two names share may not be recognised as a name, and
sentences that state nothing ("News from …") falsify nothing. In the articles of the synthetic world, whose
facts are known, every exchange made a sentence false: 560 of 560 in English and 300 of 300 in Chinese
(95 % intervals from 99.3 % and 98.7 %; 2026-11-30), but only a quarter and a seventh of the articles,
which name few things again and again, had two facts to exchange. These hold names; dates and numbers
are not known there, and real text is less regular.

Costs one pass of each pattern. Knows no other languages; single English names only after a preposition.
"""

import random
from bisect import bisect_right
from functools import cache
from typing import Iterator, NamedTuple

import regex

from workbench.data.boundaries import is_boundary, sentence_ends

Change = tuple[int, int, str]


class Span(NamedTuple):
    """``text[start:end]`` is a fact of ``kind``; only facts of one kind can be exchanged."""

    kind: str
    start: int
    end: int


_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_HAN_STOP = "的是在了和与及不被把这那一个其有为由于"
_HAN_NAME = rf"[\p{{Han}}--[{_HAN_STOP}]]"
_SURNAMES = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏"
    "钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文庞樊兰殷施陶洪翟安颜"
    "倪严牛温芦季俞章鲁葛伍韦申尤毕聂丛焦向柳邢路岳齐梅莫庄辛管祝左涂谷祁时舒耿牟卜詹关苗凌费纪靳盛童欧甄项曲成游阳"
    "裴席卫查屈鲍位覃霍翁隋植甘景薄单包司柏宁柯阮桂闵解强柴华车冉房边辜吉饶刁瞿戚丘古米池滕晋苑邬臧畅宫来苟全褚廉简"
    "娄盖符奚木穆党燕郎邸冀谈姬屠连郜晏栾郁商蒙计喻揭窦迟宇敖糜鄢冷卓花仇艾蓝都巩稽井练仲乐虞卞封竺冼原官衣楚佟栗匡"
    "宗应台巫鞠僧桑荆谌银扬明沙伏岑习胥保和蔺水云昌凤酆皮元平麻寇容从储"
)
_PERSON = rf"[{_SURNAMES}](?:{_HAN_NAME}){{1,3}}?"  # the shortest that what follows allows
_POST = "(?:首席执行官|董事长|总经理|总裁|校长|院长|市长|省长|主席|主任|创始人|作者|导演|教练|队长)"
_END = r"(?=[，。；！、（\n]|$)"
_SCHOOL = rf"(?:{_HAN_NAME}){{1,10}}(?:大学|学院|中学|研究所)"
_CAPITAL = r"\p{Lu}\p{Ll}[\p{L}]*(?:[-'’]\p{L}+)*"
_NAME = rf"(?<![\p{{L}}\p{{M}}\p{{N}}'’-]){_CAPITAL}(?: {_CAPITAL})+(?![\p{{L}}\p{{M}}\p{{N}}]|['’]\p{{L}}{{2}})"
_UNITS = (
    "percent|per cent|million|billion|trillion|kilometres|kilometers|km|metres|meters|miles|kg|tonnes|tons|hours|"
    "minutes|days|weeks|months|years|people|employees|students|visitors|dollars|euros|pounds|yuan|GB|MB|MW|"
    "亿元|万元|亿|万|元|人|公里|千米|平方米|米|吨|公斤|千克|岁|天|小时|分钟|年|个月|台|家|名"
)
_WHEN = "(?:[Ii]n|[Ss]ince|of|by|from|until|before|after|[Dd]uring)"
_WHERE = "(?:born|raised|based|located|headquartered|headquarters|lives|lived|died|are|is|stands)"
_NUMBER = r"(?<![[\p{L}--\p{Han}]\d.．·,/:-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:[.．·]\d+)?"

# In this order; a place that one has taken is not looked at again. Group x is the span, u a unit.
_PATTERNS = tuple(
    (kind, regex.compile(pattern, regex.V1))
    for kind, pattern in (
        ("title", r"(?P<x>《[^《》\n]{1,40}》)"),
        ("ticker", r"(?P<x>\$[A-Z]{1,5})(?![A-Za-z])"),
        ("date, 2024-01-31", r"(?<!\d)(?P<x>\d{4}-\d{1,2}-\d{1,2})(?!\d)"),
        ("date, 2024年1月31日", r"(?<!\d)(?P<x>\d{4}年\d{1,2}月\d{1,2}日)"),
        ("date, 1月31日", r"(?<![\d年])(?P<x>\d{1,2}月\d{1,2}日)"),
        ("date, 31 January 2024", rf"(?<!\d)(?P<x>\d{{1,2}} {_MONTH} \d{{4}})(?!\d)"),
        ("date, January 31, 2024", rf"(?P<x>\b{_MONTH} \d{{1,2}}, \d{{4}})(?!\d)"),
        ("date, 31 January", rf"(?<!\d)(?P<x>\d{{1,2}} {_MONTH})\b"),
        ("date, January 31", rf"(?P<x>\b{_MONTH} \d{{1,2}})(?!\d)"),
        ("year", r"(?<!\d)(?P<x>[12１２]\d{3})(?=年)"),
        ("year", rf"\b{_WHEN} (?P<x>1[5-9]\d\d|20\d\d)(?![\d.,%]*\d|%)\b"),
        ("number", rf"(?P<x>{_NUMBER}) ?(?P<u>%|％|(?:{_UNITS})(?![A-Za-z]))"),
        ("number", r"(?P<u>[$€£¥￥])(?P<x>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?![\d,.]*\d)"),
        ("school", rf"(?:毕业于|就读于|任教于|母校是)(?P<x>{_SCHOOL}){_END}"),
        ("school", rf"(?:(?<=[。！？\n])|^)(?P<x>{_SCHOOL})(?=的(?:校长|校园)|位于|坐落)"),
        ("place", rf"(?:位于|出生于|出生地是|坐落在|坐落于|总部在|总部设在|地处)(?P<x>(?:{_HAN_NAME}){{2,6}}){_END}"),
        ("person", rf"{_POST}(?:是|：)(?P<x>{_PERSON}){_END}"),
        ("person", rf"由{_POST}(?P<x>{_PERSON})(?=领导|主持|管理)"),
        ("person", rf"(?:任命|聘请|选举)(?P<x>{_PERSON})(?=为{_POST}|担任{_POST})"),
        ("person", rf"(?:(?<=[。！？\n])|^)(?P<x>{_PERSON})(?=毕业于|出生于|生于|曾就读于|的母校|的出生地)"),
        ("place", rf"\b{_WHERE} in (?P<x>{_CAPITAL}(?: {_CAPITAL})*)(?=[.,;!\n]|$)"),
        ("name", rf"(?P<x>{_NAME})"),
    )
)  # fmt: skip
_ORGANISATION = frozenset(
    "University College Institute School Academy Hospital Museum Library Bank Company Corporation Group Inc Ltd "
    "Association Society Union Party Committee Council Ministry Department Agency Press Club Church".split()
)
# Words with a capital only because a sentence begins with them.
_STARTERS = frozenset(
    "A An The This That These Those At In On By For From To With Of And But Or So As If When While After Before Since "
    "Until During Under Over Near Both Each Every All Most Many Some Few No Not Now Then Here There Today Yesterday "
    "His Her Its Their Our My Your He She It They We I You Who What Which Where Why How Dear Former Late Chairman "
    "President Professor Doctor Mr Mrs Ms Dr Sir Lord Lady King Queen Saint".split()
)
_CALENDAR = regex.compile(rf"{_MONTH}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day")
_PROPER = regex.compile(r"\$?\p{Lu}[\p{L}\p{N}]+|《[^《》]*》|\d[\d.,]*")
_HAN_PAIR = regex.compile(r"\p{Han}{2}")
# What relates names and is none; two sentences may share it.
_RELATIONS = {
    word[i : i + 2]
    for word in (
        "毕业 曾就读 就读 母校 出生地 出生 首席执行官 董事长 总经理 总裁 校长 院长 市长 省长 主席 主任 创始人 作者 "
        "导演 教练 任命 聘请 选举 担任 一职 领导 主持 管理 总部 公司 大学 学院 获得 学位 那里 长大 采访 接受 小传 人物"
    ).split()
    for i in range(len(word) - 1)
}
_LIST = regex.compile(r"(?:[\s\d.,，、;；/–—~-]|\b(?:and|or|to)\b|[&和与及或至到])*")
_ALONE = ("name", "organisation", "place", "person", "school", "title", "ticker")  # never within one sentence
_TRIES = 100  # pairs of spans of one kind looked at


def find_facts(text: str) -> list[Span]:
    """The spans of ``text`` that can be exchanged with another of their kind, by position; none overlap."""
    taken, found = bytearray(len(text)), []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span("x")
            if kind == "name":
                start, name = _without_starters(text, start, end)
                if not name:
                    continue
            if any(taken[start:end]) or not (is_boundary(text, start) and is_boundary(text, end)):
                continue
            taken[start:end] = b"\1" * (end - start)
            unit = match.groupdict().get("u")
            organisation = kind == "name" and text[start:end].rpartition(" ")[2] in _ORGANISATION
            found.append(Span(f"number, {unit}" if unit else "organisation" if organisation else kind, start, end))
    return sorted(found, key=lambda span: span.start)


def swap_changes(text: str, rng: random.Random) -> list[Change]:
    """The two changes that exchange two facts of ``text``; none where there are no two to exchange."""
    ends = [0, *sentence_ends(text), len(text)]
    beside = cache(lambda name: _beside(text, ends, name))
    for first, second in _pairs(find_facts(text), rng):
        a, b = text[first.start : first.end], text[second.start : second.end]
        if a == b or _may_stay_true(text, ends, first, second):
            continue
        # "Only Mira Voss" and "Mira Voss" are one name; two names told of one thing may change places.
        if first.kind in _ALONE and (a in b or b in a or beside(a) & beside(b)):
            continue
        if text[first.end : second.start].join((b, a)) != text[first.start : second.end]:
            return [(first.start, first.end, b), (second.start, second.end, a)]
    return []


def _pairs(spans: list[Span], rng: random.Random) -> Iterator[tuple[Span, Span]]:
    """Pairs of one kind, the earlier one first; kinds and pairs in random order, at most ``_TRIES``."""
    kinds: dict[str, list[Span]] = {}
    for span in spans:
        kinds.setdefault(span.kind, []).append(span)
    names = sorted(kind for kind, alike in kinds.items() if len(alike) > 1)
    rng.shuffle(names)
    for name in names:
        alike, tried = kinds[name], 0
        order = rng.sample(range(len(alike)), len(alike))
        for step in range(1, len(order)):
            for i, j in zip(order, order[step:]):
                if tried == _TRIES:
                    break
                tried += 1
                yield alike[min(i, j)], alike[max(i, j)]


def _may_stay_true(text: str, ends: list[int], first: Span, second: Span) -> bool:
    """Whether the places may say the same: members of a list, names in one sentence, sentences else alike."""
    one, two = (bisect_right(ends, span.start) for span in (first, second))
    if one == two:
        between = text[first.end : second.start].replace(first.kind.partition(", ")[2] or "\0", "")
        return first.kind in _ALONE or bool(_LIST.fullmatch(between))
    before, after = text[ends[one - 1] : first.start].strip(), text[first.end : ends[one]].strip()
    return (before, after) == (text[ends[two - 1] : second.start].strip(), text[second.end : ends[two]].strip())


def _beside(text: str, ends: list[int], name: str) -> set[str]:
    """What stands in a sentence with ``name`` anywhere in the text."""
    found, at = set(), text.find(name)
    while at >= 0:
        end = ends[bisect_right(ends, at)]
        found |= _words(text[ends[bisect_right(ends, at) - 1] : end].replace(name, "\0"))
        at = text.find(name, max(end, at + 1))
    return found


def _words(sentence: str) -> set[str]:
    """What may name a thing: words with a capital, tickers, titles, numbers, and pairs of Han characters."""
    pairs = {pair for pair in _HAN_PAIR.findall(sentence, overlapped=True) if not set(pair) & set(_HAN_STOP)}
    return (set(_PROPER.findall(sentence)) - _STARTERS) | (pairs - _RELATIONS)


def _without_starters(text: str, start: int, end: int) -> tuple[int, str]:
    """(start, name) without the words a sentence begins with; "" where fewer than two words or a date is left."""
    words = text[start:end].split(" ")
    while words and words[0] in _STARTERS:
        start += len(words.pop(0)) + 1
    name = " ".join(words)
    return start, name if len(words) > 1 and not _CALENDAR.search(name) else ""
