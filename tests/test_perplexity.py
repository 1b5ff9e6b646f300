"""Perplexity against numpy; a model that knows nothing, and the unigram model, at known values."""

import numpy as np
import pytest
from tiny_model import TINY

import mindspore as ms

from workbench.data.layout import make_layout
from workbench.data.sources import SampleSource
from workbench.data.store import CUT, LOSS, Entry, TokenStore
from workbench.errors import DataError
from workbench.evaluate.perplexity import PerplexityMeter, unigram_perplexity
from workbench.model.transformer import Transformer

CONFIG = TINY


def source_of(documents, name="validation"):
    store = TokenStore.of([Entry(np.asarray(t, np.int32), np.full(len(t), CUT | LOSS, np.uint8)) for t in documents])
    return SampleSource(name, store, make_layout(store, 16, 0.25), padding_id=0)


def test_it_is_the_exponential_of_the_mean_loss_over_every_target_once():
    rng = np.random.default_rng(0)
    source = source_of([rng.integers(0, 64, n) for n in (50, 7, 3, 20)])
    model = Transformer(CONFIG, seed=0)
    got = PerplexityMeter(model, source, batch_size=3).measure()
    batch = source.batch(np.arange(len(source)), np.arange(len(source)))
    names = ("input_ids", "position_ids", "segment_ids", "task_ids")
    logits = model.logits(model(*(ms.Tensor(batch[n]) for n in names))).asnumpy().astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    asked = batch["labels"] != -100
    picked = np.take_along_axis(log_p, np.maximum(batch["labels"], 0)[..., None], 2)[..., 0]
    assert got.tokens == asked.sum() == 49 + 6 + 2 + 19
    assert got.value == pytest.approx(np.exp(-picked[asked].mean()), rel=1e-5)
    assert got.low <= got.value <= got.high


def test_an_untrained_model_is_at_the_size_of_the_vocabulary():
    rng = np.random.default_rng(1)
    source = source_of([rng.integers(0, 64, 400)])
    assert PerplexityMeter(Transformer(CONFIG, seed=0), source).measure().value == pytest.approx(64, rel=0.05)


def test_max_rows_bounds_what_is_measured():
    source = source_of([np.arange(64)] * 10)
    assert PerplexityMeter(Transformer(CONFIG, seed=0), source, max_rows=2).measure().rows == 2


def test_the_unigram_model_is_the_smoothed_entropy():
    train = source_of([[1, 1, 1, 2]], "base").store
    got = unigram_perplexity(train, source_of([[5, 1, 1, 2]]), vocab_size=4)
    # Counts with add-one smoothing: token 1 has 4 of 8, token 2 has 2 of 8; targets are 1, 1, 2.
    assert got.value == pytest.approx(np.exp(-(2 * np.log(4 / 8) + np.log(2 / 8)) / 3))


def test_no_validation_text_says_what_to_change():
    with pytest.raises(DataError, match="raise validation_share"):
        PerplexityMeter(Transformer(CONFIG, seed=0), source_of([]))


def test_a_diverged_model_has_an_infinite_one_and_no_error():
    source = source_of([np.arange(64)] * 3)
    meter = PerplexityMeter(Transformer(CONFIG, seed=0), source)
    meter._sums = lambda batch: (np.full(16, 8000.0), np.full(16, 10))
    assert meter.measure().value == np.inf
