"""Pictures that can be stored and compared, and panels that show their errors."""

import io
import json
import re
from contextlib import redirect_stdout

import numpy as np
import plotly.graph_objects as go
from IPython.display import HTML
import pytest

from workbench.data.cleaning import CleaningPolicy, clean
from workbench.errors import SettingError
from workbench.run_folder import read_lines
from workbench.train.scaling import simulate_limit
from workbench.config import ModelConfig, TrainConfig
from workbench.data.ledger import Ledger
from workbench.data.sharding import RankBalance
from workbench.data.windows import cut_windows
from workbench.model.mask_arms import ArmTiming
from workbench.model.mask_forms import chunks
from workbench.train.budget import memory_budget
from workbench.train.large_models import large_model_table
from workbench.train.memory import Arm, MemoryTrace
from workbench.views import data, diagnosis, masks, memory, scaling, text
from workbench.views import show as room
from workbench.views.panels import Panel, slider


def test_what_is_shown_is_slim_json_and_a_line_of_text(monkeypatch):
    shown = []
    monkeypatch.setattr(room, "display", lambda bundle, raw: shown.append(bundle))
    with redirect_stdout(io.StringIO()) as out:
        room.show(
            room.figure(go.Scatter(x=[1, 2], y=room.rounded([1 / 3, np.nan])), title="t", x="step", y="nats"),
            "two points",
        )
    assert out.getvalue() == "two points\n"
    bundle = shown[0]
    assert bundle["text/plain"] == "two points"
    picture = bundle["application/vnd.plotly.v1+json"]
    assert picture["data"][0]["y"] == [0.33333, None]
    assert len(json.dumps(picture)) < 2500 and "bdata" not in json.dumps(picture)


@pytest.mark.parametrize("n", [0, 1, 5, 400, 12345])
def test_thinning_keeps_the_ends(n):
    keep = room.thin(range(n), 100)
    assert len(keep) <= 100
    if n:
        assert keep[0] == 0 and keep[-1] == n - 1


def panel():
    def draw(k):
        if k == 3:
            raise SettingError("k=3 is not allowed: 1 or 2")
        return room.figure(go.Scatter(x=[1, 2], y=[k, k]), title=f"k {k}"), f"k is {k}"

    return Panel("demo", {"k": slider("k", 1, [1, 2, 3])}, draw)


def test_moving_a_slider_redraws_and_the_text_form_is_the_state():
    shown = panel()
    assert repr(shown) == "<demo: k=1 → k is 1>"
    shown.controls["k"].value = 2
    assert repr(shown) == "<demo: k=2 → k is 2>"
    assert list(shown.figure.data[0].y) == [2, 2] and shown.figure.layout.title.text == "k 2"


def test_an_error_in_a_redraw_is_seen_in_the_panel_and_goes_when_it_is_mended():
    shown = panel()
    shown.controls["k"].value = 3
    assert "k=3 is not allowed" in shown.error and "k=3 is not allowed" in repr(shown)
    shown.controls["k"].value = 1
    assert shown.error == "" and repr(shown) == "<demo: k=1 → k is 1>"


def test_marked_changes_show_what_went_escaped_and_whole():
    raw = "你好\u200b <b>世界</b> &amp; caf\u00c3\u00a9\x07 <i>1</i>"
    page = text.marked_changes(raw, clean(raw, CleaningPolicy(markup="always"))).data
    assert "⟨U+200B⟩" in page and "⟨U+0007⟩" in page and "你好" in page and "世界" in page
    assert "<b>" not in page and "&lt;b&gt;" in page


def test_scale_policies_mark_every_skipped_step():
    trace = simulate_limit(np.where(np.arange(500) % 97 == 0, 0.0, np.inf), TrainConfig())
    picture, text = scaling.scale_policies({"standard": trace})
    assert list(picture.data[1].x) == [i + 1 for i in range(0, 500, 97)]
    assert "standard: 6 of 500 steps skipped" in text


def test_vital_signs_of_a_sick_run_have_gaps_where_the_loss_is_not_finite(samples):
    rows = list(read_lines(samples / "metrics" / "sick.jsonl"))
    picture, text = diagnosis.vital_signs(rows, [])
    assert any(y is None for y in picture.data[0].y)
    assert f"{len(rows)} steps; no fault" in text


def test_a_mask_picture_counts_what_is_visible():
    picture, text = masks.mask_picture(np.tril(np.ones((3, 3), bool)), list("abc"), "causal")
    assert "6 of 9 pairs visible, a query sees 1 to 3 keys" in text
    assert list(picture.data[0].z[0]) == [1, 0, 0]
    picture, text = masks.mask_picture(np.tri(3, dtype=bool), list("abc"), "in chunks", blocks=chunks(3, 0, 2))
    assert "2 blocks visit 7 pairs" in text
    assert [(s.x0, s.x1, s.y0, s.y1) for s in picture.layout.shapes] == [(-0.5, 1.5, -0.5, 1.5), (-0.5, 2.5, 1.5, 2.5)]


def test_the_arms_of_the_mask_benchmark_stand_beside_the_claim():
    spent = {"eager if": 80.0, "const if": 10.0, "tensor if": 20.0, "select": 40.0, "arithmetic": 8.0, "held": 1.0}
    timings = [ArmTiming(arm, 6, 2, (us, us), round(us) * 48) for arm, us in spent.items()]
    picture, text = masks.arm_speeds(timings, claimed=4.7)
    assert list(picture.data[0].y) == [8, 4, 2, 10, 80] and picture.layout.shapes[0].y0 == 4.7
    assert "S = 6, as fast as eager if: const if 8.0× (8.0–8.0)" in text
    picture, text = masks.arm_memory(timings, claimed=0.62)
    assert list(picture.data[0].y) == [80, 10, 20, 40, 8, 1] and picture.layout.shapes[0].y0 == pytest.approx(0.38 * 80)
    assert "select 40.0" in text


def test_a_panel_of_html_follows_its_controls():
    shown = Panel("words", {"k": slider("k", 1, [1, 2])}, lambda k: (HTML(f"<b>{k}</b>"), f"k is {k}"))
    shown.controls["k"].value = 2
    assert shown.figure.value == "<b>2</b>" and repr(shown) == "<words: k=2 → k is 2>"


def test_windows_on_the_text_show_each_token_once_in_colour():
    pieces = ["", *"一二三四五六七八九十甲乙丙丁戊己庚辛壬癸", "⏹"]
    cut = cut_windows(np.array([22]), np.ones(22, bool), 16, 0.25)
    page = text.windows_on_text(pieces, cut).data
    coloured = re.findall(r'background:#(?!e3e7eb)\w+">([^<]*)<', page)
    assert "".join(coloured) == "".join(pieces) and len(cut) == 2
    # In grey: the first token of the document; then the four of context and the last of the window before.
    assert page.count("#e3e7eb") == 1 + 5


def test_the_waterfall_ends_at_zero_and_names_what_was_dropped():
    ledger = Ledger(tokens_in=10, targets_with_loss=5, targets_without_loss=2, first_tokens=2, dropped={"alone": 1})
    picture, told = data.ledger_waterfall(ledger, "base")
    assert sum(picture.data[0].y) == 0 and "dropped: alone" in picture.data[0].x and "1 dropped" in told


def test_rank_balance_shows_every_rank_of_every_way():
    even = RankBalance("one permutation", 1.0, 0, np.full((2, 3), 1 / 3), np.array([5.0, 5.0]))
    split = RankBalance("contiguous", 1.0, 0, np.eye(2, 3), np.array([4.0, 9.0]))
    picture, told = data.rank_balance([even, split], ["a", "b", "c"])
    assert list(picture.data[0].y) == [
        "one permutation · rank 0",
        "one permutation · rank 1",
        "contiguous · rank 0",
        "contiguous · rank 1",
    ]
    assert "contiguous: domains differ by up to 100% between ranks, loss by 5.00 nats" in told


def test_overlap_curves_have_a_band_an_arm():
    losses = {"overlap 0": np.array([[3.0, 2.0], [3.2, 2.2]]), "overlap 0.5": np.array([[2.0, 1.0], [2.0, 1.0]])}
    picture, told = data.overlap_curves(losses, {name: np.array([10, 20]) for name in losses})
    assert [t.name for t in picture.data if t.name] == ["overlap 0", "overlap 0.5"]
    assert "overlap 0: 2.100 (±0.100), overlap 0.5: 1.000 (±0.000)" in told and "2 seeds" in told


SMALL = ModelConfig(hidden_size=16, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2)


def small_budgets():
    return {k: memory_budget(SMALL, TrainConfig(batch_size=2, recompute=k), 16) for k in ("none", "block", "whole")}


def test_the_bars_of_a_budget_sum_to_its_peak():
    budgets = small_budgets()
    picture, told = memory.budget_bars(budgets)
    for i, (name, budget) in enumerate(budgets.items()):
        assert sum(bar.y[i] for bar in picture.data) == pytest.approx(budget.peak_mb, rel=1e-3)
        assert f"{name}: {budget.peak_mb:.1f} MiB at {budget.peak.name}" in told
    assert sum(bar.showlegend is not False for bar in picture.data if "activations" in bar.name) == 1


def test_measured_memory_stands_beside_the_computed():
    budgets = small_budgets()
    arms = {k: Arm((b.allocator_mb,) * 3, (s,) * 3) for (k, b), s in zip(budgets.items(), (1.0, 1.3, 1.25))}
    picture, told = memory.memory_arms(arms, budgets)
    assert list(picture.data[0].y) == list(picture.data[1].y)
    saved = budgets["block"].allocator_mb / budgets["whole"].allocator_mb - 1
    assert f"block against whole: {saved:+.0%} memory, +4% time, 3 process(es) an arm (the article: -23%, +8%" in told
    trace = MemoryTrace(9.0, np.arange(4.0), np.array([1.0, 9.0, 2.0, 0.1]), 1.0, (0.1,))
    picture, told = memory.memory_timeline({"none": trace}, budgets)
    assert max(picture.data[0].y) == 9 and set(picture.data[1].y) == {float(f"{budgets['none'].allocator_mb:.4g}")}
    picture, told = memory.budget_moments(budgets["none"], trace)
    heights = [sum(bar.y[i] for bar in picture.data) for i in range(len(budgets["none"].moments))]
    assert max(heights) == pytest.approx(budgets["none"].allocator_mb, rel=1e-3) and "measured (dashed) 9.0 MiB" in told


def test_the_table_of_cards_says_what_fits():
    picture, told = memory.card_fits(large_model_table())
    assert [line.x0 for line in picture.layout.shapes] == [24, 32, 64]
    assert "yes, yes, yes" not in told and "no, yes, yes" in told and "no, no, no" in told
