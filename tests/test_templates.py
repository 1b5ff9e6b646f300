"""Templates against the tokenizer's own rendering; documents as instructions, unchanged."""

import pickle

import pytest
from chat_tokenizers import STYLES, chat_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.encoding import Encoder
from workbench.data.templates import PLAIN, chat_templates, inject, templates_for
from workbench.data.tokenizing import spec_of
from workbench.errors import DataError, SettingError

TURNS = [("Who leads Alda?", "Mira Voss"), ("那个人出生在哪里？", "砂渡"), ("Which river?", "Ume 😀")]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def tokenizers(samples):
    return {name: chat_tokenizer(samples, name) for name in STYLES}


@pytest.fixture(scope="module")
def templates(tokenizers):
    return {name: chat_templates(tokenizer) for name, tokenizer in tokenizers.items()}


def own_rendering(tokenizer, turns, system=""):
    """What the template writes, without the begin and end of text that every sample gets as tokens."""
    messages = [{"role": "system", "content": system}] if system else []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    text = text.removeprefix(tokenizer.bos_token) if tokenizer.bos_token else text
    ended = text.rstrip().endswith(tokenizer.eos_token)
    return text.rstrip().removesuffix(tokenizer.eos_token) if ended else text


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_put_together_are_the_templates_own_rendering(tokenizers, templates, name, count):
    parts, loss, control = templates[name].render(TURNS[:count])
    assert "".join(parts) == own_rendering(tokenizers[name], TURNS[:count])
    assert len(parts) == len(loss) == len(control) and all(parts)
    if templates[name].chat.system:
        with_system = templates[name].render(TURNS[:count], system="Be brief. 简短。")[0]
        assert "".join(with_system) == own_rendering(tokenizers[name], TURNS[:count], "Be brief. 简短。")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.sampled_from(sorted(STYLES)))
def test_any_text_is_rendered_as_the_template_does(tokenizers, templates, turns, name):
    # The template writes nothing but these answers, so a text end inside them cannot be told from its own.
    assert "".join(templates[name].render(turns)[0]) == own_rendering(tokenizers[name], turns)


@pytest.mark.parametrize("name", STYLES)
def test_a_sample_has_one_begin_and_one_end_of_text(tokenizers, templates, name):
    """Kind 22 of the bugs people report: templates that write the begin of text, and those that do not."""
    tokenizer, templates = tokenizers[name], templates[name]
    encoder = Encoder(spec_of(tokenizer))
    parts, _, control = templates.render(TURNS[:1])
    ids = [i for part, _ in encoder.encode(parts, control) for i in part.tolist()]
    ids = [encoder.spec.begin, *ids, encoder.spec.end]
    if tokenizer.bos_token:
        assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[-1] == tokenizer.eos_token_id != ids[-2] and ids[1] != ids[0]
    written = own_rendering(tokenizer, TURNS[:1])
    for special in STYLES[name].special:
        expected = written.count(special) + ({tokenizer.bos_token, tokenizer.eos_token} & {special} != set())
        expected += special == tokenizer.eos_token and not tokenizer.bos_token  # which then begins the text as well
        assert ids.count(tokenizer.convert_tokens_to_ids(special)) == expected, special


def test_loss_is_on_answers_and_what_ends_them(templates):
    parts, loss, control = templates["qwen-like"].render(TURNS[:2])
    asked = [p for p, on in zip(parts, loss) if on]
    assert asked == ["Mira Voss", "<|im_end|>\n", "砂渡", "<|im_end|>\n"]
    assert [p for p, c in zip(parts, control) if not c] == [text for turn in TURNS[:2] for text in turn]
    assert parts[0] == "<|im_start|>user\n", "the header of the next question is not part of the turn's end"
    parts, loss, _ = templates["qwen-like"].render(TURNS[:2], system="Be brief.", loss_on="all")
    assert [p for p, on in zip(parts, loss) if not on] == [
        "<|im_start|>system\n",
        "<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]
    with pytest.raises(SettingError, match="loss_on='answers' is not allowed: 'response' or 'all'"):
        PLAIN.render(TURNS, loss_on="answers")


@pytest.mark.parametrize(
    ("name", "end", "last_end"),
    [
        ("deepseek-like", "<｜end▁of▁sentence｜>", ""),
        ("llama-like", "<|eot_id|>", "<|eot_id|>"),
        ("qwen-like, turn end is text end", "<|im_end|>\n", ""),
        ("two ends", "<|end|>\n", "<|end|>\n"),
        ("brackets, no system", "</s>", ""),
    ],
)
def test_where_a_turn_ends_and_what_is_left_of_the_last_end(templates, name, end, last_end):
    assert (templates[name].chat.end, templates[name].chat.last_end) == (end, last_end)


def test_a_prompt_is_the_beginning_of_the_conversation(templates):
    for chosen in (PLAIN, *templates.values()):
        parts, _, control = chosen.render(TURNS)
        for turn in range(3):
            texts, is_control = chosen.prompt(TURNS, turn)
            assert tuple(texts) == parts[: len(texts)]
            assert tuple(is_control) == (control or (False,) * len(parts))[: len(texts)]
            assert parts[len(texts)].strip() == TURNS[turn][1]
        with pytest.raises(DataError, match="turn 3 of a conversation of 3 turns"):
            chosen.prompt(TURNS, 3)


def test_templates_pickle_and_hold_no_tokenizer(templates):
    for chosen in (PLAIN, *templates.values()):
        assert pickle.loads(pickle.dumps(chosen)) == chosen
        assert len(pickle.dumps(chosen)) < 2000 and hash(chosen)


def test_the_setting_chooses(samples, tokenizers):
    bare = chat_tokenizer(samples, "qwen-like", template="")
    assert templates_for(bare, "auto") is PLAIN and templates_for(tokenizers["llama-like"], "plain") is PLAIN
    assert templates_for(tokenizers["llama-like"]).style == "chat" and PLAIN.style == "plain"
    with pytest.raises(SettingError, match="templates='chat': this tokenizer has no chat template; set templates='pl"):
        templates_for(bare, "chat")
    with pytest.raises(SettingError, match="templates='jinja' is not allowed: 'auto', 'plain', 'chat'"):
        templates_for(bare, "jinja")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "does not write each message once and in order"),
        ("{% for m in messages %}{{ m.content + m.content }}{% endfor %}", "does not write each message once"),
        ("{{ raise_exception('roles must be cats') }}", "fails on a plain conversation .roles must be cats"),
        (
            "{{ messages | length }}{% for m in messages %}{{ '|' + m.content }}{% endfor %}",
            "conversation of 1 turns otherwise",
        ),
        ("{% for m in messages %}{{ m.content.replace(' ', '_') }}{% endfor %}", "changes the white space"),
        ("{% for m in messages %", "fails on a plain conversation"),
    ],
)
def test_a_template_that_cannot_be_taken_apart_is_refused_with_the_way_out(samples, template, said):
    with pytest.raises(SettingError, match=said) as caught:
        chat_templates(chat_tokenizer(samples, "qwen-like", template))
    assert "templates='plain'" in str(caught.value) and "\n" not in str(caught.value)


def test_a_system_message_that_the_template_refuses(templates):
    with pytest.raises(DataError, match="a system message, which this chat template does not take"):
        templates["brackets, no system"].render(TURNS, system="Be brief.")
    with pytest.raises(DataError, match="without a turn"):
        PLAIN.render([])


DOCUMENTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300),
    st.text("ab c.!?\n。！，中文🇩🇪👍🏽\u200d\u0301שלום{}", min_size=1, max_size=120),
    st.sampled_from(["a", "中", "😀", "👨‍👩‍👧", "e\u0301", " ", "\r\n", "🇩🇪🇫🇷", "a" * 500, "中" * 500, "שלום world"]),
)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, st.integers(0, 5), st.sampled_from([None, "", "A {} title\nof two lines"]))
def test_an_injected_document_is_there_unchanged(templates, text, seed, title):
    import regex

    for chosen in (PLAIN, templates["llama-like"], templates["qwen-like"]):
        made = inject(text, chosen, seed, title=title)
        split = made.meta["split"]
        whole = "".join(made.parts)
        asked = [part for part, on in zip(made.parts, made.loss) if on]
        assert text[split:] in asked[0] and asked[0].strip(" \n").startswith(text[split:].strip(" \n"))
        assert text[:split] in whole and text[split:].strip(" \n") + "" in asked[0]
        edges = {0, *(m.end() for m in regex.finditer(r"\X", text))}
        assert split in edges, "cut inside a grapheme cluster"
        assert (made.task_type, made.truth) == ("instruction", None)
        assert inject(text, chosen, seed, title=title) == made


def test_every_instruction_occurs_in_both_languages_and_quotes_the_beginning():
    seen = set()
    for i in range(300):
        for text in (
            f"Ship {i} sailed north, far from home. It met ice. The crew waited.",
            f"第{i}艘船向北航行，离家很远。它遇到了冰。",
        ):
            made = inject(text, PLAIN, 0, title="Ice" if i % 2 else None)
            name, split = made.meta["template"], made.meta["split"]
            seen.add((made.meta["language"], name, i % 2))
            prompt, answer = made.parts
            assert answer in (f" {text[split:]}\n", f"{text[split:]}\n")
            assert ("Ice" in prompt) == (name in ("about", "report"))
            if name in ("continue", "next"):
                assert text[:split].rstrip().endswith((".", "。"))
            if name == "begin":
                quoted = prompt.split("\n\n")[1].rsplit("\n", 1)[0]
                assert split == 0 and text.startswith(quoted) and 0 < len(quoted) <= len(text) / 2 + 1
            if name == "complete":
                assert not text[:split].rstrip().endswith((".", "。"))
    untitled = {"continue", "next", "complete", "begin"}
    for language in ("en", "zh"):
        assert {n for spoken, n, titled in seen if spoken == language and not titled} == untitled
        assert {n for spoken, n, titled in seen if spoken == language and titled} == untitled | {"about", "report"}


def test_an_empty_document_has_no_instruction():
    with pytest.raises(DataError, match="an empty text"):
        inject("", PLAIN, 0)
