"""The allocator's peak of a program in a process of its own, for tests that promise memory."""

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]


def peak_mb(program: str, folder: Path) -> int:
    """MiB, rounded by MindSpore; ``program`` is Python, run from a file because compiled functions must lie in one."""
    path = folder / "program.py"
    path.write_text(program)
    environment = os.environ | {
        "MS_DEV_RUNTIME_CONF": "graph_pipeline:False,memory_statistics:True",
        "PYTHONPATH": str(TOP),
    }
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(re.search(r"peak used mem:(\d+)M", done.stdout).group(1))
