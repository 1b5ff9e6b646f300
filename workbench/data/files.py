"""Which files a person means by a file, a folder or a glob.

Costs one walk over the names; opens nothing. Does not follow links to folders inside a folder.
"""

import glob
import os
from collections import Counter
from pathlib import Path
from typing import Sequence

from workbench.errors import DataError

KINDS = (".txt", ".md", ".html", ".htm", ".jsonl", ".parquet")
COMPRESSED = (".gz", ".zst")  # of all kinds but .parquet, which is compressed inside
READ = ".txt .md .html .htm .jsonl (each also with .gz or .zst) and .parquet"


def kind_of(path: Path) -> str:
    """The kind in ``KINDS`` that the name says, compression aside; "" if it is none that is read."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if not suffixes:
        return ""
    if suffixes[-1] in COMPRESSED:
        inner = suffixes[0] if len(suffixes) == 2 else ""
        return inner if inner in KINDS and inner != ".parquet" else ""
    return suffixes[-1] if suffixes[-1] in KINDS else ""


def find_files(patterns: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that ``patterns`` name, each once: in the patterns' order, sorted within each.

    A pattern is a file, a folder (with all below it, hidden files and folders left out) or a glob
    (``**`` goes through folders). Files of other kinds are passed over in folders and globs.
    Raises DataError where a pattern gives no file that is read, or names one of another kind.
    """
    given = [patterns] if isinstance(patterns, (str, Path)) else list(patterns)
    if not given:
        raise DataError(f"no files are named: give a file, a folder or a glob; read are {READ}")
    found: dict[Path, None] = {}
    for pattern in given:
        found.update(dict.fromkeys(_of_pattern(str(pattern))))
    return list(found)


def _of_pattern(pattern: str) -> list[Path]:
    if not pattern.strip():
        raise DataError(f"{pattern!r} names no files: give a file, a folder or a glob; read are {READ}")
    path = Path(pattern).expanduser()
    if path.is_file():
        if not kind_of(path):
            raise DataError(f"{pattern!r} is not a kind of file that is read: rename or convert it; read are {READ}")
        return [path]
    if path.is_dir():
        names, what = _below(path), "folder"
    else:
        names = [Path(name) for name in glob.glob(str(path), recursive=True) if os.path.isfile(name)]
        what = "glob" if glob.has_magic(pattern) else ""
    files = sorted(name for name in names if kind_of(name))
    if files:
        return files
    if names:
        endings = Counter(name.suffix or "no ending" for name in names)
        told = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(5))
        more = ", …" if len(endings) > 5 else ""
        count = f"{len(names)} files of other kinds ({told}{more})"
        raise DataError(f"{what} {pattern!r} holds only {count}; read are {READ}")
    if what == "folder":
        raise DataError(f"folder {pattern!r} is empty; read are {READ}")
    where = "no file matches" if what else "there is no file or folder"
    raise DataError(f"{where} {pattern!r} (looked in {Path.cwd()}); read are {READ}")


def _below(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise DataError(f"folder {error.filename!r} cannot be read: {error.strerror}") from error

    files = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(place, name) for name in names if not name.startswith(".") and os.path.isfile(Path(place, name))]
    return files
