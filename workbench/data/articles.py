"""Documents about the synthetic world: profiles, biographies and notes of several sentences.

Each document is about one entity: some of its own facts, then facts about the things they name,
with sentences between that carry no fact. Documents are written until every fact has been told
in ``per_fact`` documents of a language, so the number of times a model meets each fact is known.

Does not do: facts beyond the world's. The sentences between are drawn at random and may disagree
from one document to the next (a staff of 3,120 here, 900 there), as they do in news.
"""

import random
from dataclasses import dataclass

from workbench.data.world import DOMAINS, Entity, Fact, World, statement
from workbench.data.world_text import check_language, wording_count

_EXTRA = 3  # an entity's own facts are told up to this many times more than asked, so that documents stay long
_LINKED = 4  # at most this many facts about the things that the entity's own facts name, or that name it
_LINKED_SHARE = 0.5  # chance that such a fact is told here and not left to a document about its own subject

_OPENINGS = {
    "company": {
        "en": ("A look at {s}.", "Company profile: {s}.", "{s} reported its results on {day}.", "News from {s}."),
        "zh": ("公司简介：{s}。", "{s}于{day}公布了业绩。", "本期介绍{s}。", "来自{s}的消息。"),
    },
    "person": {
        "en": ("A short biography of {s}.", "{s} gave an interview on {day}.", "Who is {s}?", "Portrait: {s}."),
        "zh": ("{s}小传。", "{s}于{day}接受了采访。", "人物：{s}。", "本期人物是{s}。"),
    },
    "university": {
        "en": ("A guide to {s}.", "{s} opened its doors to visitors on {day}.", "Studying at {s}."),
        "zh": ("{s}简介。", "{s}于{day}举行了开放日。", "走进{s}。"),
    },
    "city": {
        "en": ("A visit to {s}.", "City notes: {s}.", "{s} held its yearly fair on {day}."),
        "zh": ("{s}城市介绍。", "{s}于{day}举办了年度集市。", "走进{s}。"),
    },
}
_BETWEEN = {
    "company": {
        "en": (
            "Sales rose by {n} percent in the last quarter.",
            "The company now has {staff} employees.",
            "Analysts expect steady growth this year.",
            "A new factory will open next spring.",
            "The board met on {day}.",
            "Investors welcomed the report.",
        ),
        "zh": (
            "上季度销售额增长了{n}%。",
            "公司现有员工{staff}人。",
            "分析师预计今年将稳步增长。",
            "新工厂将于明年春天投产。",
            "董事会于{day}召开会议。",
            "投资者对报告表示欢迎。",
        ),
    },
    "person": {
        "en": (
            "Friends describe a quiet and careful worker.",
            "In the evenings there is time for chess and long walks.",
            "The interview lasted {n} minutes.",
            "A book about these years is planned.",
            "Former classmates remember a good listener.",
        ),
        "zh": (
            "朋友们说这是一个安静而细心的人。",
            "晚上的时间用来下棋和散步。",
            "采访持续了{n}分钟。",
            "有关这些年的书正在写作之中。",
            "老同学们记得一位善于倾听的人。",
        ),
    },
    "university": {
        "en": (
            "About {staff} students are enrolled this year.",
            "The library is open until {n} minutes before midnight.",
            "The term begins on {day}.",
            "Lectures are held in two languages.",
            "The old observatory can be visited.",
        ),
        "zh": (
            "今年在校学生约{staff}人。",
            "图书馆每天开放到深夜。",
            "新学期于{day}开始。",
            "课程用两种语言讲授。",
            "古老的天文台可以参观。",
        ),
    },
    "city": {
        "en": (
            "The market by the river opens at dawn.",
            "It rained on {n} days last winter.",
            "A tram line joins the harbour and the old town.",
            "About {staff} visitors came to the fair.",
            "The bridge will be repaired before {day}.",
        ),
        "zh": (
            "河边的集市清晨开张。",
            "去年冬天有{n}天下雨。",
            "一条电车线连接港口和老城。",
            "约有{staff}名游客来到集市。",
            "大桥将在{day}之前修好。",
        ),
    },
}
_MONTHS = ("January", "February", "March", "April", "May", "June", "July")
_MONTHS += ("August", "September", "October", "November", "December")


@dataclass(frozen=True)
class Article:
    """One document: ``facts`` are the facts its ``text`` states, each once."""

    id: str
    language: str
    domain: str
    subject: Entity
    text: str
    facts: tuple[Fact, ...]


def write_articles(world: World, language: str, *, per_fact: int = 26, seed: int = 0) -> tuple[Article, ...]:
    """Documents in ``language`` that tell every fact of ``world`` in ``per_fact`` to ``per_fact + 3`` of them.

    The next document is always about the entity whose facts have been told least. Raises
    SettingError for an unknown language.
    """
    check_language(language)
    rng = random.Random(f"{seed}/articles/{language}")
    # Facts go by their number in the world here: hashing them would take most of the time.
    facts = world.facts
    number = {fact: i for i, fact in enumerate(facts)}
    told = [0] * len(facts)
    about = {e: [number[f] for f in world.facts_of(e)] for e in world.entities}
    naming = {e: [i for i, f in enumerate(facts) if f.object == e] for e in world.entities}
    subjects = [(e, about[e]) for e in world.entities if about[e]]
    articles: list[Article] = []
    texts: set[str] = set()
    while True:
        rng.shuffle(subjects)
        subject, its = min(subjects, key=lambda pair: min(told[i] for i in pair[1]))
        least = min(told[i] for i in its)
        if least >= per_fact:
            return tuple(articles)
        own = [i for i in its if told[i] < per_fact + _EXTRA]
        rng.shuffle(own)
        near = naming[subject] + [i for o in own for i in (*about[facts[o].object], *naming[facts[o].object])]
        near = [i for i in dict.fromkeys(near) if i not in own and told[i] <= least and rng.random() < _LINKED_SHARE]
        rng.shuffle(near)
        near = near[: rng.randint(1, _LINKED)]
        # A fact about something follows the sentence that introduces it.
        order = []
        for o in own:
            order += [o, *(n for n in near if facts[o].object in (facts[n].subject, facts[n].object))]
        order = list(dict.fromkeys(order + near))
        for i in order:
            told[i] += 1
        chosen = [facts[i] for i in order]
        name = f"{subject.kind}-{language}-{len(articles):04d}"
        text = _text(subject, chosen, language, rng)
        while text in texts:
            text = _text(subject, chosen, language, rng)
        texts.add(text)
        articles.append(Article(name, language, DOMAINS[subject.kind], subject, text, tuple(chosen)))


def _text(subject: Entity, facts: list[Fact], language: str, rng: random.Random) -> str:
    sentences = [statement(f, language, rng.randrange(wording_count(f.relation, language))) for f in facts]
    for between in rng.sample(_BETWEEN[subject.kind][language], rng.choice((0, 0, 1, 1))):
        sentences.insert(rng.randint(1, len(sentences)), between)
    if rng.random() < 0.5:
        sentences.insert(0, rng.choice(_OPENINGS[subject.kind][language]))
    day, month = rng.randint(1, 28), rng.randint(1, 12)
    return (
        (" " if language == "en" else "")
        .join(sentences)
        .format(
            s=subject.name(language),
            n=rng.randint(3, 48),
            staff=rng.randint(4, 90) * 100,
            day=f"{day} {_MONTHS[month - 1]}" if language == "en" else f"{month}月{day}日",
        )
    )
