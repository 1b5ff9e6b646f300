"""The run folder: everything a run leaves behind, readable while it runs and after it died.

    runs/NAME/
        config.json         every setting of the run
        environment.json    versions, machine, git commit
        metrics.jsonl       one flushed line a step
        events.jsonl        overflows, evaluations, checkpoints, alarms, signals
        checkpoints/        what training can be resumed from
        excluded.json       data that training skips since it was rolled back
        ranks/RANK/         the folders of the other ranks, where there are several
        earlier/            what was set aside, never read again
        results/            NN_name.json, what each notebook found, read by the report
        notebooks/          executed notebooks, and each as a page
        report.html         the page to open

Writers append whole lines and flush; readers skip a last line that is not finished yet, so a
run can be looked at while another process writes it.
"""

import errno
import json
import math
import os
import platform
import subprocess
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Iterator, Mapping

from workbench.errors import DataError, StorageError

# JSON has no word for these; they are written as strings and read back as the floats they were.
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PACKAGES = ("mindspore", "numpy", "transformers", "tokenizers", "pyarrow", "plotly", "papermill")


@dataclass(frozen=True)
class Number:
    """One measured number of a report: ``value`` in ``unit``, ``note`` says how it was measured.

    A ``headline`` number also stands on top of the report.
    """

    name: str
    value: float | int | str
    unit: str = ""
    note: str = ""
    headline: bool = False


@dataclass(frozen=True)
class RunFolder:
    """The run folder at ``path``. Folders are made when something is first written into them."""

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> "RunFolder":
        """The folder at ``path`` (absolute from here on); nothing is created."""
        return cls(Path(path).expanduser().resolve())

    def of_rank(self, rank: int) -> "RunFolder":
        """The folder that ``rank`` writes into: this one for rank 0, RUN/ranks/RANK for another."""
        first = self.path.parents[1] if self.path.parent.name == "ranks" else self.path
        return RunFolder(first / "ranks" / str(rank) if rank else first)

    @property
    def checkpoints(self) -> Path:
        """Where the first rank, which alone writes checkpoints, puts them."""
        return self.of_rank(0).path / "checkpoints"

    @property
    def notebooks(self) -> Path:
        return self.path / "notebooks"

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write ``config.json`` and, beside it, the ``environment.json`` of this process."""
        write_json(self.path / "config.json", config)
        write_json(self.path / "environment.json", environment())

    def config(self) -> dict[str, Any]:
        """The settings of the run. Raises DataError where no run was started."""
        file = self.path / "config.json"
        if not file.is_file():
            raise DataError(f"no run in {self.path}: there is no config.json; run 05_pretrain with this RUN first")
        return json.loads(file.read_text(encoding="utf-8"))

    def start_logs(self) -> None:
        """Begin a new run in this folder: earlier metrics, events and checkpoints are set aside, never deleted.

        A longer earlier run's last checkpoint would otherwise pass for this run's newest. Checkpoints go first:
        killed in between, the next call finds none to go on from and sets aside the rest.
        """
        for name in ("checkpoints", "excluded.json", "metrics.jsonl", "events.jsonl"):
            file = self.path / name
            if file.exists():
                stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(file.stat().st_mtime))
                target = self.path / "earlier" / f"{stamp}-{name}"
                count = 1
                while target.exists():
                    count += 1
                    target = self.path / "earlier" / f"{stamp}-{count}-{name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                file.rename(target)

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one step to ``metrics.jsonl``; the line is on its way to disk when this returns."""
        _append(self.path / "metrics.jsonl", row)

    def log_event(self, kind: str, **fields: Any) -> None:
        """Append one event, stamped with the time, to ``events.jsonl``."""
        _append(self.path / "events.jsonl", {"time": round(time.time(), 3), "kind": kind, **fields})

    def metrics(self) -> list[dict[str, Any]]:
        """All finished lines of ``metrics.jsonl``, in order (empty when there are none)."""
        return list(read_lines(self.path / "metrics.jsonl"))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All events, or those of one ``kind``."""
        return [e for e in read_lines(self.path / "events.jsonl") if kind in (None, e["kind"])]

    def write_result(
        self,
        notebook: str,
        *,
        title: str,
        summary: str,
        numbers: list[Number],
        figures: Mapping[str, Any] | None = None,
        headline_figure: str = "",
    ) -> Path:
        """Store what a notebook found for the report.

        ``notebook`` is the file's stem (``05_pretrain``), ``summary`` one or two sentences,
        ``figures`` maps a caption to a plotly figure; the one captioned ``headline_figure`` also
        stands on top of the report.
        """
        file = self.results / f"{notebook}.json"
        write_json(
            file,
            {
                "notebook": notebook,
                "title": title,
                "summary": summary,
                "numbers": [asdict(n) for n in numbers],
                "figures": [
                    {"caption": caption, "headline": caption == headline_figure, "figure": json.loads(figure.to_json())}
                    for caption, figure in (figures or {}).items()
                ],
            },
        )
        return file

    def all_results(self) -> list[dict[str, Any]]:
        """Every stored result, in the notebooks' order."""
        files = sorted(self.results.glob("*.json")) if self.results.is_dir() else []
        return [json.loads(f.read_text(encoding="utf-8")) for f in files]


def environment() -> dict[str, Any]:
    """Versions, machine and git commit of this process, JSON-ready."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "packages": versions,
        "git_commit": commit.stdout.strip() or None,
    }


def write_json(file: Path, value: Any, flush: bool = False) -> None:
    """Write ``value`` beside ``file`` and rename, so that a reader never sees half a file.

    With ``flush`` it is on the disk before it has its name, as what a power cut must not empty.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, indent=1) + "\n"
    with told_as_storage(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        with beside.open("w", encoding="utf-8") as out:
            out.write(text)
            if flush:
                out.flush()
                os.fsync(out.fileno())
        beside.replace(file)


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a .jsonl log; a last line without its newline is still being written.

    Raises DataError for a line that is not JSON, such as the zeros that a power cut may leave at the end.
    """
    if not file.is_file():
        return
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith("\n"):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise DataError(
                        f"{file}, line {number} is damaged: to go on with the run, by the command it was started with, "
                        "takes it out"
                    ) from error
                yield {k: [_number(x) for x in v] if isinstance(v, list) else _number(v) for k, v in row.items()}


def _append(file: Path, row: Mapping[str, Any]) -> None:
    line = (json.dumps(_plain(row), ensure_ascii=False) + "\n").encode("utf-8")
    with told_as_storage(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab", buffering=0) as log:
            end = log.seek(0, os.SEEK_END)
            if log.write(line) < len(line):  # the disk is full: half a line would spoil the next one
                log.truncate(end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def told_as_storage(file: Path) -> Iterator[None]:
    """Raise StorageError, naming ``file``, for an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written ({error.strerror}); checkpoints are not touched: free space, or make the "
            "folder writable, and run the same again"
        ) from error


def _number(value: Any) -> Any:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """``value`` with numpy scalars as Python numbers, and non-finite floats as the words JSON lacks."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    return value
