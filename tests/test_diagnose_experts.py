"""A collapsed layer is named whatever the mean loss says; even and merely noisy loads are not."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.diagnose.experts import collapsed, evenness, loads
from workbench.errors import DataError, SettingError
from workbench.views.experts import load_by_layer, load_over_steps

EXPERTS = 8


def rows_of(shares):
    """Metric rows of shares (n, L, E), from step 1."""
    return [{"step": i + 1, "expert_load": share.tolist()} for i, share in enumerate(np.asarray(shares))]


def noisy(steps, layers=4, seed=0, tokens=256):
    """Loads of a healthy run: every token's expert drawn with uneven but sound probabilities."""
    rng = np.random.default_rng(seed)
    wanted = rng.dirichlet(np.full(EXPERTS, 8.0), layers)
    return np.stack([[rng.multinomial(tokens, p) / tokens for p in wanted] for _ in range(steps)])


def force(shares, layer, start, expert=3, each=1):
    """From step ``start`` on everything in ``layer`` goes to ``each`` experts."""
    shares = shares.copy()
    shares[start - 1 :, layer] = 0
    shares[start - 1 :, layer, expert : expert + each] = 1 / each
    return shares


@pytest.mark.parametrize("each", [1, 2])
def test_a_forced_layer_is_named_with_its_expert_and_its_step(each):
    shares = force(noisy(200), layer=2, start=101, each=each)
    (finding,) = collapsed(rows_of(shares), experts_per_token=each, window=20, layers=(1, 3, 5, 7))
    assert finding.cause == "expert collapse" and finding.severity == "warning"
    text = "\n".join(finding.evidence)
    assert "layer 5" in text and "expert 3 (" in text and "an even share is 12.50%" in text
    assert 101 <= finding.step <= 121, "within one window of the truth"
    assert "router_aux_loss_coef" in finding.next_step


def test_it_is_seen_where_the_mean_loss_looks_usual():
    """One of twelve layers: the mean of E * sum(f P) stays near 1, its value for an even load."""
    shares = force(noisy(30, layers=12), layer=7, start=1)
    rows = rows_of(shares)
    for row, share in zip(rows, shares):
        row["aux_loss"] = float(np.mean(EXPERTS * (share**2).sum(-1)))
    assert rows[-1]["aux_loss"] < 2
    (finding,) = collapsed(rows, experts_per_token=1)
    assert "layer 7" in finding.evidence[0]


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_a_short_run_is_enough(steps):
    (finding,) = collapsed(rows_of(force(noisy(steps), 0, 1)), experts_per_token=1)
    assert finding.step == 1


def test_one_starved_expert_is_named():
    shares = noisy(60)
    shares[20:, 1, 4] = 0
    shares /= shares.sum(-1, keepdims=True)
    (finding,) = collapsed(rows_of(shares), experts_per_token=2, window=10)
    assert "next to nothing for expert 4 (0.00%)" in finding.evidence[0]
    assert 21 <= finding.step <= 31


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_has_none(seed):
    assert collapsed(rows_of(noisy(100, seed=seed)), experts_per_token=2) == []


def test_a_collapse_that_is_over_is_none():
    shares = noisy(200)
    shares[20:60] = force(shares, 0, 1)[20:60]
    assert collapsed(rows_of(shares), experts_per_token=1) == []


def test_rows_without_loads_or_with_batches_of_padding_say_nothing():
    assert collapsed([{"step": 1, "loss": 2.0}], experts_per_token=2) == []
    rows = rows_of(noisy(5)) + [{"step": 6, "expert_load": np.zeros((4, EXPERTS)).tolist()}]
    assert loads(rows)[1].shape == (5, 4, EXPERTS)
    assert collapsed(rows_of(np.full((5, 2, 2), 0.5)), experts_per_token=2) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=16).filter(lambda v: sum(v) > 1e-3))
def test_evenness_lies_between_one_expert_and_all(values):
    share = np.array(values) / sum(values)
    assert -1e-9 <= evenness(share) <= 1 + 1e-9
    assert evenness(np.eye(4)[0]) == 0 and evenness(np.full(4, 0.25)) == pytest.approx(1)


def test_wrong_rows_and_settings_are_refused():
    good = rows_of(noisy(2))
    for wrong in ("0.5", [0.5, 0.5], [[0.5], [0.5, 0.5]], [[-1.0, 2.0]]):
        with pytest.raises(DataError, match="step 3: expert_load"):
            loads([*good, {"step": 3, "expert_load": wrong}])
    with pytest.raises(DataError, match="2 x 4, before it was 4 x 8"):
        loads([*good, {"step": 3, "expert_load": np.full((2, 4), 0.25).tolist()}])
    with pytest.raises(DataError, match="4 sparse layers, the model 1"):
        collapsed(good, experts_per_token=1, layers=(0,))
    for name, value in (("experts_per_token", 0), ("window", 0), ("idle", 1.0), ("flood", 0.0)):
        with pytest.raises(SettingError, match=name):
            collapsed(good, **{"experts_per_token": 1, name: value})


def test_the_pictures_hold_the_loads():
    steps, shares = loads(rows_of(force(noisy(40), layer=1, start=1)))
    picture, text = load_over_steps(steps, shares, 1, "layer 3")
    heat = picture.data[0]
    assert np.array(heat.z).shape == (EXPERTS, 40) and heat.z[3][0] == EXPERTS and heat.z[0][0] == 0
    assert text.startswith("layer 3, step 40: 0.00% to 100.00%") and text.endswith("evenness 0.000")
    picture, text = load_by_layer(steps, shares, 39, layers=(1, 3, 5, 7))
    assert np.array(picture.data[0].z).shape == (4, EXPERTS) and "layer 3, evenness 0.000" in text
    json.loads(picture.to_json())
