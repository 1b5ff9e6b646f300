"""Settings: names, types, values; and what is said when one is wrong."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.config import DataConfig, ModelConfig, RunConfig, TrainConfig, fingerprint
from workbench.errors import SettingError, UserError


def test_a_config_goes_to_json_and_comes_back_equal():
    config = RunConfig(train=TrainConfig(steps=7, learning_rate=1), model=ModelConfig(hidden_size=64))
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    assert config.train.learning_rate == 1.0 and isinstance(config.train.learning_rate, float)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TrainConfig(learning_rte=1e-3), "unknown setting 'learning_rte'; did you mean 'learning_rate'?"),
        (lambda: TrainConfig(steps="many"), "steps: 'many' is a str, expected int"),
        (lambda: TrainConfig(steps=2.5), "steps: 2.5 is a float, expected int"),
        (lambda: TrainConfig(steps=True), "steps: True is a bool, expected int"),
        (lambda: TrainConfig(steps=0), "steps=0 is not allowed: at least 1"),
        (lambda: TrainConfig(precision="bf16"), "precision='bf16' is not allowed: float32, float16 or bfloat16"),
        (lambda: TrainConfig(init_loss_scale=0.5), "between min_loss_scale=1"),
        (lambda: TrainConfig(max_grad_norm=float("inf")), "max_grad_norm=inf is not allowed: a finite float32"),
        (lambda: TrainConfig(learning_rate=1e39), "learning_rate=1e+39 is not allowed: a finite float32"),
        (lambda: TrainConfig(adam_beta2=0.99999999), "adam_beta2=0.99999999 is not allowed: 0 to 0.99999"),
        (lambda: TrainConfig(adam_epsilon=1e-50), "adam_epsilon=1e-50 is not allowed: at least 1e-20"),
        (lambda: ModelConfig(hidden_size=130), "a multiple of num_attention_heads=4"),
        (lambda: ModelConfig(num_key_value_heads=3), "a divisor of num_attention_heads=4"),
        (lambda: ModelConfig(rms_norm_eps=1e-12), "fp16 gradients"),
        (lambda: ModelConfig(rms_norm_eps=float("inf")), "fp16 gradients are not finite), below 1"),
        (lambda: ModelConfig(initializer_range=-0.02), "initializer_range=-0.02 is not allowed: 0 or more"),
        (lambda: ModelConfig(expert_capacity_factor=float("inf")), "expert_capacity_factor=inf is not allowed: 0 or"),
        (lambda: ModelConfig(rope_theta=float("inf")), "rope_theta=inf is not allowed: above 1"),
        (lambda: ModelConfig(rope_scaling=None), "rope_scaling=None is not allowed: settings such as"),
        (lambda: ModelConfig(mlp_only_layers=[2]), "mlp_only_layers=[2] is not allowed: a list of layers, 0 to 1"),
        (lambda: ModelConfig(mlp_only_layers=1), "mlp_only_layers=1 is not allowed: a list of layers, 0 to 1"),
        (lambda: DataConfig(overlap=0.95), "overlap=0.95 is not allowed: between 0 and 0.9"),
        (lambda: DataConfig(base_share=0.5), "they must sum to 1, not 0.8"),
        (lambda: DataConfig(unicode_form="nfc"), "NFC, NFKC or none"),
        (lambda: RunConfig.from_dict({"model": {}, "trian": {}}), "unknown setting 'trian'; did you mean 'train'?"),
    ],
)
def test_a_wrong_setting_is_one_line_that_says_what_to_change(build, message):
    with pytest.raises(SettingError) as raised:
        build()
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_configs_cannot_be_changed():
    with pytest.raises(AttributeError):
        TrainConfig().steps = 3


def test_a_notebook_shows_a_user_error_as_its_one_line():
    assert UserError("too long")._render_traceback_() == ["UserError: too long"]


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_a_fingerprint_depends_on_content_alone(values):
    backwards = dict(reversed(values.items()))
    assert fingerprint(values) == fingerprint(backwards)
    assert fingerprint(values) != fingerprint({**values, "one more": 1})
    assert len(fingerprint(values)) == 16
