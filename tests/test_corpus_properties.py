"""Whatever the texts are: every document, character and token is accounted for, and every rank sees one order."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from corpus_files import PLAIN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.config import DataConfig
from workbench.data.cleaning import clean
from workbench.data.pipeline import open_corpus
from workbench.data.sources import COLUMNS
from workbench.data.stages import policy_of
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError

NASTY = st.sampled_from(
    ["", " ", "\n\n", "a", "然", "😀", "👩\u200d🔬" * 20, "🏳️\u200d🌈🇨🇳" * 10, "שלום abc مرحبا 你好 12", "\u202eevil\u202c", "\x00\x01", "e\u0301" * 40,
     "<p>标题</p><script>x</script>", "if a<3 and b>2: pass", "你好，世界？；︰", "<eos><bos>", "\ufeff", "ａｂｃ１２３", "字" * 3000, "word " * 900, "\ud800"]
)  # fmt: skip
TEXTS = st.lists(st.one_of(NASTY, st.text(max_size=200)), min_size=1, max_size=30)
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


def corpus_of(texts, tokenizer, folder, **values):
    file = Path(folder) / "texts.jsonl"
    # Lone surrogates are written as JSON escapes, as broken exports do.
    file.write_text("\n".join(json.dumps({"text": t}) for t in texts), encoding="utf-8")
    config = DataConfig(data=str(file), tasks="", tokenizer="-", **values)
    return open_corpus(config, tokenizer, Path(folder) / "data")


@settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
@given(texts=TEXTS, overlap=st.sampled_from([0.0, 0.25, 0.5]), size=st.sampled_from([16, 32, 128]))
def test_every_token_of_every_text_is_a_target_once(tokenizer, texts, overlap, size):
    expected = [clean(t, policy_of(DataConfig())).text for t in texts if t.strip()]
    expected = [t for t in expected if t.strip()]
    with tempfile.TemporaryDirectory() as folder:
        how = {**PLAIN, "validation_share": 0.0, "overlap": overlap, "sequence_length": size}
        if not expected:
            with pytest.raises(DataError):
                corpus_of(texts, tokenizer, folder, **how)
            return
        corpus = corpus_of(texts, tokenizer, folder, **how)
        facts, source = corpus.preparation, corpus.sources["base"]
        assert facts.documents_read + sum(facts.rejected.values()) == len(texts)
        assert facts.documents["base"] == len(expected) == facts.documents_read - sum(facts.dropped.values())
        assert [source.store.document(d).text for d in range(len(expected))] == expected
        batch = source.batch(np.arange(len(source)), np.arange(len(source)))
        asked = np.sort(batch["labels"][batch["labels"] != -100])
        wanted = []
        for text in expected:
            ids = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
            assert not {0, 1, 2, 3} & set(ids), "text became a control token"
            wanted += [*ids, tokenizer.eos_token_id]
        assert asked.tolist() == sorted(wanted)
        # What a window reads and is asked for decodes to a part of a text: no character was cut.
        offsets = source.store.offsets
        for row in range(len(source)):
            for document, start, stop, _ in source.pieces(row):
                ids = source.store.tokens[offsets[document] + start : offsets[document] + stop + 1]
                said = tokenizer.decode(ids, skip_special_tokens=True)
                assert said in expected[document] and ("\ufffd" not in said or "\ufffd" in expected[document])


@settings(max_examples=10, deadline=None, suppress_health_check=QUIET)
@given(texts=TEXTS.filter(lambda t: any(x.isalnum() for x in "".join(t))), seed=st.integers(0, 2**31))
def test_all_branches_keep_the_ledger_the_order_and_the_bits(tokenizer, texts, seed):
    with tempfile.TemporaryDirectory() as folder:
        try:
            corpus = corpus_of(
                texts,
                tokenizer,
                folder,
                sequence_length=32,
                seed=seed,
                base_share=0.7,
                task_share=0.0,
                perturbed_share=0.3,
            )
        except DataError as error:
            assert "no usable text" in str(error) or "went to validation" in str(error)
            return
        facts = corpus.preparation
        assert facts.instructions == facts.documents["base"] * 15 // 100
        epoch = corpus.mixture.epoch_length
        alone = list(corpus.batches(8, position=epoch - 3, steps=4))
        parts = [list(corpus.batches(8, position=epoch - 3, steps=4, rank=r, ranks=4)) for r in range(4)]
        again = list(corpus.batches(8, position=epoch - 3, steps=4, tokenise="dataset"))
        for i, whole in enumerate(alone):
            for name in COLUMNS:
                assert np.array_equal(np.concatenate([p[i][name] for p in parts]), whole[name])
                assert np.array_equal(again[i][name], whole[name])
