"""A small invented world with exact facts, from which the samples, tasks and evaluations are drawn.

Companies, people, universities, cities and industries, each with an English and a Chinese name,
are tied together by functional relations: every (subject, relation) has exactly one object.
Walking from answer to answer gives chains of questions of any length whose every answer is known,
which real text never offers.

    company     ceo -> person          headquarters -> city     industry, ticker (ends of a chain)
    person      birthplace -> city     alma_mater -> university
    university  location -> city       president -> person
    city        mayor -> person        largest_company -> company (one that has its headquarters there)

Everything is pure and seeded: the same arguments give the same world, on any machine.
Does not do: time, numbers, facts with several answers, or input and output.
"""

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Iterator, Mapping

from workbench.data import world_text
from workbench.data.world_text import check_language
from workbench.errors import SettingError, unknown_name

# relation -> (kind of the subject, kind of the object)
RELATIONS: Mapping[str, tuple[str, str]] = {
    "ceo": ("company", "person"),
    "headquarters": ("company", "city"),
    "industry": ("company", "industry"),
    "ticker": ("company", "ticker"),
    "birthplace": ("person", "city"),
    "alma_mater": ("person", "university"),
    "location": ("university", "city"),
    "president": ("university", "person"),
    "mayor": ("city", "person"),
    "largest_company": ("city", "company"),
}
DOMAINS: Mapping[str, str] = {
    "company": "business",
    "person": "people",
    "university": "education",
    "city": "geography",
}


@dataclass(frozen=True)
class Entity:
    """One thing of the world; ``kind`` is company, person, university, city, industry or ticker."""

    kind: str
    english: str
    chinese: str

    def name(self, language: str) -> str:
        """The name in ``en`` or ``zh``. Raises SettingError for another language."""
        check_language(language)
        return self.english if language == "en" else self.chinese


@dataclass(frozen=True)
class Fact:
    """``subject`` stands in ``relation`` to ``object`` and to nothing else."""

    subject: Entity
    relation: str
    object: Entity

    @property
    def domain(self) -> str:
        """business, people, education or geography, by the kind of the subject."""
        return DOMAINS[self.subject.kind]


@dataclass(frozen=True)
class Chain:
    """Questions each of which is about the answer before it; ``turns`` are (question, answer) pairs."""

    id: str
    language: str
    turns: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class World:
    """All entities and facts. Frozen; the same seed and sizes give an equal world."""

    seed: int
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    @cached_property
    def _facts_of(self) -> dict[Entity, tuple[Fact, ...]]:
        table: dict[Entity, list[Fact]] = {}
        for fact in self.facts:
            table.setdefault(fact.subject, []).append(fact)
        return {entity: tuple(facts) for entity, facts in table.items()}

    def facts_of(self, entity: Entity) -> tuple[Fact, ...]:
        """The facts whose subject is ``entity``; empty for industries and tickers."""
        return self._facts_of.get(entity, ())

    def of_kind(self, kind: str) -> tuple[Entity, ...]:
        """The entities of one kind, in their order in the world."""
        return tuple(e for e in self.entities if e.kind == kind)

    def answer(self, subject: Entity, relation: str) -> Entity:
        """The one object of ``relation`` for ``subject``. Raises SettingError where there is none."""
        for fact in self.facts_of(subject):
            if fact.relation == relation:
                return fact.object
        raise unknown_name("relation", relation, [f.relation for f in self.facts_of(subject)])


def make_world(
    seed: int = 20231024,
    *,
    companies: int = 32,
    people: int = 64,
    universities: int = 16,
    cities: int = 16,
    industries: int = 12,
) -> World:
    """The world of ``seed``. Sizes are numbers of entities.

    People fill the posts of chief executives, presidents and mayors, one post each, so there must
    be as many people as posts; every city needs a company. Raises SettingError otherwise, and
    where more names are asked for than there are.
    """
    pools = {
        "companies": (companies, world_text.COMPANIES),
        "universities": (universities, world_text.UNIVERSITIES),
        "cities": (cities, world_text.CITIES),
        "industries": (industries, world_text.INDUSTRIES),
        "people": (people, _people_names()),
    }
    for name, (count, pool) in pools.items():
        if not 1 <= count <= len(pool):
            raise SettingError(f"{name}={count} is not allowed: 1 to {len(pool)}, the names there are")
    if people < companies + universities + cities:
        raise SettingError(
            f"people={people} is not allowed: at least companies + universities + cities = "
            f"{companies + universities + cities}, one person a post"
        )
    if companies < cities:
        raise SettingError(f"companies={companies} is not allowed: at least cities={cities}, one company a city")

    rng = random.Random(seed)
    kinds = ("company", "university", "city", "industry", "person")
    made = {
        kind: [Entity(kind, *names) for names in pool[:count]]
        for kind, (count, pool) in zip(kinds, pools.values(), strict=True)
    }
    posts = rng.sample(made["person"], len(made["person"]))
    based = _dealt(made["city"], companies, rng)
    tickers = [Entity("ticker", t, t) for t in _tickers([c.english for c in made["company"]])]
    objects = {
        "ceo": posts[:companies],
        "headquarters": based,
        "industry": _dealt(made["industry"], companies, rng),
        "ticker": tickers,
        "birthplace": _dealt(made["city"], people, rng),
        "alma_mater": _dealt(made["university"], people, rng),
        "location": _dealt(made["city"], universities, rng),
        "president": posts[companies : companies + universities],
        "mayor": posts[companies + universities : companies + universities + cities],
        "largest_company": [
            rng.choice([c for c, seat in zip(made["company"], based, strict=True) if seat == city])
            for city in made["city"]
        ],
    }
    facts = tuple(
        Fact(subject, relation, obj)
        for relation, (kind, _) in RELATIONS.items()
        for subject, obj in zip(made[kind], objects[relation], strict=True)
    )
    entities = tuple(e for kind in ("company", "person", "university", "city", "industry") for e in made[kind])
    return World(seed, entities + tuple(tickers), facts)


def statement(fact: Fact, language: str, variant: int = 0) -> str:
    """``fact`` as a sentence; ``variant`` counts the wordings and wraps around. Raises SettingError."""
    check_language(language)
    wordings = world_text.STATEMENTS[fact.relation][language]
    return wordings[variant % len(wordings)].format(s=fact.subject.name(language), o=fact.object.name(language))


def question(fact: Fact, language: str, hop: int = 1, variant: int = 0) -> str:
    """The question whose answer is ``fact.object``.

    ``hop`` 1 names the subject, later hops refer back to the answer before ("that person").
    Raises SettingError for a hop below 1 or an unknown language.
    """
    check_language(language)
    if hop < 1:
        raise SettingError(f"hop={hop} is not allowed: 1 for the first question, more for later ones")
    kind = fact.subject.kind
    subject = fact.subject.name(language) if hop == 1 else world_text.BACK_REFERENCES[kind][language]
    wordings = world_text.QUESTIONS[fact.relation][language]
    return wordings[variant % len(wordings)].format(s=subject)


def walks(world: World, length: int, starts: Iterable[Entity] | None = None) -> Iterator[tuple[Fact, ...]]:
    """Every walk of ``length`` facts over the relations that meets no entity twice, in a fixed order.

    ``starts`` are the entities to begin at, all of them by default. Raises SettingError for a
    length below 1.
    """
    if length < 1:
        raise SettingError(f"length={length} is not allowed: at least 1 question a chain")

    def onward(walk: tuple[Fact, ...], seen: frozenset[Entity], here: Entity) -> Iterator[tuple[Fact, ...]]:
        if len(walk) == length:
            yield walk
            return
        for fact in world.facts_of(here):
            if fact.object not in seen:
                yield from onward(walk + (fact,), seen | {fact.object}, fact.object)

    for start in world.entities if starts is None else starts:
        yield from onward((), frozenset({start}), start)


def chains(
    world: World,
    length: int,
    count: int,
    language: str,
    seed: int = 0,
    starts: Iterable[Entity] | None = None,
) -> tuple[Chain, ...]:
    """``count`` different chains of ``length`` questions, drawn without replacement.

    ``starts`` restricts where they begin. Lists every walk first: cheap up to length 8. Raises
    SettingError where fewer than ``count`` chains exist.
    """
    check_language(language)
    every = list(walks(world, length, starts))
    if not 0 <= count <= len(every):
        raise SettingError(f"count={count} is not allowed: this world has {len(every)} chains of length {length}")
    drawn = random.Random(f"{seed}/{length}/{language}").sample(every, count)
    return tuple(
        Chain(
            id=f"chain-{language}-{length}-{number:04d}",
            language=language,
            turns=tuple((question(f, language, hop), f.object.name(language)) for hop, f in enumerate(walk, 1)),
            facts=walk,
        )
        for number, walk in enumerate(drawn)
    )


def _people_names() -> list[tuple[str, str]]:
    """Full names (English, Chinese); among the first 64 n people each given and each family name occurs n times."""
    given, family = world_text.GIVEN_NAMES, world_text.FAMILY_NAMES
    return [
        (f"{g_en} {f_en}", f"{f_zh}{g_zh}")
        for turn in range(4)  # more would make names such as "Ivo Ji" and "Ivo Jin"
        for (g_en, g_zh), (f_en, f_zh) in (
            (given[i], family[(5 * i + 11 * turn) % len(family)]) for i in range(len(given))
        )
    ]


def _dealt(entities: list[Entity], count: int, rng: random.Random) -> list[Entity]:
    """``count`` picks in random order in which every entity occurs equally often, give or take one."""
    rounds = [rng.sample(entities, len(entities)) for _ in range(-(-count // len(entities)))]
    hand = [entity for deal in rounds for entity in deal][:count]
    rng.shuffle(hand)
    return hand


def _tickers(names: list[str]) -> list[str]:
    """A ticker a name, ``Quantar`` -> ``$QNTR``: the first letter and three consonants, all different."""
    taken: list[str] = []
    for name in names:
        letters = name.upper()
        tail = [c for c in letters[1:] if c not in "AEIOU"] + [c for c in letters[1:] if c in "AEIOU"]
        options = (
            "$" + letters[0] + tail[a] + tail[b] + tail[c]
            for a in range(len(tail))
            for b in range(a + 1, len(tail))
            for c in range(b + 1, len(tail))
        )
        taken.append(next(t for t in options if t not in taken))
    return taken
