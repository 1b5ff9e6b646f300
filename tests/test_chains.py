"""Chain depth with models whose answers are known."""

import json

import pytest
from chat_tokenizers import STYLES, chat_tokenizer

from workbench.data.encoding import Encoder
from workbench.data.tasks import render_task
from workbench.data.templates import PLAIN, chat_templates
from workbench.data.tokenizing import load_tokenizer, spec_of
from workbench.errors import DataError
from workbench.evaluate import chains as rooms
from workbench.evaluate.chains import Chain, answer_ends, evaluate_chains, line_ends, prompt_ids, read_chains

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


def training_tokens(tokenizer, chain, templates):
    """The tokens of the same conversation as a task sample is prepared: each part by itself."""
    row = {"language": chain.language, "turns": [{"question": q, "answer": a} for q, a in chain.turns]}
    rendered = render_task(row, templates)
    encoder = Encoder(spec_of(tokenizer))
    encoded = encoder.encode(rendered.parts, rendered.control or None)
    return [encoder.spec.begin, *(i for ids, _ in encoded for i in ids.tolist()), encoder.spec.end]


@pytest.mark.parametrize("name", ["plain", *STYLES])
def test_a_prompt_is_the_beginning_of_the_training_tokens(samples, tokenizer, name):
    chosen = tokenizer if name == "plain" else chat_tokenizer(samples, name)
    templates = PLAIN if name == "plain" else chat_templates(chosen)
    for chain in CHAINS:
        trained = training_tokens(chosen, chain, templates)
        for hop in range(len(chain)):
            ids = prompt_ids(chosen, chain, hop, templates)
            assert ids == trained[: len(ids)]
            # What follows is the answer and then, within a few tokens, one of the ends to stop at.
            rest = trained[len(ids) :]
            stop = next(i for i, token in enumerate(rest) if token in answer_ends(chosen, templates))
            assert chosen.decode(rest[:stop], skip_special_tokens=True).strip() == chain.turns[hop][1]


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("qwen-like", {"<|im_end|>", "<|endoftext|>"}),
        ("llama-like", {"<|eot_id|>", "<|end_of_text|>"}),
        ("deepseek-like", {"<｜end▁of▁sentence｜>"}),
        ("brackets, no system", {"</s>"}),
    ],
)
def test_a_chat_answer_ends_at_the_end_of_its_turn(samples, name, ends):
    chosen = chat_tokenizer(samples, name)
    assert {chosen.convert_ids_to_tokens(i) for i in answer_ends(chosen, chat_templates(chosen))} == ends


def test_a_template_without_special_tokens_ends_answers_with_a_line(samples):
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    chosen = chat_tokenizer(samples, "qwen-like", template)
    assert answer_ends(chosen, chat_templates(chosen)) == line_ends(chosen)


def test_chains_are_asked_with_the_templates_of_the_training(samples, monkeypatch):
    chosen = chat_tokenizer(samples, "llama-like")
    templates, asked = chat_templates(chosen), []

    def generate(model, prompts, max_new_tokens, stop_ids, task_ids, batch_size, length_step):
        asked.extend(prompts)
        assert stop_ids == answer_ends(chosen, templates) and task_ids == [3] * len(prompts)
        return [chosen.encode("Mira Voss", add_special_tokens=False) for _ in prompts]

    monkeypatch.setattr(rooms, "generate", generate)
    report = evaluate_chains(None, chosen, CHAINS, task_id=3, templates=templates)
    assert [r.depth for r in report.results] == [1, 0, 1]
    text = chosen.decode(asked[0])
    assert text == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho leads Alda?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
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
