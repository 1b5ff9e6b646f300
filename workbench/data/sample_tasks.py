"""Task samples and evaluation chains drawn from the synthetic world.

    fact_qa      one question about one fact; every fact, both languages, every wording
    multi_hop    2 to 4 questions, each about the answer before it
    extraction   a passage and a question that it answers
    true_false   a claim that holds (``truth`` 1.0) or whose object was exchanged (0.0)
    translation  a name in the other language

The entities are split once: half of them may start a multi_hop task, the other half start the
evaluation chains. So no evaluation chain, and no beginning of one, is ever a training sample,
while each of its single facts is. ``turns`` are the questions in order with their exact answers.

Does not do: prompt templates (``workbench.data.tasks``) or perturbations.
"""

import random
from typing import Any

from workbench.data.world import RELATIONS, Chain, Entity, Fact, World, chains, question, statement
from workbench.data.world_text import LANGUAGES, QUESTIONS, wording_count

Sample = dict[str, Any]

_PASSAGE = {"en": "Passage: {p}\nQuestion: {q}", "zh": "短文：{p}\n问题：{q}"}
_CLAIM = {"en": "True or false? {c}", "zh": "判断对错：{c}"}
_VERDICT = {"en": ("False", "True"), "zh": ("错", "对")}
_TRANSLATE = {"en": "What is the Chinese name of {s}?", "zh": "{s}的英文名是什么？"}


def split_starts(world: World, seed: int = 0) -> tuple[tuple[Entity, ...], tuple[Entity, ...]]:
    """(training, evaluation): the entities with facts, each kind split in halves."""
    training: list[Entity] = []
    evaluation: list[Entity] = []
    rng = random.Random(f"{seed}/starts")
    for kind in dict.fromkeys(subject for subject, _ in RELATIONS.values()):
        members = list(world.of_kind(kind))
        rng.shuffle(members)
        training += members[: len(members) // 2]
        evaluation += members[len(members) // 2 :]
    return tuple(training), tuple(evaluation)


def make_tasks(world: World, *, chains_per_length: int = 220, passages: int = 160, seed: int = 0) -> list[Sample]:
    """All task samples, shuffled; the counts are for each language. See the module for the kinds."""
    starts, _ = split_starts(world, seed)
    samples: list[Sample] = []
    for language in LANGUAGES:
        rng = random.Random(f"{seed}/tasks/{language}")
        for fact in world.facts:
            for variant in range(len(QUESTIONS[fact.relation][language])):
                turn = (question(fact, language, 1, variant), fact.object.name(language))
                samples.append(_sample("fact_qa", language, fact.domain, [turn], [fact]))
        for length in (2, 3, 4):
            for chain in chains(world, length, chains_per_length, language, seed, starts):
                samples.append(_chain_sample("multi_hop", chain))
        for _ in range(passages):
            samples.append(_extraction(world, language, rng))
        for fact in world.facts:
            samples.append(_claim(world, fact, language, rng))
        for entity in world.entities:
            if entity.kind != "ticker":
                other = "zh" if language == "en" else "en"
                turn = (_TRANSLATE[language].format(s=entity.name(language)), entity.name(other))
                samples.append(_sample("translation", language, "translation", [turn], []))
    random.Random(f"{seed}/order").shuffle(samples)
    counts: dict[tuple[str, str], int] = {}
    for sample in samples:
        key = (sample["task_type"], sample["language"])
        sample["id"] = f"{key[0]}-{key[1]}-{counts.setdefault(key, 0):04d}"
        counts[key] += 1
    return samples


def evaluation_chains(world: World, *, counts: dict[int, int] | None = None, seed: int = 0) -> list[Sample]:
    """Held-out chains; ``counts`` maps a length to a number of chains for each language."""
    _, starts = split_starts(world, seed)
    return [
        {**_chain_sample("multi_hop", chain), "id": chain.id}
        for length, count in (counts or {4: 70, 6: 15, 8: 15}).items()
        for language in LANGUAGES
        for chain in chains(world, length, count, language, seed, starts)
    ]


def _sample(
    task_type: str, language: str, domain: str, turns: list[tuple[str, str]], facts: list[Fact], **more: Any
) -> Sample:
    return {
        "id": "",
        "task_type": task_type,
        "language": language,
        "domain": domain,
        "hops": len(turns),
        "relations": [f.relation for f in facts],
        **more,
        "turns": [{"question": q, "answer": a} for q, a in turns],
    }


def _chain_sample(task_type: str, chain: Chain) -> Sample:
    return _sample(task_type, chain.language, chain.facts[0].domain, list(chain.turns), list(chain.facts))


def _extraction(world: World, language: str, rng: random.Random) -> Sample:
    # Three facts about entities of one kind, so that the answer cannot be told by its kind alone.
    fact = rng.choice(world.facts)
    alike = [f for f in world.facts if f.relation == fact.relation and f.object != fact.object]
    shown = [fact, *rng.sample(alike, 2)]
    rng.shuffle(shown)
    passage = (" " if language == "en" else "").join(
        statement(f, language, rng.randrange(wording_count(f.relation, language))) for f in shown
    )
    text = _PASSAGE[language].format(p=passage, q=question(fact, language, 1, rng.randrange(2)))
    return _sample("extraction", language, fact.domain, [(text, fact.object.name(language))], [fact])


def _claim(world: World, fact: Fact, language: str, rng: random.Random) -> Sample:
    true = rng.random() < 0.5
    others = [e for e in world.of_kind(fact.object.kind) if e != fact.object]
    told = fact if true else Fact(fact.subject, fact.relation, rng.choice(others))
    claim = statement(told, language, rng.randrange(wording_count(fact.relation, language)))
    turn = (_CLAIM[language].format(c=claim), _VERDICT[language][true])
    return _sample("true_false", language, fact.domain, [turn], [fact], truth=float(true))
