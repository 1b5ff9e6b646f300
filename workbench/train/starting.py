"""What a run starts from: fresh weights fitted to the tokenizer, or a Hugging Face folder.

    config, model = starting_model(config, tokenizer, device)

With ``init_from`` the folder decides the shape of the model, and the settings keep what belongs to
training: task embedding, layer and task dropout, capacity and coefficients of the router. The
vocabulary may be larger than the tokenizer's, never smaller.
"""

from dataclasses import replace

from workbench.config import RunConfig
from workbench.data.tokenizing import rows_needed
from workbench.device import Device
from workbench.errors import DataError, SettingError, UserError
from workbench.model.exchange import load_hf, model_of
from workbench.model.transformer import Transformer

_OF_TRAINING = ("task_dropout", "layer_dropout", "expert_capacity_factor", "router_aux_loss_coef", "router_z_loss_coef")


def starting_model(config: RunConfig, tokenizer, device: Device) -> tuple[RunConfig, Transformer]:
    """``config`` with the model it really gets, and that model.

    A fresh vocabulary is the tokenizer's, rounded up to a multiple of 64. Raises SettingError where
    the model has fewer positions than a sample; DataError for a folder that cannot be loaded, or
    whose vocabulary is smaller than the tokenizer's.
    """
    train, needed = config.train, rows_needed(tokenizer)
    if not config.init_from:
        model = replace(config.model, vocab_size=-(-needed // 64) * 64)
        config = _checked(replace(config, model=model))
        return config, Transformer(config.model, train.seed, train.precision, device.flash_attention, train.kernels)
    try:
        found, weights = load_hf(config.init_from)
    except UserError as error:
        raise type(error)(f"init_from: {error}") from error
    if found.vocab_size < needed:
        raise DataError(
            f"init_from: {config.init_from} has a vocabulary of {found.vocab_size:,} and the tokenizer "
            f"{config.data.tokenizer} needs {needed:,}: give the tokenizer of that model"
        )
    kept = {name: getattr(config.model, name) for name in _OF_TRAINING}
    if "task_embedding.weight" not in weights:
        kept["num_tasks"] = config.model.num_tasks
    config = _checked(replace(config, model=replace(found, **kept)))
    return config, model_of(config.model, weights, train.seed, train.precision, device.flash_attention, train.kernels)


def _checked(config: RunConfig) -> RunConfig:
    if config.model.max_position_embeddings < config.data.sequence_length:
        raise SettingError(
            f"max_position_embeddings={config.model.max_position_embeddings} is below "
            f"sequence_length={config.data.sequence_length}: raise it"
            + (", or shorten the samples" if config.init_from else "")
        )
    return config
