"""Chain depth with models whose answers are known."""

import json

import pytest

from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError
from workbench.evaluate import chains as rooms
from workbench.evaluate.chains import Chain, evaluate_chains, line_ends, prompt_ids, read_chains

CHAINS = [
    Chain(
        "a", "en", (("Who leads Alda?", "Mira Voss"), ("Where was that person born?", "Tor"), ("Which river?", "Ume"))
    ),
    Chain("b", "zh", (("谁领导明脉？", "米拉"), ("那个人出生在哪里？", "砂渡"))),
    Chain("c", "en", (("Who leads Borea?", "Mira Voss"), ("Where was that person born?", "Oslo"))),
]


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture
def answering(monkeypatch, tokenizer):
    """Replace the model by a function from the prompt's text to an answer."""

    def install(say):
        def generate(model, prompts, max_new_tokens, stop_ids, task_ids, batch_size, length_step):
            return [
                tokenizer.encode(say(tokenizer.decode(p, skip_special_tokens=True)), add_special_tokens=False)
                for p in prompts
            ]

        monkeypatch.setattr(rooms, "generate", generate)
        return lambda: evaluate_chains(None, tokenizer, CHAINS)

    return install


GOLD = {q: a for c in CHAINS for q, a in c.turns}


def last_question(prompt):
    line = prompt.rstrip().rsplit("\n", 1)[0].rsplit("\n", 1)[-1]
    return line.split(": ", 1)[-1].split("：", 1)[-1]


def test_a_model_that_knows_everything_reaches_the_end(answering):
    by_start = {"Alda": "Tor", "Borea": "Oslo"}

    def say(prompt):
        question = last_question(prompt)
        if question == "Where was that person born?":
            return " " + next(city for start, city in by_start.items() if start in prompt) + "\nmore"
        return " " + GOLD[question] + "\n"

    report = answering(say)()
    assert [r.depth for r in report.results] == [3, 2, 2]
    assert report.depth.value == pytest.approx(7 / 3) and report.lengths == {2: 2, 3: 1}
    assert report.survival.tolist() == [1, 1, 1]


def test_the_first_wrong_answer_ends_a_chain_though_later_ones_would_be_right(answering):
    report = answering(
        lambda prompt: (
            " wrong\n" if "Who leads Alda" in last_question(prompt) else " " + GOLD[last_question(prompt)] + "\n"
        )
    )()
    first = report.results[0]
    assert first.depth == 0 and first.answers == ("wrong",)
    assert report.survival[0] == pytest.approx(2 / 3)
    # With the answers before it given, later hops are still measured.
    assert report.given[2] == 1.0


def test_an_answer_must_be_exact(answering):
    for said in ("Mira", "Mira Voss of Alda", "mira voss", ""):
        report = answering(lambda prompt: f" {said}\n")()
        assert report.results[0].depth == 0


def test_a_constant_answer_scores_no_more_than_the_constant_baseline(answering):
    report = answering(lambda prompt: " Mira Voss\n")()
    assert [r.depth for r in report.results] == [1, 0, 1]
    # The most common answer by hop is Mira Voss, then Tor (the first of three), then Ume: depths 3, 0, 1.
    assert report.constant_depth.value == pytest.approx(4 / 3)


def test_the_prompt_has_all_earlier_questions_and_answers_rendered_as_in_training(tokenizer):
    ids = prompt_ids(tokenizer, CHAINS[0], 2)
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids[1:]) == (
        "Question: Who leads Alda?\nAnswer: Mira Voss\nQuestion: Where was that person born?\nAnswer: Tor\n"
        "Question: Which river?\nAnswer:"
    )


def test_line_ends_are_every_token_with_a_newline_and_the_end_of_text(tokenizer):
    ends = line_ends(tokenizer)
    assert tokenizer.eos_token_id in ends
    assert all("\n" in tokenizer.decode([i]) for i in ends if i != tokenizer.eos_token_id)
    assert set(tokenizer.encode("\n", add_special_tokens=False)) <= set(ends)


def test_bundled_chains_are_read_and_none_is_a_training_task(samples):
    chains = read_chains(samples / "chains.jsonl")
    trained = set()
    for line in (samples / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
        turns = json.loads(line)["turns"]
        questions = [t["question"] for t in turns]
        trained |= {tuple(questions[:n]) for n in range(2, len(questions) + 1)}
    assert len(chains) >= 100
    assert not {tuple(q for q, _ in c.turns) for c in chains} & trained


@pytest.mark.parametrize(
    "line", ["{", '{"id": 1}', '{"id": 1, "turns": [{"question": "q"}]}', '{"id": 1, "turns": []}']
)
def test_a_broken_chain_is_named_by_line(tmp_path, line):
    file = tmp_path / "chains.jsonl"
    file.write_text('{"id": 0, "turns": [{"question": "q", "answer": "a"}]}\n' + line + "\n")
    with pytest.raises(DataError, match="chains.jsonl:2: not a chain"):
        read_chains(file)


def test_a_missing_or_empty_file_of_chains(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_chains(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no chains in it"):
        read_chains(tmp_path / "empty.jsonl")
