"""Notebook 12 in a real JupyterLab beside a run in another process: its numbers move, its buttons steer it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chrome import KERNEL, executable, wait_for

from workbench.control import requests
from workbench.run_folder import RunFolder

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium here: apt-get install chromium"),
]
WRITER = Path(__file__).parents[1] / "fake_writer.py"
PANEL = "document.querySelector('.jp-OutputArea-output .jupyter-widgets.widget-vbox')"


@pytest.fixture
def run(tmp_path):
    """A run that goes on for minutes, in the folder that the copied notebook's RUN names."""
    run = RunFolder.at(tmp_path / "work" / "runs" / "tutorial")
    process = subprocess.Popen([sys.executable, str(WRITER), str(run.path), "4000", "0.05"])
    yield run
    process.kill()
    process.wait()


def test_the_panel_follows_a_run_and_steers_it(lab, page, run):
    def text():
        return page.run(f"{PANEL}?.innerText ?? ''")

    def click(word):
        page.run(f"[...{PANEL}.querySelectorAll('.jupyter-button')].find(b => b.innerText === {word!r}).click()")

    def steps():
        return [row["step"] for row in run.metrics()]

    def happened(kind):
        return wait_for(lambda: run.events(kind), 20, f"the run to {kind}")[-1]

    page.call("Page.navigate", url=f"{lab}/lab/tree/notebooks/12_watch.ipynb?token=test&reset")
    wait_for(lambda: page.run(f"{KERNEL} === 'idle'"), 90, "the kernel")
    page.run("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    wait_for(lambda: "training" in text(), 60, "the panel")
    page.run(f"{PANEL}.scrollIntoView()")
    curve = f"{PANEL}.querySelector('path.js-line')?.getAttribute('d')"
    wait_for(lambda: page.run(f"!!({curve})"), 30, "the curves")
    shown, drawn = text(), page.run(curve)
    wait_for(lambda: text() != shown and page.run(curve) != drawn, 20, "the numbers and the curves to move")
    if "WORKBENCH_SCREENSHOTS" in os.environ:
        page.screenshot(Path(os.environ["WORKBENCH_SCREENSHOTS"]) / "live.png")

    click("Save now")
    happened("checkpoint")
    wait_for(lambda: "checkpoint step_" in text(), 20, "the checkpoint to be told")
    click("Pause")
    at = happened("pause")["step"]
    wait_for(lambda: "paused" in text() and "Continue" in text(), 20, "the pause to be told")
    assert steps()[-1] == at and requests(run) == {"pause"}
    click("Continue")
    happened("continue")
    wait_for(lambda: steps()[-1] > at, 20, "the run to go on")
    click("Stop")
    assert happened("stop")["by"] == "the run folder"
    wait_for(lambda: "stopped at step" in text(), 20, "the end to be told")
    wait_for(
        lambda: page.run(f"[...{PANEL}.querySelectorAll('.jupyter-button')].every(b => b.disabled)"), 20, "the buttons"
    )
    assert json.loads((run.results / "12_watch.json").read_text())["numbers"][0]["value"] == "training"
    assert page.outside == [] and page.problems == []
