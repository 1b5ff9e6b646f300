"""A JupyterLab of its own and a page to look at it with, for the tests that drive a browser."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from chrome import Page, wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab on a copy of the notebooks, with settings of its own."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "work" / "notebooks")
    (tmp_path / "work" / "data_samples").symlink_to(ROOT / "data_samples")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    environment = {
        name: value for name, value in os.environ.items() if name != "WORKBENCH_PROGRESS"
    }  # people look here
    environment |= {**{name: str(tmp_path / name.lower()) for name in own}}
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
