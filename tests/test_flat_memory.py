"""Reading takes no more memory for a file of 120 MB than for one of 12 MB, whatever its kind.

Each kind is read in a process of its own, first the small file, some times over so that the
allocator has its working set, and then the large one. What the large one adds to the process's peak
(VmHWM of /proc, which counts everything, pyarrow's own allocations as well) must be a small part of
the file.
"""

import gzip
import json
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

BLOCKS = (3, 30)  # of 4 MB
AGAIN = 3
SLACK = 35_000_000  # bytes; holding the large file's content would take more than 80 MB

READ = """
import json, re, sys
from pathlib import Path
from workbench.data.documents import Reading, read_documents

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

for path in sys.argv[1:]:
    reading = Reading()
    for document in read_documents(path, strict=True, reading=reading):
        pass
    print(json.dumps({"peak": peak(), "characters": reading.characters, "file_bytes": reading.file_bytes}))
"""


def rows() -> list[str]:
    """Texts of together about 4 MB, no two the same, that pack to about half."""
    rng = random.Random(20231024)
    words = [f"{rng.getrandbits(rng.randint(12, 40)):x}" for _ in range(4000)] + ["中文", "，", "内存"] * 400
    return [" ".join(rng.choices(words, k=600)) for _ in range(1_000)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return rows()


def write(path, kind: str, texts: list[str], blocks: int) -> int:
    """Write ``blocks`` times the texts; the number of characters that reading must give."""
    if kind == "parquet":
        table = pa.concat_tables([pa.table({"text": texts})] * blocks)
        # One row group and no dictionary: all of a column chunk lies between the first and the last row.
        pq.write_table(table, path, row_group_size=1 << 30, use_dictionary=False)
        return sum(map(len, texts)) * blocks
    if kind == "txt":
        block = "\n".join(texts) + "\n"
    else:
        block = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    data = block.encode()
    data = gzip.compress(data, 1) if kind.endswith("gz") else data  # a member of the file, as cat a.gz b.gz makes
    packed = zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(level=1)) if kind.endswith("zst") else None
    with packed or path.open("wb") as file:
        for _ in range(blocks):
            file.write(data)
    return blocks * (len(block) if kind == "txt" else sum(map(len, texts)))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("kind", ["txt", "jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
def test_the_peak_does_not_grow_with_the_file(tmp_path, texts, kind):
    paths = [tmp_path / f"{name}.{kind}" for name in ("small", "large")]
    characters = [write(path, kind, texts, blocks) for path, blocks in zip(paths, BLOCKS)]
    sizes = [path.stat().st_size for path in paths]
    assert sizes[1] > 9 * sizes[0] and (sizes[1] > 100_000_000 or "." in kind or kind == "parquet")
    given = [str(paths[0])] * AGAIN + [str(paths[1])]
    done = subprocess.run([sys.executable, "-c", READ, *given], capture_output=True, text=True, check=True)
    *_, small, large = map(json.loads, done.stdout.splitlines())
    assert [small["characters"], large["characters"]] == characters
    assert [small["file_bytes"], large["file_bytes"]] == sizes
    assert large["peak"] - small["peak"] < SLACK
