"""What several tests share: the bundled samples, and quiet progress."""

import os
from pathlib import Path

import pytest

os.environ["WORKBENCH_PROGRESS"] = "log"


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder ``data_samples``."""
    return Path(__file__).parents[1] / "data_samples"
