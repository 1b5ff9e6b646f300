"""starting.py: a run that starts from a Hugging Face folder is that model, and goes on training it."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_model import TINY
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from workbench.config import DataConfig, RunConfig, TrainConfig
from workbench.data.tokenizing import load_tokenizer
from workbench.device import DEVICES
from workbench.errors import DataError, SettingError
from workbench.model.exchange import export_hf
from workbench.model.transformer import Transformer
from workbench.train.starting import starting_model

CPU = DEVICES["CPU"]


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(str(samples / "tokenizer"))


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A small Qwen3-like model of another shape than TINY, and its weights."""
    shape = replace(TINY, vocab_size=2112, hidden_size=24, num_hidden_layers=2, use_qk_norm=True, num_tasks=5)
    weights = {p.name: p.asnumpy().copy() for p in Transformer(shape, seed=7).trainable_params()}
    own = ("task_embedding.weight", "instruction_head.weight", "fact_head.weight")
    place = tmp_path_factory.mktemp("models")
    family = {name: array for name, array in weights.items() if name not in own}
    return export_hf(place / "ours", shape, weights), export_hf(place / "theirs", shape, family), weights


def config(**values):
    own = replace(TINY, num_tasks=9, task_dropout=0.2, layer_dropout=0.1)
    return RunConfig(data=DataConfig(sequence_length=32), model=own, train=TrainConfig(seed=3), **values)


def test_a_fresh_model_takes_the_tokenizers_vocabulary(tokenizer):
    fitted, model = starting_model(config(), tokenizer, CPU)
    assert fitted.model == replace(config().model, vocab_size=2048) == model.config


def test_ids_with_gaps_have_a_row_each():
    vocabulary = Tokenizer(models.BPE({"a": 0, "b": 199}, []))
    gaps = PreTrainedTokenizerFast(tokenizer_object=vocabulary, eos_token="b")
    assert len(gaps) == 2 and starting_model(config(), gaps, CPU)[0].model.vocab_size == 256


def test_the_folders_model_is_taken_whole_and_training_settings_are_kept(tokenizer, folder):
    ours, _, weights = folder
    fitted, model = starting_model(config(init_from=str(ours)), tokenizer, CPU)
    assert (fitted.model.hidden_size, fitted.model.use_qk_norm, fitted.model.num_tasks) == (24, True, 5)
    assert (fitted.model.task_dropout, fitted.model.layer_dropout) == (0.2, 0.1)
    assert RunConfig.from_dict(fitted.as_dict()) == fitted
    found = {p.name: p.asnumpy() for p in model.trainable_params()}
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array)


def test_heads_that_a_folder_lacks_are_fresh_and_as_many_as_asked(tokenizer, folder):
    _, theirs, weights = folder
    (theirs / "workbench.json").unlink()
    fitted, model = starting_model(config(init_from=str(theirs)), tokenizer, CPU)
    assert fitted.model.num_tasks == 9
    found = {p.name: p.asnumpy() for p in model.trainable_params()}
    assert found["instruction_head.weight"].shape == (9, 24) and (found["task_embedding.weight"] == 0).all()
    np.testing.assert_array_equal(found["model.norm.weight"], weights["model.norm.weight"])


def test_what_does_not_fit_is_refused_in_one_line(tokenizer, folder, tmp_path):
    with pytest.raises(DataError, match="init_from: .*cannot be read"):
        starting_model(config(init_from=str(tmp_path / "nothing")), tokenizer, CPU)
    small = replace(TINY, vocab_size=100)
    weights = {p.name: p.asnumpy() for p in Transformer(small, seed=7).trainable_params()}
    with pytest.raises(DataError, match="vocabulary of 100 and the tokenizer .* needs 2,0"):
        starting_model(config(init_from=str(export_hf(tmp_path / "small", small, weights))), tokenizer, CPU)
    long = replace(config(init_from=str(folder[0])), data=DataConfig(sequence_length=512))
    with pytest.raises(SettingError, match="max_position_embeddings=256 is below sequence_length=512"):
        starting_model(long, tokenizer, CPU)
