"""The budget of a step: against the allocator's measured peak, against sums by hand, and as a table."""

import math
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_memory import SPARSE, WIDE
from tiny_model import TINY

from workbench.cli import commands, main
from workbench.config import ModelConfig, RunConfig, TrainConfig
from workbench.errors import SettingError
from workbench.model.attend import pieces
from workbench.model.experts import block_count, block_rows, capacity
from workbench.model.families import to_hf
from workbench.model.transformer import Transformer
from workbench.run_folder import write_json
from workbench.train.activations import CHUNK, HEAD_CHUNK, Activations, chunks
from workbench.train.budget import largest_bucket, memory_budget, parameter_count, parameter_shapes
from workbench.train.large_models import SEVEN_BILLION, large_model_table
from workbench.train.memory import KINDS, measure_memory
from workbench.train.reducing import plan_of
from workbench.train.state import TrainState

BASE = ModelConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
# Settings that differ in what decides: (model, train, length).
MEASURED = {
    "wide, many layers": (dict(hidden_size=128, intermediate_size=352, num_hidden_layers=4), dict(batch_size=2), 64),
    "windows, long": (dict(sliding_window=32, max_window_layers=1), dict(batch_size=2), 384),
    "large vocabulary, untied, blocks recomputed": (
        dict(vocab_size=16000, tie_word_embeddings=False),
        dict(batch_size=2, recompute="block"),
        128,
    ),
    "only the update is large": (dict(vocab_size=20000, num_hidden_layers=1), dict(batch_size=1), 16),
    "the same, moments on the host": (
        dict(vocab_size=20000, num_hidden_layers=1),
        dict(batch_size=1, optimizer_offload="host"),
        16,
    ),
    "one small layer, large batch": (
        dict(vocab_size=64, hidden_size=32, num_hidden_layers=1),
        dict(batch_size=32),
        128,
    ),
    "norms of heads, attention recomputed": (dict(use_qk_norm=True), dict(batch_size=4, recompute="attention"), 256),
    "experts with a capacity, whole recomputed": (
        dict(num_experts=4, expert_capacity_factor=1.0),
        dict(batch_size=4, recompute="whole"),
        128,
    ),
    "wide experts, feed-forward recomputed": (
        dict(num_experts=4, moe_intermediate_size=256, shared_expert_intermediate_size=64),
        dict(batch_size=2, recompute="feed_forward"),
        128,
    ),
    "float16": (dict(norm_type="layer_norm"), dict(batch_size=4, precision="float16"), 128),
}


@pytest.mark.parametrize("name", MEASURED)
def test_within_a_tenth_of_what_the_allocator_measures(name):
    model, train, length = MEASURED[name]
    model, train = replace(BASE, **model), TrainConfig(**train)
    measured = measure_memory(model, train, length).peak_mb
    assert memory_budget(model, train, length).allocator_mb == pytest.approx(measured, rel=0.1)


models = st.builds(
    lambda heads, head, layers, inner, vocabulary, experts, tied: ModelConfig(
        vocab_size=vocabulary,
        hidden_size=heads * head,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=1,
        num_experts=experts,
        num_experts_per_tok=1,
        tie_word_embeddings=tied,
    ),
    st.integers(1, 4),
    st.sampled_from([2, 8, 32]),
    st.integers(1, 4),
    st.integers(1, 300),
    st.integers(1, 3000),
    st.integers(0, 4),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(models, st.sampled_from(KINDS), st.sampled_from(["float32", "float16"]), st.integers(1, 4), st.integers(1, 600))
def test_what_holds_for_any_settings(model, kind, precision, rows, length):
    def of(rows=rows, length=length, **other):
        train = TrainConfig(**{"batch_size": rows, "recompute": kind, "precision": precision} | other)
        return memory_budget(model, train, length)

    budget = of()
    assert sum(budget.lines().values()) == pytest.approx(budget.peak_mb)
    assert sum(budget.lines(by_layer=False).values()) == pytest.approx(budget.peak_mb)
    assert all(size >= 0 for m in budget.moments for size in (m.gradients, *m.layers, *m.parts.values()))
    assert budget.state["parameters"] == 4 * parameter_count(model)
    assert of(rows=2 * rows).allocator_mb >= budget.allocator_mb
    assert of(length=length + 1).allocator_mb >= budget.allocator_mb
    kept = {k: sum(of(recompute=k).moments[0].layers) for k in ("none", "feed_forward", "block", "whole")}
    assert kept["none"] > kept["feed_forward"] > kept["block"] >= kept["whole"]


@given(st.integers(1, 700), st.integers(0, 300))
def test_chunks_are_those_of_the_model(length, window):
    expected = [(stop - start, stop - first) for start, stop, first in pieces.fn(length, CHUNK, window)]
    assert chunks(length, window) == expected


def test_what_the_budget_counts_by_itself_is_what_the_model_has():
    from workbench.model.attend import LeanAttend
    from workbench.model.head_loss import HeadLoss

    assert LeanAttend(2, 1).chunk == CHUNK and HeadLoss().chunk == HEAD_CHUNK
    for factor in (0.0, 1.25):
        model = replace(TINY, num_experts=8, expert_capacity_factor=factor)
        tokens = 3 * 50
        rows = block_rows(8, 2 * tokens)
        expected = (8, capacity(model, tokens)) if factor else (block_count(8, 2 * tokens, rows), rows)
        assert Activations(model, TrainConfig(), 3, 50).slots == expected


def test_sharding_and_offload_by_hand():
    count, train = parameter_count(WIDE), TrainConfig(batch_size=8)
    plain = memory_budget(WIDE, train, 32).state
    assert plain == {"parameters": 4 * count, "optimizer moments": 8 * count}
    bucket = count  # all fit into 25 MiB
    shared = memory_budget(WIDE, replace(train, optimizer_sharding="zero1"), 32, ranks=4)
    assert shared.state == {
        "parameters": 4 * count,
        "master weights": -(-4 * count // 4),
        "optimizer moments": 2 * count,
        "communication": 8 * bucket,
    }
    assert "not measured, from arithmetic: ranks and optimizer_sharding" in shared.notes
    state = TrainState.fresh(Transformer(WIDE, 0), replace(train, optimizer_offload="host"))
    alone = TrainState.fresh(Transformer(WIDE, 0), replace(train, optimizer_sharding="zero1")).optimizer
    slices = memory_budget(WIDE, replace(train, optimizer_sharding="zero1"), 32).state["master weights"]
    assert slices == sum(4 * part.size for part in alone.slices)
    staged = state.optimizer.resident_bytes()["device"]
    away = memory_budget(WIDE, replace(train, optimizer_offload="host", gradient_accumulation_steps=2), 32)
    assert away.state == {"parameters": 4 * count, "accumulated gradients": 4 * count, "staging": staged}
    assert away.elsewhere == {"moments on host": 8 * count}
    refused = memory_budget(WIDE, replace(train, optimizer_sharding="zero1", optimizer_offload="host"), 32, ranks=2)
    assert any(note.startswith("training refuses optimizer_sharding") for note in refused.notes)
    half = memory_budget(WIDE, replace(train, precision="bfloat16"), 32, device="Ascend")
    assert sum(half.state.values()) == 14 * count and half.moments[-1].gradients == 2 * count
    assert any("nothing here was run on Ascend" in note for note in half.notes)


@pytest.mark.parametrize("rule", ["bytes", "size_groups", "parameter"])
@pytest.mark.parametrize("megabytes", [0.001, 0.1, 25.0])
def test_the_largest_bucket_is_that_of_the_plan(rule, megabytes):
    train = TrainConfig(bucket_by=rule, bucket_mb=megabytes, bucket_size_groups=(64, 1024))
    sizes = [math.prod(shape) for shape in parameter_shapes(WIDE).values()]
    plan = plan_of(Transformer(WIDE, 0).trainable_params(), train)
    # A layer's norms stand elsewhere in the model's order than in the budget's.
    assert largest_bucket(sizes, train) == pytest.approx(max(bucket.elements for bucket in plan), abs=2 * 64)


def test_seven_billion_parameters_need_sixteen_bytes_each():
    assert parameter_count(SEVEN_BILLION) == pytest.approx(6.74e9, rel=0.001)
    fits = {fit.name: fit for fit in large_model_table()}
    plain = fits["float16, nothing recomputed"]
    assert plain.state_gb == pytest.approx(14 * 6.74, rel=0.001)  # and 2 bytes of gradient that come and go
    assert plain.state_gb + 2 * 6.74 > 107 and plain.fits == (False, False, False)
    assert not any(fit.fits[0] for fit in fits.values())  # weights and gradients alone are 27 GB
    assert fits["block, zero1 over 64 ranks"].fits == (False, True, True)
    assert fits["block, zero1 over 8 ranks"].fits == (False, False, True)


@pytest.mark.parametrize(
    "changed, more, told",
    [
        ({"precision": "bfloat16"}, {}, "precision='bfloat16' is not allowed with device='CPU'"),
        ({"batch_size": 6}, {"ranks": 4}, "batch_size=6 is not allowed: a multiple of ranks"),
        ({}, {"device": "Ascned"}, "unknown device 'Ascned'; did you mean 'Ascend'?"),
        ({}, {"ranks": 0}, "ranks=0"),
    ],
)
def test_mistakes_are_named(changed, more, told):
    with pytest.raises(SettingError, match=told.replace("?", r"\?")):
        memory_budget(TINY, TrainConfig(**changed), 16, **more)


def test_the_command_tells_the_budget_of_settings_runs_and_hugging_face_folders(tmp_path):
    def told(*arguments):
        done = CliRunner().invoke(commands, ["budget", *arguments], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    budget = memory_budget(replace(ModelConfig(), hidden_size=64), TrainConfig(batch_size=4), 32)
    output = told("-p", "hidden_size=64", "-p", "batch_size=4", "-p", "sequence_length=32")
    assert f"peak: {budget.peak.name}" in output and f"{budget.peak_mb:,.1f} MiB" in output
    config = RunConfig(model=replace(ModelConfig(), **SPARSE), train=TrainConfig(recompute="block"))
    write_json(tmp_path / "run" / "config.json", config.as_dict())
    output = told("--from", str(tmp_path / "run"))
    assert f"{parameter_count(config.model):,} parameters" in output and "recompute=block" in output
    write_json(tmp_path / "hf" / "config.json", to_hf(SEVEN_BILLION))
    output = told("--from", str(tmp_path / "hf"), "--device", "Ascend", "--ranks", "8", "-p", "precision=bfloat16")
    assert "6,738,5" in output and "24 GB no" in output and "not measured" in output


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["-p", "hiden_size=3"], "unknown setting 'hiden_size'; did you mean 'hidden_size'?"),
        (["-p", "hidden_size=wide"], "expected int"),
        (["-p", "recompute=some"], "recompute='some' is not allowed"),
        (["-p", "sequence_length=300", "-p", "max_position_embeddings=200"], "below sequence_length=300"),
        (["--from", "nowhere"], "nowhere/config.json: cannot be read"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(arguments, told, capsys):
    assert main(["budget", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
