"""Facts exchanged within a text: which are found, what is never exchanged, and how often it is false."""

import random

import pytest
import regex

from workbench.data.articles import write_articles
from workbench.data.boundaries import sentences
from workbench.data.perturb import perturb
from workbench.data.swapped_facts import find_facts, swap_changes
from workbench.data.world import RELATIONS, make_world
from workbench.data.world_text import STATEMENTS


def found(text):
    return [(s.kind, text[s.start : s.end]) for s in find_facts(text)]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            "It rose by 12% in 1998, from 3,120 employees.",
            [("number, %", "12"), ("year", "1998"), ("number, employees", "3,120")],
        ),
        (
            "On 2024-01-31 and 31 January 2024.",
            [("date, 2024-01-31", "2024-01-31"), ("date, 31 January 2024", "31 January 2024")],
        ),
        (
            "January 31, 2024; March 3",
            [("date, January 31, 2024", "January 31, 2024"), ("date, January 31", "March 3")],
        ),
        (
            "于2024年1月31日，1998年，3月1日。",
            [("date, 2024年1月31日", "2024年1月31日"), ("year", "1998"), ("date, 1月31日", "3月1日")],
        ),
        ("《海》和$ALDA, not $ALDAx", [("title", "《海》"), ("ticker", "$ALDA")]),
        ("The mayor Mira Voss of Elm College left.", [("name", "Mira Voss"), ("organisation", "Elm College")]),
        ("He was born in Oslo.", [("place", "Oslo")]),
        ("On Monday Morning The Late Mira saw March Winds", []),
        ("首席执行官是柏安雅。", [("person", "柏安雅")]),
        ("昆塔尔由首席执行官龚博领导，总部位于霁港。", [("person", "龚博"), ("place", "霁港")]),
        ("他毕业于阿德大学。", [("school", "阿德大学")]),
        ("首席执行官是一位工程师。校长是谁？毕业于一所大学。", []),
        ("增长了12%，员工3,000人，共5亿元", [("number, %", "12"), ("number, 人", "3,000"), ("number, 亿元", "5")]),
        (
            "１９９８年产值５７．５亿元，历时40年",
            [("year", "１９９８"), ("number, 亿元", "５７．５"), ("number, 年", "40")],
        ),
        ("v1.2.3, 10:30, 3/4, a12, 1998x", []),
    ],
)
def test_which_facts_are_found(text, facts):
    assert found(text) == facts


@pytest.mark.parametrize(
    "text",
    [
        "Only Mira Voss is here. Mira Voss left.",  # one name
        "Mira Voss and Tor Ek met.",  # one sentence
        "Mira Voss was born. Tor Ek was born.",  # alike but for the names
        "It took 5 days. It took 7 days.",
        "Mira Voss was born in Oslo. The birthplace of Tor Ek is Oslo.",  # both told of Oslo
        "In 1998, 1999 and 2004.",  # a list; the years in it are not even found
        "It was open in 1998 and in 1998.",
        "It grew 5%, 7% and 9%.",
        "He read 《海》、《山》。",
        "",
        "🎉",
    ],
)
def test_what_may_stay_true_is_not_exchanged(text):
    assert all(swap_changes(text, random.Random(seed)) == [] for seed in range(20))


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("Alda had 12 % of it. Borea had 30 %.", "Alda had 30 % of it. Borea had 12 %."),
        ("In 1998 it sank, but rose in 2004.", "In 2004 it sank, but rose in 1998."),
        ("Mira Voss leads Alda. Borea chose Tor Ek.", "Tor Ek leads Alda. Borea chose Mira Voss."),
        ("《海》很长。他只读过《山》。", "《山》很长。他只读过《海》。"),
        ("昆塔尔的校长是柏安雅。阿德的市长是龚博。", "昆塔尔的校长是龚博。阿德的市长是柏安雅。"),
        ("1月2日开会，3月4日结束。", "3月4日开会，1月2日结束。"),
    ],
)
def test_two_facts_change_places(text, swapped):
    copy = perturb(text, 0, ["swapped facts"])
    assert (copy.text, copy.truth, len(copy.changes)) == (swapped, 0.0, 2)


def reader(world, language):
    """A function from a text to the verdict on each sentence: true, false, or None for no statement of the world."""
    names = {e.name(language): e for e in world.entities}
    any_name = "|".join(sorted(map(regex.escape, names), key=len, reverse=True))
    patterns = [
        (
            relation,
            regex.compile(
                rf"{regex.escape(wording, literal_spaces=True)}".replace(r"\{s\}", f"(?P<s>{any_name})").replace(
                    r"\{o\}", f"(?P<o>{any_name})"
                )
            ),
        )
        for relation, wordings in STATEMENTS.items()
        for wording in wordings[language]
    ]

    def verdict(sentence):
        said = [(relation, m) for relation, pattern in patterns if (m := pattern.fullmatch(sentence))]
        if not said:
            return None
        # A wording may fit two relations ("X is the president of Y"); one that holds is enough to be true.
        return any(
            names[m["s"]].kind == RELATIONS[relation][0] and world.answer(names[m["s"]], relation) == names[m["o"]]
            for relation, m in said
        )

    return lambda text: [verdict(sentence) for sentence, _ in sentences(text)]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("seed", [20231024, 7])
def test_a_swapped_text_of_a_known_world_states_something_false(language, seed):
    world = make_world(seed)
    articles = random.Random(0).sample(write_articles(world, language, seed=seed), 500)
    read = reader(world, language)
    assert not any(False in read(a.text) for a in articles[:100]), "the reader must believe the articles themselves"
    copies = [perturb(a.text, 3, ["swapped facts"]) for a in articles]
    false = [False in read(c.text) for c in copies if c.truth == 0.0]
    assert len(false) >= 50, "and there must be enough of them to say so"
    assert sum(false) / len(false) >= 0.97
