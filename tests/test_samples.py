"""The sample files: made anew they are the same, and they hold what README.md says."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from workbench.data.audit import audit_tokenizer
from workbench.data.sample_faults import daily_rows, healthy_rows
from workbench.data.sample_pages import _filled, misread
from workbench.data.sample_tasks import split_starts
from workbench.data.samples import corpus_files, write_samples
from workbench.data.tokenizing import encode, load_tokenizer
from workbench.data.world import make_world, question, walks
from workbench.data.world_text import LANGUAGES, QUESTIONS
from workbench.errors import DataError
from workbench.run_folder import read_lines

FOLDER = Path(__file__).parent.parent / "data_samples"
WORLD = make_world()


def rows(name):
    return list(read_lines(FOLDER / name))


@pytest.fixture(scope="module")
def tasks():
    return rows("tasks.jsonl")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in write_samples(folder)}


def test_files_on_disk_are_what_the_module_makes(made):
    on_disk = {p.relative_to(FOLDER).as_posix() for p in FOLDER.rglob("*") if p.is_file()}
    assert on_disk - {"README.md"} == set(made)
    assert [name for name, content in made.items() if (FOLDER / name).read_bytes() != content] == []
    assert sum(map(len, made.values())) < 4_000_000
    assert len(made["tasks.jsonl"]) < 1_500_000


def test_another_seed_gives_other_files(made):
    other = corpus_files(make_world(7, companies=8, people=16, universities=4, cities=4), 7)
    assert set(other) < set(made)
    assert other["corpus/people.jsonl"] != made["corpus/people.jsonl"]
    assert healthy_rows(7) != healthy_rows(8)


def test_corpus_documents_are_whole_and_different():
    texts = []
    for name in ("companies", "people"):
        documents = rows(f"corpus/{name}.jsonl")
        assert all(set(d) == {"id", "language", "domain", "text"} for d in documents)
        assert {d["language"] for d in documents} == set(LANGUAGES)
        assert len({d["id"] for d in documents}) == len(documents)
        texts += [d["text"] for d in documents]
    for name in ("cities", "universities"):
        texts += (FOLDER / f"corpus/{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    assert len(texts) == len(set(texts)) > 4000
    assert all(text == text.strip() and "\n" not in text and "{" not in text for text in texts)
    assert 0.35 < sum("\u4e00" <= t[len(t) // 2] <= "\u9fff" for t in texts) / len(texts) < 0.65
    assert sum(len(t.encode()) for t in texts) > 700_000


def test_every_fact_is_asked_in_both_languages(tasks):
    asked = {(t["turns"][0]["question"], t["turns"][0]["answer"]) for t in tasks if t["task_type"] == "fact_qa"}
    wanted = {
        (question(f, language, 1, v), f.object.name(language))
        for f in WORLD.facts
        for language in LANGUAGES
        for v in range(len(QUESTIONS[f.relation][language]))
    }
    assert asked == wanted


def test_tasks_have_one_form(tasks):
    assert 3000 <= len(tasks) <= 6000 and len({t["id"] for t in tasks}) == len(tasks)
    must = {"id", "task_type", "language", "domain", "hops", "relations", "turns"}
    for task in tasks:
        assert set(task) - {"truth"} == must and task["hops"] == len(task["turns"]) and task["language"] in LANGUAGES
        assert ("truth" in task) == (task["task_type"] == "true_false")
        assert all(set(turn) == {"question", "answer"} and all(turn.values()) for turn in task["turns"])
        assert (task["hops"] > 1) == (task["task_type"] == "multi_hop")
    kinds = Counter((t["task_type"], t["language"]) for t in tasks)
    assert len(kinds) == 5 * 2 and min(kinds.values()) >= 100
    hops = Counter(t["hops"] for t in tasks if t["task_type"] == "multi_hop")
    assert set(hops) == {2, 3, 4}


def names_in(text, language):
    return [e for e in WORLD.entities if e.name(language) in text]


def test_claims_are_true_exactly_where_they_say_so(tasks):
    holds = {(f.subject, f.object) for f in WORLD.facts}
    truths = Counter()
    for task in (t for t in tasks if t["task_type"] == "true_false"):
        pair = names_in(task["turns"][0]["question"], task["language"])
        assert len(pair) == 2
        relation = task["relations"][0]
        true = any(
            (f.subject, f.object) in (tuple(pair), tuple(reversed(pair))) for f in WORLD.facts if f.relation == relation
        )
        assert task["truth"] == float(true)
        assert task["turns"][0]["answer"] == {"en": ("False", "True"), "zh": ("错", "对")}[task["language"]][true]
        truths[task["truth"]] += 1
        assert not true or tuple(pair) in holds or tuple(reversed(pair)) in holds
    assert 0.4 < truths[1.0] / truths.total() < 0.6


def test_extraction_answers_are_in_their_passage(tasks):
    for task in (t for t in tasks if t["task_type"] == "extraction"):
        passage, asked = re.split("\n(?:Question: |问题：)", task["turns"][0]["question"])
        assert task["turns"][0]["answer"] in passage and task["turns"][0]["answer"] not in asked
        (subject,) = names_in(asked, task["language"])
        assert WORLD.answer(subject, task["relations"][0]).name(task["language"]) == task["turns"][0]["answer"]


def test_translations_are_the_world_s_names(tasks):
    other = {"en": "zh", "zh": "en"}
    for task in (t for t in tasks if t["task_type"] == "translation"):
        (entity,) = names_in(task["turns"][0]["question"], task["language"])
        assert task["turns"][0]["answer"] == entity.name(other[task["language"]])


def followed(sample):
    """(start, relations) of a chain, every answer checked by walking the world."""
    (start,) = names_in(sample["turns"][0]["question"], sample["language"])
    here = start
    for turn, relation in zip(sample["turns"], sample["relations"], strict=True):
        here = WORLD.answer(here, relation)
        assert here.name(sample["language"]) == turn["answer"]
    return start, tuple(sample["relations"])


def test_no_evaluation_chain_begins_like_a_training_chain(tasks):
    chains = rows("chains.jsonl")
    assert len(chains) == len({c["id"] for c in chains}) == 200
    assert Counter((c["language"], c["hops"]) for c in chains) == {
        (language, hops): n for language in LANGUAGES for hops, n in {4: 70, 6: 15, 8: 15}.items()
    }
    trained = [followed(t) for t in tasks if t["task_type"] == "multi_hop"]
    held_out = [followed(c) for c in chains]
    assert {start for start, _ in trained}.isdisjoint(start for start, _ in held_out)
    assert not set(trained) & {(start, path[:n]) for start, path in held_out for n in (2, 3, 4)}
    # About half of the possible starts are trained on.
    possible = {walk[0].subject for walk in walks(WORLD, 2)}
    assert 0.4 < len({start for start, _ in trained}) / len(possible) < 0.6
    training, evaluation = split_starts(WORLD)
    assert set(training) | set(evaluation) == {f.subject for f in WORLD.facts} and not set(training) & set(evaluation)


def test_pages_hold_the_mess_they_promise():
    pages = {p.name: p.read_bytes().decode("utf-8") for p in (FOLDER / "corpus/pages").glob("*.html")}
    everything = "\n".join(pages.values())
    for needle in (
        "&amp;", "&nbsp;", "&#x4e2d;", "&lt;", "<script", "<style", "<!--", "<table", "<pre>", "cafÃ©", "ＡＢＣ",
        "$AAPL", "$QNTR", "if a<3 and b>2", "价格<100元，且>50元", "vector<int>", "你好，世界？；︰", "\r\n", "\x07",
        "\u200b", "\ufeff", "\u00ad", "\u2028", misread("你好，世界", "latin-1"), "👨‍👩‍👧",
    ):  # fmt: skip
        assert needle in everything, needle
    assert 8 <= len(pages) <= 12 and "\x00" not in everything
    crlf = pages["cities_table_crlf.html"]
    assert crlf.count("\n") == crlf.count("\r\n") > 10
    assert misread("café", "cp1252").encode("cp1252").decode("utf-8") == "café"
    with pytest.raises(DataError, match="@planet3"):
        _filled("see @planet3.en@", WORLD)


def test_broken_files_are_broken():
    broken = FOLDER / "broken"
    for name in ("invalid_utf8.txt", "gbk_page.html", "binary_named.txt", "binary.bin"):
        with pytest.raises(UnicodeDecodeError):
            (broken / name).read_bytes().decode("utf-8")
    assert "的首席执行官是" in (broken / "gbk_page.html").read_bytes().decode("gbk")
    assert (broken / "empty.txt").read_bytes() == b"" and len((broken / "one_character.txt").read_text("utf-8")) == 1
    assert b"\x00" in (broken / "binary_named.txt").read_bytes()
    good = 0
    for line in (broken / "lines.jsonl").read_text("utf-8").split("\n"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        good += isinstance(row, dict) and isinstance(row.get("text"), str) and row["text"] != ""
    assert good == 2


def test_kernel_logs_agree_with_themselves():
    logs = {p.stem: p.read_text("utf-8") for p in (FOLDER / "kernel_logs").glob("*.log")}
    assert "oom" not in logs["clean"].lower() and "kill" not in logs["clean"].lower()
    assert "Kill process 4321 (python) score" in logs["oom_classic"]
    assert "CONSTRAINT_MEMCG" in logs["oom_memcg"] and "segfault at 0" in logs["segfault"]
    for name in ("oom_classic", "oom_modern", "oom_memcg", "oom_journal"):
        sizes = r"total-vm:(\d+)kB, anon-rss:(\d+)kB, file-rss:(\d+)kB"
        killed = re.search(rf"Killed process (\d+) \((\w+)\) {sizes}", logs[name])
        pid, _, total, anon, file = killed.groups()
        row = re.search(rf"\[ *{pid}\] +\d+ +{pid} +(\d+) +(\d+) ", logs[name])
        if name != "oom_journal":  # pages of 4 KiB in the table, kB in the last line
            assert (int(row[1]) * 4, int(row[2]) * 4) == (int(total), int(anon) + int(file))
        if name != "oom_classic":
            assert f"task={killed[2]},pid={pid}," in logs[name]


def test_metrics_show_the_faults_at_the_steps_they_name():
    healthy, sick, daily = rows("metrics/healthy.jsonl"), rows("metrics/sick.jsonl"), rows("metrics/daily.jsonl")
    fields = {
        "step", "steps", "loss", "lm_loss", "grad_norm", "learning_rate", "loss_scale", "overflow", "step_seconds",
        "tokens_per_second", "rss_mb", "cpu_percent", "tokens",
    }  # fmt: skip
    for run in (healthy, sick):
        assert [r["step"] for r in run] == list(range(1, 301)) and all(set(r) == fields for r in run)
        for before, after in zip(run, run[1:], strict=False):  # the scale halves after an overflow, down to 1
            if before["overflow"]:
                assert after["loss_scale"] == max(1.0, before["loss_scale"] / 2)
            assert after["loss_scale"] >= before["loss_scale"] or before["overflow"]
    assert all(math.isfinite(r["loss"]) for r in healthy) and healthy[-1]["loss"] < 2
    assert sum(r["overflow"] for r in healthy) == 1
    assert [r["step"] for r in sick if math.isnan(r["loss"])] == list(range(262, 301))
    assert [r["step"] for r in sick if r["overflow"]] == list(range(231, 301)) and sick[-1]["loss_scale"] == 1
    assert sick[180]["loss"] - sick[179]["loss"] > 1.5 and sick[198]["loss"] - sick[179]["loss"] < 0.5
    assert sick[-1]["rss_mb"] - sick[100]["rss_mb"] > 250 > 50 > healthy[-1]["rss_mb"] - healthy[100]["rss_mb"]
    assert sick[-1]["step_seconds"] > 2 * sick[100]["step_seconds"]
    high = [d["day"] for d in daily if d["memory_growth_rate"] > 20]
    assert high == [21, 22, 23] and [d["day"] for d in daily if d["step_time_variance"] > 0.004] == [10, 11]
    assert daily == daily_rows(20231024)


def test_the_tokenizer_loads_offline_and_fits_the_corpus(tasks):
    plain = AutoTokenizer.from_pretrained(str(FOLDER / "tokenizer"), local_files_only=True)
    assert plain.is_fast and len(plain) == 2048
    tokenizer = load_tokenizer(FOLDER / "tokenizer")
    texts = [d["text"] for d in rows("corpus/companies.jsonl")[:300]]
    audit = audit_tokenizer(tokenizer, texts)
    assert (audit.round_trip_failures, audit.unknown_rate, audit.tickers_whole_share) == (0, 0, 1)
    assert audit.tokens_per_cjk_character < 1.02 and audit.tokens_per_latin_character < 0.3
    assert '"normalizer": null' in (FOLDER / "tokenizer/tokenizer.json").read_text("utf-8")
    # A whole chain of four hops fits into the default 128 positions, with room for a template.
    four = [t for t in rows("chains.jsonl") if t["hops"] == 4]
    longest = max(
        sum(len(encode(tokenizer, turn["question"])) + len(encode(tokenizer, turn["answer"])) for turn in t["turns"])
        for t in four
    )
    assert longest < 100
