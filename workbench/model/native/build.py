"""The native kernels compiled once for this machine, or the reason why they are not.

    library, said = compiled_library()

``kernels.cpp`` is compiled by $CXX, else g++, into the user's cache folder ($XDG_CACHE_HOME or
~/.cache, there ``workbench``). The file's name carries a hash of source, command, compiler and
processor, so a changed one of them compiles anew and a folder shared by machines stays right. It is
written beside and renamed: of two processes that compile at once both win. Takes about five
seconds the first time. Old files are not removed; Windows has no compiler under these names.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cpp")
# -fno-trapping-math lets comparisons become vector code; NaN and infinity keep their meaning.
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-std=c++17", "-shared", "-fPIC")
_PATIENCE = 120  # seconds for the compiler


def cache_folder() -> Path:
    """Where compiled kernels are kept; may be deleted at any time when nothing is training."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench"


def compiled_library() -> tuple[Path | None, str]:
    """The shared library and where it is, or None and why there is none, in one line. Raises nothing for that."""
    words = os.environ.get("CXX", "g++").split()
    if not words or not shutil.which(words[0]):
        return None, f"no C++ compiler ({' '.join(words) or 'CXX is empty'}): install g++ or set CXX"
    try:
        version = _run([*words, "--version"])
        path = cache_folder() / f"kernels-{_name(words, version)}.so"
        if not path.exists():
            _compile(words, path)
        ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()] or [f"it ended with {error.returncode}"]
        return None, f"{words[0]} could not compile the kernels: {next((x for x in lines if 'error' in x), lines[-1])}"
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:  # RuntimeError: there is no home folder
        return None, f"the kernels could not be compiled or loaded: {' '.join(str(error).split())}"
    return path, f"kernels in {path}"


def _name(words: list[str], version: str) -> str:
    parts = (SOURCE.read_text(encoding="utf-8"), " ".join((*words, *FLAGS)), version, _processor())
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def _processor() -> str:
    """What -march=native depends on: machine and the processor's flags, where the system tells them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    told = [line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "Features")]
    return "\n".join([platform.machine(), *sorted(set(told or lines[:1]))])


def _compile(words: list[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        _run([*words, *FLAGS, "-o", str(made), str(SOURCE)])
        made.replace(path)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    return done.stdout
