"""The world against what it promises: functional facts, unmistakable names, walks checked by brute force."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.articles import write_articles
from workbench.data.world import (
    DOMAINS,
    RELATIONS,
    Fact,
    chains,
    make_world,
    question,
    statement,
    walks,
)
from workbench.data.world_text import LANGUAGES, QUESTIONS, STATEMENTS
from workbench.errors import SettingError

WORLD = make_world()
LARGEST = make_world(companies=40, people=256, universities=20, cities=20)


def test_sizes_and_functional_relations():
    assert Counter(e.kind for e in WORLD.entities) == {
        "company": 32, "person": 64, "university": 16, "city": 16, "industry": 12, "ticker": 32,
    }  # fmt: skip
    assert len(WORLD.facts) == 4 * 32 + 2 * 64 + 2 * 16 + 2 * 16
    assert len({(f.subject, f.relation) for f in WORLD.facts}) == len(WORLD.facts)
    for fact in WORLD.facts:
        assert (fact.subject.kind, fact.object.kind) == RELATIONS[fact.relation]
        assert WORLD.answer(fact.subject, fact.relation) == fact.object
    for kind in DOMAINS:  # each subject has every relation of its kind
        wanted = {r for r, (subject, _) in RELATIONS.items() if subject == kind}
        assert all({f.relation for f in WORLD.facts_of(e)} == wanted for e in WORLD.of_kind(kind))


def test_the_facts_make_sense_together():
    for city in WORLD.of_kind("city"):
        assert WORLD.answer(WORLD.answer(city, "largest_company"), "headquarters") == city
    posts = [f.object for f in WORLD.facts if f.relation in ("ceo", "president", "mayor")]
    assert len(posts) == len(set(posts)) == 64
    for relation in ("birthplace", "alma_mater"):  # no answer is much likelier than another
        assert set(Counter(f.object for f in WORLD.facts if f.relation == relation).values()) == {4}


@pytest.mark.parametrize("world", [WORLD, LARGEST], ids=["default", "largest"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_name_is_part_of_another(world, language):
    names = [e.name(language) for e in world.entities]
    assert len(set(names)) == len(names)
    text = "\n".join(names)  # a name inside another one would occur twice in the list of all
    assert [n for n in names if text.count(n) != 1] == []


def test_name_lengths_and_tickers():
    for entity in WORLD.entities:
        assert 1 <= len(entity.english.split()) <= 2
        if entity.kind == "ticker":
            assert entity.english == entity.chinese
            assert entity.english[0] == "$" and len(entity.english) == 5 and entity.english[1:].isupper()
        else:
            assert 2 <= len(entity.chinese) <= 4
            assert all("\u4e00" <= c <= "\u9fff" for c in entity.chinese)
            assert entity.english.isascii()
    assert WORLD.answer(WORLD.of_kind("company")[0], "ticker").english == "$QNTR"


def test_same_seed_same_world_other_seed_other_world():
    assert make_world() == WORLD
    assert make_world(7).facts != WORLD.facts
    # The world is part of the sample files: a change here must be deliberate.
    assert statement(WORLD.facts[0], "en") == "The chief executive of Quantar is Hugo Zhuo."


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"companies": 0}, "companies=0"),
        ({"cities": 21}, "1 to 20"),
        ({"people": 63}, "people=63"),
        ({"companies": 10, "people": 64}, "companies=10"),
    ],
)
def test_impossible_sizes_are_refused(sizes, told):
    with pytest.raises(SettingError, match=told) as error:
        make_world(**sizes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_wordings_say_subject_and_object_once_and_are_different(relation, language):
    fact = next(f for f in WORLD.facts if f.relation == relation)
    told = [statement(fact, language, v) for v in range(len(STATEMENTS[relation][language]))]
    assert len(set(told)) == len(told) >= 3
    for text in told:
        assert text.count(fact.subject.name(language)) == text.count(fact.object.name(language)) == 1
        assert text[-1] in ".。"
    asked = [question(fact, language, 1, v) for v in range(len(QUESTIONS[relation][language]))]
    assert len(set(asked)) == len(asked) >= 2
    for text in asked:
        assert fact.subject.name(language) in text and fact.object.name(language) not in text
        assert text[-1] in "?？"
    later = question(fact, language, 2)
    assert fact.subject.name(language) not in later
    assert ("that " in later) if language == "en" else ("那" in later)


def test_statements_identify_their_fact():
    """No two facts share a sentence, so a sentence says which fact it is."""
    for language in LANGUAGES:
        told = [statement(f, language, v) for f in WORLD.facts for v in range(len(STATEMENTS[f.relation][language]))]
        assert len(set(told)) == len(told)


def test_bad_language_hop_relation():
    fact = WORLD.facts[0]
    with pytest.raises(SettingError, match="language='fr'"):
        statement(fact, "fr")
    with pytest.raises(SettingError, match="language='de'"):
        fact.subject.name("de")
    with pytest.raises(SettingError, match="hop=0"):
        question(fact, "en", 0)
    with pytest.raises(SettingError, match="mayor"):
        WORLD.answer(WORLD.of_kind("city")[0], "mayer")


def test_walks_against_brute_force():
    small = make_world(3, companies=2, people=6, universities=2, cities=2, industries=1)
    for length in (1, 2, 3):
        brute = {
            walk
            for walk in itertools.product(small.facts, repeat=length)
            if all(a.object == b.subject for a, b in itertools.pairwise(walk))
            and len({walk[0].subject, *(f.object for f in walk)}) == length + 1
        }
        found = list(walks(small, length))
        assert len(found) == len(set(found)) and set(found) == brute


@settings(deadline=None, max_examples=25)
@given(
    length=st.integers(1, 8),
    count=st.integers(0, 40),
    language=st.sampled_from(LANGUAGES),
    seed=st.integers(0, 10**6),
)
def test_chains_follow_from_answer_to_answer(length, count, language, seed):
    drawn = chains(WORLD, length, count, language, seed)
    assert drawn == chains(WORLD, length, count, language, seed)
    assert len({c.facts for c in drawn}) == len({c.id for c in drawn}) == count
    for chain in drawn:
        assert len(chain.turns) == len(set(chain.facts)) == length and chain.language == language
        for hop, (fact, turn) in enumerate(zip(chain.facts, chain.turns, strict=True), 1):
            assert turn == (question(fact, language, hop), fact.object.name(language))
            assert fact in WORLD.facts
        for before, after in itertools.pairwise(chain.facts):
            assert before.object == after.subject


def test_too_many_chains_and_no_length_are_refused():
    city = WORLD.of_kind("city")[0]
    with pytest.raises(SettingError, match="this world has 2 chains of length 1"):
        chains(WORLD, 1, 3, "en", starts=[city])
    with pytest.raises(SettingError, match="length=0"):
        chains(WORLD, 0, 1, "en")
    assert {c.facts[0].subject for c in chains(WORLD, 3, 4, "zh", starts=[city])} == {city}


@pytest.mark.parametrize("language", LANGUAGES)
def test_articles_tell_each_fact_as_often_as_they_claim(language):
    articles = write_articles(WORLD, language)
    assert len({a.text for a in articles}) == len({a.id for a in articles}) == len(articles)
    # Counted in the texts alone, by their sentences.
    sentence_of = {
        statement(f, language, v): f for f in WORLD.facts for v in range(len(STATEMENTS[f.relation][language]))
    }
    told, wordings = Counter(), {}
    for article in articles:
        sentences = re.split(r"(?<=[.?。])\s*", article.text)
        found = [sentence_of[s] for s in sentences if s in sentence_of]
        assert Counter(found) == Counter(article.facts) and max(Counter(found).values()) == 1
        told.update(found)
        for s in sentences:
            if s in sentence_of:
                wordings.setdefault(sentence_of[s], set()).add(s)
    assert set(told) == set(WORLD.facts)
    assert 26 <= min(told.values()) <= max(told.values()) <= 29
    assert min(len(w) for w in wordings.values()) >= 3
    kinds = Counter(a.subject.kind for a in articles)
    assert min(kinds[k] for k in DOMAINS) >= 100
    assert all(a.domain == DOMAINS[a.subject.kind] for a in articles)


def test_articles_do_not_depend_on_anything_but_their_seed():
    assert write_articles(WORLD, "en", per_fact=2) == write_articles(WORLD, "en", per_fact=2)
    assert write_articles(WORLD, "en", per_fact=2) != write_articles(WORLD, "en", per_fact=2, seed=1)
    with pytest.raises(SettingError, match="language"):
        write_articles(WORLD, "english")


def test_facts_are_values():
    a, b = WORLD.facts[:2]
    assert Fact(a.subject, a.relation, a.object) == a != b
    with pytest.raises(AttributeError):
        a.relation = "mayor"
