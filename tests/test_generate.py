"""generate.py: equal to decoding without a cache, whatever the batch; sampling; refusals."""

import numpy as np
import pytest
from scipy.stats import chisquare

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.config import ModelConfig
from workbench.errors import DataError, SettingError
from workbench.model.generate import _empty_cache, _prefill, generate, sample
from workbench.model.transformer import Transformer

CONFIG = ModelConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=40,
    num_tasks=3,
    initializer_range=0.5,
)
PROMPTS = [[5], [1, 2, 3], [7, 7, 7, 7, 7, 7, 7, 7], [30, 2, 19, 4, 11], [0, 39]]


@pytest.fixture(scope="module")
def model():
    model = Transformer(CONFIG, seed=4)
    table = model.task_embedding.weight
    table.set_data(ms.Tensor(np.random.default_rng(0).normal(0, 2, table.shape).astype(np.float32)))
    return model


def whole_logits(model, ids, task=0):
    """Logits of every position, computed at once without a cache."""
    zeros = np.zeros((1, len(ids)), np.int32)
    arrays = np.array([ids], np.int32), np.arange(len(ids), dtype=np.int32)[None], zeros + 1, zeros + task
    return model.logits(model(*(ms.Tensor(a) for a in arrays))).asnumpy()[0]


def uncached(model, prompt, count, task=0):
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(whole_logits(model, ids, task)[-1].argmax()))
    return ids[len(prompt) :]


@pytest.fixture(scope="module")
def expected(model):
    return [uncached(model, prompt, 5) for prompt in PROMPTS]


def test_cached_batches_equal_uncached_rows(model, expected):
    assert len({tuple(text) for text in expected}) == len(expected)  # the rows are not all alike
    assert generate(model, PROMPTS, 5) == expected
    assert generate(model, PROMPTS, 5, batch_size=2) == expected
    assert generate(model, [], 5) == []


def test_a_row_stops_at_its_first_stop_id(model, expected):
    stops = {expected[1][2], expected[3][0]}
    cut = []
    for text in expected:
        at = next((i for i, token in enumerate(text) if token in stops), len(text))
        cut.append(text[:at])
    assert cut[3] == [] and any(len(text) == 5 for text in cut)
    assert generate(model, PROMPTS, 5, sorted(stops)) == cut


def test_each_prompt_has_its_task(model, expected):
    tasks = [0, 1, 2, 0, 1]
    got = generate(model, PROMPTS, 3, task_ids=tasks)
    assert got == [uncached(model, prompt, 3, task) for prompt, task in zip(PROMPTS, tasks)]
    assert got[1] != expected[1][:3]


@pytest.mark.parametrize("past", [0, 3, 7])
@pytest.mark.parametrize("new", [1, 4])
def test_a_chunk_after_a_past_equals_the_whole(model, past, new):
    """Also when the rows of a batch have different pasts: row 1 is one token behind."""
    rng = np.random.default_rng(past * 10 + new)
    ids = rng.integers(0, 40, (2, past + new)).astype(np.int32)
    cache = tuple(ms.Tensor(np.zeros((4, 12, 4), np.float32)) for _ in range(4))
    starts = np.array([0, 0])
    for size in ([past] if past else []) + [new]:
        columns = starts[:, None] + np.arange(size)
        chunk = np.take_along_axis(ids, columns, axis=1)
        arrays = chunk, columns.astype(np.int32), np.zeros_like(chunk)
        hidden, cache = model.decode(*(ms.Tensor(a) for a in arrays), cache)
        starts = starts + size - (np.array([0, 1]) if size == past else 0)
        whole = [whole_logits(model, row) for row in ids]
        for row in range(2):
            got = model.logits(hidden).asnumpy()[row]
            np.testing.assert_allclose(got, whole[row][columns[row]], atol=2e-5)


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunked_prefill_gives_the_same_text(model, expected, chunk):
    """Rows end in different chunks: the prompts have 1, 3, 8, 5 and 2 tokens."""
    assert generate(model, PROMPTS, 5, length_step=1, prefill_chunk=chunk) == expected


@pytest.mark.parametrize("length", [4, 8, 9, 10])
def test_chunks_give_the_cache_and_the_logits_of_one_pass(model, length):
    """Chunks of 4: also when the last one overlaps the one before, and for a row that ended chunks ago."""
    tokens = np.random.default_rng(length).integers(0, 40, (2, length)).astype(np.int32)
    lengths, tasks = np.array([length, 2], np.int32), np.array([[1], [2]], np.int32)
    empty = _empty_cache(model, 2, 12)
    logits, cache = _prefill(model, tokens, lengths, tasks, empty, 4)
    for row, size in enumerate(lengths):
        whole = whole_logits(model, tokens[row, :size], int(tasks[row, 0]))
        np.testing.assert_allclose(logits[row], whole[-1], atol=2e-5)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape)
    arrays = tokens, np.ascontiguousarray(positions), np.repeat(tasks, length, axis=1)
    for got, wanted in zip(cache, model.decode(*(ms.Tensor(a) for a in arrays), empty)[1]):
        np.testing.assert_allclose(got.asnumpy(), wanted.asnumpy(), atol=2e-6)


def test_float16_cache_gives_nearly_the_same_logits():
    models = [Transformer(CONFIG, 4, dtype) for dtype in ("float32", "float16")]
    logits = []
    for model in models:
        cache = tuple(ms.Tensor(np.zeros((2, 12, 4), np.float32)).astype(model.compute_dtype) for _ in range(4))
        ids = np.array([[3, 1, 4]], np.int32)
        arrays = ids, np.arange(3, dtype=np.int32)[None], np.zeros_like(ids)
        hidden, cache = model.decode(*(ms.Tensor(a) for a in arrays), cache)
        assert {array.dtype for array in cache} == {model.compute_dtype}
        logits.append(model.logits(hidden).asnumpy())
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.02 * np.abs(logits[0]).max()


def test_samples_follow_the_softmax():
    rng = np.random.default_rng(1)
    logits = np.log(np.array([0.5, 0.2, 0.2, 0.1], np.float32))
    drawn = sample(np.tile(logits, (20000, 1)), rng.random(20000), 1.0, 1.0)
    assert chisquare(np.bincount(drawn, minlength=4), np.array([0.5, 0.2, 0.2, 0.1]) * 20000).pvalue > 0.01
    halved = sample(np.tile(logits, (20000, 1)), rng.random(20000), 0.5, 1.0)
    squares = np.array([0.25, 0.04, 0.04, 0.01])
    assert chisquare(np.bincount(halved, minlength=4), squares / squares.sum() * 20000).pvalue > 0.01


def test_top_p_keeps_the_smallest_set_that_holds_it():
    logits = np.log(np.array([0.1, 0.5, 0.25, 0.15], np.float32))
    draws = np.linspace(0, 1, 1000, endpoint=False)
    for top_p, kept in ((0.49, {1}), (0.6, {1, 2}), (0.76, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        assert set(sample(np.tile(logits, (1000, 1)), draws, 1.0, top_p)) == kept


def test_sampled_text_is_named_by_the_seed_and_not_by_the_batch(model, expected):
    def texts(seed, **options):
        return generate(model, PROMPTS, 5, temperature=1.5, rng=np.random.default_rng(seed), **options)

    assert texts(1) == texts(1, batch_size=2) != texts(2)
    assert texts(1, top_p=1e-6) == expected


@pytest.mark.parametrize(
    "error, told, prompts, count, options",
    [
        (DataError, "prompt 1 has 38 tokens and max_new_tokens is 3, together above", [[1], [2] * 38], 3, {}),
        (DataError, "prompt 0 is empty", [[]], 1, {}),
        (DataError, "prompt 0 holds token 40, allowed are 0 to 39", [[1, 40]], 1, {}),
        (DataError, "prompt 0 holds token -1", [[-1]], 1, {}),
        (DataError, "prompt 0 has task id 3, allowed are 0 to 2", [[1]], 1, {"task_ids": [3]}),
        (DataError, "2 ids for 1 prompts", [[1]], 1, {"task_ids": [0, 0]}),
        (SettingError, "max_new_tokens=0", [[1]], 0, {}),
        (SettingError, "batch_size=0", [[1]], 1, {"batch_size": 0}),
        (SettingError, "prefill_chunk=0", [[1]], 1, {"prefill_chunk": 0}),
        (SettingError, "temperature=-1", [[1]], 1, {"temperature": -1}),
        (SettingError, "needs rng", [[1]], 1, {"temperature": 1.0}),
        (SettingError, "top_p=0", [[1]], 1, {"top_p": 0}),
    ],
)
def test_what_cannot_be_decoded_is_refused(model, error, told, prompts, count, options):
    with pytest.raises(error) as raised:
        generate(model, prompts, count, **options)
    assert told in str(raised.value) and "\n" not in str(raised.value)


def test_a_prompt_that_just_fits_is_decoded(model):
    prompt = [3] * 37
    for chunk in (512, 16):
        assert generate(model, [prompt], 3, prefill_chunk=chunk) == [uncached(model, prompt, 3)]


def test_the_length_step_changes_nothing_but_the_padding(model, expected):
    for step in (1, 13):
        assert generate(model, PROMPTS, 5, length_step=step) == expected
