"""A program on several ranks of this machine, through ``msrun``, with an end.

    launch("script.py", ["out.json"], workers=2)        or  launch("-m", ["workbench.train.communication", ...])

``msrun`` starts a scheduler and the workers, which all run the same program; the program joins them
by ``device.joined_ranks``. Added to it here: a free port, this Python and this package in every
process, an end within ``timeout``, and the failing rank's own words in place of a folder of logs.
Costs the start of MindSpore in all of them, 10 to 20 s on 2 cores. Does not: several machines
(``msrun`` itself, on each), restarts.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Mapping, Sequence

import psutil

_NOISE = ("[INFO]", "[WARNING]", "[MS_", "- C++ Call Stack", "----", "mindspore/ccsrc")
LAST_LINES = 12


class LaunchFailed(RuntimeError):
    """A program on several ranks did not come to its end; the message holds the failing rank's last lines."""


def launch(
    program: str,
    arguments: Sequence[str] = (),
    workers: int = 2,
    timeout: float = 300,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Run ``program`` (a script, or "-m" and the module first in ``arguments``); what each rank printed, by rank.

    ``environment`` is added to this process's. When a rank fails the others are ended at once.
    Raises LaunchFailed when one does, or after ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as logs:
        command = [sys.executable, "-m", "mindspore.parallel.cluster.run"]
        command += [f"--worker_num={workers}", f"--local_worker_num={workers}", "--master_addr=127.0.0.1"]
        command += [f"--master_port={_free_port()}", f"--log_dir={logs}", "--join=True", "python", program, *arguments]
        msrun = subprocess.Popen(
            command,
            env=_environment(environment or {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        late = threading.Event()

        def end_late() -> None:
            late.set()
            _end(msrun)

        clock = threading.Timer(timeout, end_late)
        clock.start()
        failure = ""
        try:
            for line in msrun.stderr:
                # After this line msrun waits for its scheduler, which waits for ranks that are gone.
                if "exit with exception" in line:
                    failure = line
                    _end(msrun)
            status = msrun.wait()
        finally:
            clock.cancel()
            _end(msrun)
        said = tuple(_read(Path(logs) / f"worker_{rank}.log") for rank in range(workers))
        if late.is_set():
            raise LaunchFailed(f"not finished after {timeout:g} s, all ranks ended\n{_last_words(said)}")
        if failure or status:
            raise LaunchFailed(f"a rank failed\n{_last_words(said)}")
        return said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("MS_") or k.startswith(("MS_DEV_", "MS_COMPILER_"))}
    package = str(Path(__file__).parents[1])
    # msrun calls whichever ``python`` comes first.
    own["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), own.get("PATH", os.defpath)))
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (package, own.get("PYTHONPATH"))))
    return own | dict(given)


def _end(msrun: subprocess.Popen) -> None:
    """Kill msrun, its scheduler and its workers, each of which has a session of its own; nothing when it has ended."""
    if msrun.poll() is None:
        processes = psutil.Process(msrun.pid).children(recursive=True)
        os.killpg(msrun.pid, signal.SIGKILL)
        for process in processes:
            if process.is_running():
                process.kill()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _last_words(said: Sequence[str]) -> str:
    """The last lines of each rank that raised, or of all if none did, without MindSpore's own."""
    raised = [rank for rank, text in enumerate(said) if "Traceback" in text]
    lines = []
    for rank in raised or range(len(said)):
        own = [line for line in said[rank].splitlines() if line.strip() and not line.startswith(_NOISE)]
        lines += [f"rank {rank}: {line}" for line in own[-LAST_LINES:]]
    return "\n".join(lines)
