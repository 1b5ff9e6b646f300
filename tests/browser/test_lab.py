"""A tutorial in a real JupyterLab: it runs, its figures are drawn, its slider redraws, all offline."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from chrome import Page, executable, wait_for  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium here: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]
KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab on a copy of the notebooks, with settings of its own."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "work" / "notebooks")
    (tmp_path / "work" / "data_samples").symlink_to(ROOT / "data_samples")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    environment = {**os.environ, **{name: str(tmp_path / name.lower()) for name in own}}
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(tmp_path / "workspaces")
    notification = tmp_path / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension"
    notification.mkdir(parents=True)
    (notification / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=test",
        f"--ServerApp.root_dir={tmp_path / 'work'}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"

    def answers():
        try:
            return urlopen(f"{address}/api?token=test").status == 200
        except OSError:
            return False

    wait_for(answers, 60, "JupyterLab to answer")
    yield address
    server.terminate()
    server.wait(timeout=30)


@pytest.fixture
def page(tmp_path):
    page = Page(tmp_path / "profile")
    yield page
    page.close()


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
