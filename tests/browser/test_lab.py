"""A tutorial in a real JupyterLab: it runs, its figures are drawn, its slider redraws, all offline."""

import pytest
from chrome import KERNEL, executable, wait_for

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium here: apt-get install chromium"),
]


def test_a_notebook_runs_in_jupyterlab_and_its_panel_redraws(lab, page):
    page.call("Page.navigate", url=f"{lab}/lab/tree/notebooks/02_attention_masks.ipynb?token=test&reset")
    wait_for(lambda: page.run(f"{KERNEL} === 'idle'"), 90, "the kernel")
    page.run("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    cells = page.run(
        "[...window.jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type === 'code')"
        ".map(c => [c.executionCount, c.outputs.toJSON().filter(o => o.output_type === 'error').length])"
    )
    assert [count for count, _ in cells] == list(range(1, len(cells) + 1))
    assert not any(errors for _, errors in cells)

    title = "[...document.querySelectorAll('.jupyter-widgets .gtitle')].map(t => t.textContent)[0]"
    panel = "document.querySelector('.jupyter-widgets .noUi-handle, .jupyter-widgets input, .jupyter-widgets select')"
    page.run("document.querySelector('.jupyter-widgets')?.scrollIntoView()")
    wait_for(lambda: page.run(f"!!({title}) && !!({panel})"), 60, "the panel to be drawn")
    before = page.run(title)
    page.run("document.querySelector('.jupyter-widgets .noUi-handle').focus()")
    page.press("ArrowLeft", 37)
    wait_for(lambda: page.run(title) != before, 30, "the figure to follow the slider")
    assert page.outside == [], "the notebook asks for something from the network"
    assert page.problems == []


def test_the_report_of_a_run_is_drawn_offline(tmp_path, page):
    import plotly.graph_objects as go

    from workbench.report import write_report
    from workbench.run_folder import Number, RunFolder

    run = RunFolder.at(tmp_path / "run")
    picture = go.Figure(go.Scatter(y=[1, 3, 2]), layout={"title": {"text": "损失"}})
    numbers = [Number("困惑度", 1.7, headline=True)]
    run.write_result(
        "05_pretrain", title="T", summary="s", numbers=numbers, figures={"c": picture}, headline_figure="c"
    )
    page.call("Page.navigate", url=write_report(run).as_uri())
    wait_for(lambda: page.run("document.querySelectorAll('.gtitle').length === 2"), 60, "both figures")
    assert page.run("document.querySelector('.gtitle').textContent") == "损失"
    assert "困惑度" in page.run("document.body.innerText")
    assert page.outside == [] and page.problems == []
