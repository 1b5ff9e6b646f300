"""Reading: every kind of file, every kind of fault, and the account in = documents + rejected."""

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from workbench.data.documents import Document, Reading, find_files, read_documents
from workbench.errors import DataError, SettingError


def read(path, **given):
    """(documents, rejected); the account is checked against what was handed out."""
    rejected, reading = [], Reading()
    documents = list(read_documents(str(path), on_reject=rejected.append, reading=reading, **given))
    files = find_files(str(path))
    assert reading.position == (len(files), 0) and reading.file_bytes == sum(f.stat().st_size for f in files)
    assert reading.seen == len(documents) + len(rejected)
    assert reading.documents == len(documents)
    assert reading.characters == sum(len(d.text) for d in documents)
    assert reading.bytes == sum(len(d.text.encode("utf-8", "surrogatepass")) for d in documents)
    assert sum(reading.rejected.values()) == len(rejected)
    return documents, rejected


def only(path, **given) -> str:
    """The reason of the one thing that was rejected, where nothing was read."""
    documents, rejected = read(path, **given)
    assert not documents and len(rejected) == 1 and rejected[0].source == str(path)
    return rejected[0].reason


def write(tmp_path, name, data: str | bytes):
    file = tmp_path / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.txt.gz", "a.htm.zst"])
def test_a_file_is_a_document_byte_for_byte(tmp_path, name):
    text = "第一行\r\n\r\n第二行\rthird\u2028\tend\n"
    pack = gzip.compress if name.endswith("gz") else zstandard.compress if name.endswith("zst") else bytes
    for start in (b"", b"\xef\xbb\xbf"):
        file = write(tmp_path, name, pack(start + text.encode()))
        assert read(file) == ([Document(text, str(file), 0, {})], [])


def test_paragraphs_with_the_line_each_begins_at(tmp_path):
    file = write(tmp_path, "a.txt", "\ufeffone\ntwo\n\n \t\r\n三\r\n四\r\n\r\n\n\nlast")
    documents, rejected = read(file, paragraphs=True)
    assert [(d.line, d.text) for d in documents] == [(1, "one\ntwo"), (5, "三\r\n四"), (10, "last")]
    assert not rejected
    assert len(read(file)[0]) == len(read(file, paragraphs=False)[0]) == 1
    page = write(tmp_path, "a.html", "<p>one\n\ntwo")
    assert len(read(page, paragraphs=True)[0]) == 1


def test_a_bad_paragraph_does_not_touch_its_neighbours(tmp_path):
    file = write(tmp_path, "a.txt", b"good\n\nb\xffd\nxx\n\nfine\n")
    documents, rejected = read(file, paragraphs=True)
    assert [d.text for d in documents] == ["good", "fine"]
    assert [(r.line, r.kind) for r in rejected] == [(3, "invalid UTF-8")]
    assert only(write(tmp_path, "b.txt", "\n \n"), paragraphs=True).startswith("empty text")
    assert only(write(tmp_path, "c.txt", ""), paragraphs=True) == "empty file"
    documents, rejected = read(write(tmp_path, "d.txt", b"good\n\nx\n\0\n\nmore\n"), paragraphs=True)
    assert [d.text for d in documents] == ["good"] and [(r.line, r.kind) for r in rejected] == [(3, "binary")]


LINES = [
    (b'{"text": "ok", "id": 1, "tags": ["a"]}', None),
    (b'{"text": "bad \xff byte"}', "invalid UTF-8: byte 14"),
    (b'{"text": "cut', "broken JSON"),
    (b'["text"]', "not a JSON object: list"),
    (b'"text"', "not a JSON object: str"),
    (b'{"txt": "x"}', "missing field: no 'text', the nearest is 'txt'"),
    (b'{"body": "x", "id": 2}', "missing field: no 'text', there are 'body', 'id'"),
    (b"{}", "missing field: no 'text', there are none"),
    (b'{"text": 5}', "text is not a string: 'text' is int"),
    (b'{"text": null}', "text is not a string: 'text' is null"),
    (b'{"text": ""}', "empty text"),
    (b'{"text": " \\n\\t"}', "empty text"),
    (b'{"text": "nul \0"}', "binary: NUL at byte 14"),
    (b'{"text": "a", "text": "b"}', "duplicate field"),
    (b'{"text": "the word \\"text\\" and \\"text\\"", "id": 1, "id": 2}', None),
    (b"   ", "blank"),
    (b"[" * 100000, "broken JSON"),
    (b'{"text": "n", "n": ' + b"9" * 5000 + b"}", "broken JSON"),
    (b'{"text": "\\ud800 half", "u": "\\u0000"}', None),
    ('{"text": "中文\u2028行", "语言": "zh"}'.encode(), None),
    (b'{"text": "last"}\r', None),
]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_jsonl_sets_aside_only_the_line_that_is_wrong(tmp_path, ending):
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[ending]
    file = write(tmp_path, f"a.jsonl{ending}", pack(b"\xef\xbb\xbf" + b"\n".join(line for line, _ in LINES)))
    documents, rejected = read(file)
    good = [i for i, (_, reason) in enumerate(LINES, 1) if reason is None]
    assert [d.line for d in documents] == good
    wrong = {i: reason for i, (_, reason) in enumerate(LINES, 1) if reason not in (None, "blank")}
    assert [r.line for r in rejected] == list(wrong)
    for r in rejected:
        assert r.reason.startswith(wrong[r.line]) and "\n" not in r.reason
    assert documents[0] == Document("ok", str(file), 1, {"id": 1, "tags": ["a"]})
    assert documents[1].meta == {"id": 2} and documents[2].text == "\ud800 half"
    assert documents[3].text == "中文\u2028行" and documents[3].meta == {"语言": "zh"}


def test_another_text_field(tmp_path):
    file = write(tmp_path, "a.jsonl", '{"content": "x", "text": "y"}\n')
    assert read(file, text_field="content")[0] == [Document("x", str(file), 1, {"text": "y"})]


def test_faults_of_whole_files(tmp_path):
    assert only(write(tmp_path, "a.txt", "")) == "empty file"
    assert only(write(tmp_path, "a.md", "\ufeff")) == "empty file"
    assert only(write(tmp_path, "b.txt", " \n\t\n")).startswith("empty text")
    assert only(write(tmp_path, "c.txt", b"ab\0\xff")) == "binary: NUL at byte 2"
    assert only(write(tmp_path, "d.txt", "中文".encode("gb18030"))).startswith("invalid UTF-8: byte 0 is 0xd6")
    assert only(write(tmp_path, "e.txt", b"abc \xe4\xb8")).startswith("invalid UTF-8: byte 4")
    assert "UTF-16" in only(write(tmp_path, "f.txt", "text".encode("utf-16")))
    assert "UTF-16" in only(write(tmp_path, "f.jsonl", '{"text": "x"}\n'.encode("utf-16")))
    assert only(write(tmp_path, "g.jsonl", b"\x7fELF\0\0\n\0\n\0")).startswith("binary")
    assert only(write(tmp_path, "h.jsonl", "")) == "empty file"
    assert only(write(tmp_path, "i.jsonl", "\n\n")).startswith("empty file")
    assert only(write(tmp_path, "j.txt.gz", b"")) == "empty file"
    assert only(write(tmp_path, "k.txt.gz", gzip.compress(b"x" * 999)[:20])).startswith("truncated gz")
    assert only(write(tmp_path, "l.txt.zst", b"garbage")).startswith("broken zst")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_truncated_jsonl_gives_its_whole_lines_and_one_rejection(tmp_path, ending):
    rng = random.Random(5)
    rows = [json.dumps({"text": f"line {i} {rng.getrandbits(256):x}"}) for i in range(3000)]
    pack = gzip.compress if ending == ".gz" else zstandard.compress
    packed = pack("\n".join(rows).encode())
    documents, rejected = read(write(tmp_path, f"a.jsonl{ending}", packed[: len(packed) // 2]))
    assert [d.text for d in documents] == [json.loads(row)["text"] for row in rows[: len(documents)]]
    assert [(r.line, r.kind) for r in rejected] == [(len(documents) + 1, f"truncated {ending[1:]}")]
    assert ending == ".zst" or 0 < len(documents) < 3000


def test_parquet_rows(tmp_path):
    file = tmp_path / "a.parquet"
    table = pa.table({
        "text": pa.array(["一", None, "", "four"] + ["x"] * 1200, pa.large_string()),
        "id": range(1204),
        "who": pa.array([{"a": 1}] * 1204),
    })  # fmt: skip
    pq.write_table(table, file, row_group_size=100)
    documents, rejected = read(file)
    assert documents[:2] == [
        Document("一", str(file), 1, {"id": 0, "who": {"a": 1}}),
        Document("four", str(file), 4, {"id": 3, "who": {"a": 1}}),
    ]
    assert [d.line for d in documents] == [1, *range(4, 1205)]
    assert [(r.line, r.kind) for r in rejected] == [(2, "text is not a string"), (3, "empty text")]
    assert only(file, text_field="txt") == "missing field: no 'txt', the nearest is 'text'; set text_field"


def test_parquet_faults(tmp_path):
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"text": ["some text"] * 50}), good)
    data = good.read_bytes()
    assert only(write(tmp_path, "a.parquet", data[: len(data) // 2])).startswith("unreadable parquet")
    assert only(write(tmp_path, "b.parquet", b"no parquet")).startswith("unreadable parquet")
    assert only(write(tmp_path, "c.parquet", b"")) == "empty file"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "d.parquet")
    assert only(tmp_path / "d.parquet") == "empty file: no rows"
    ends = pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0")
    raw = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"ok\xff\xfe")])
    pq.write_table(pa.table({"text": raw}), tmp_path / "e.parquet")
    documents, rejected = read(tmp_path / "e.parquet")
    assert [d.text for d in documents] == ["ok"] and [(r.line, r.kind) for r in rejected] == [(2, "invalid UTF-8")]
    moments = pa.array([0, 2**62], pa.duration("s"))  # Python has no value for the second
    pq.write_table(pa.table({"text": ["one", "two"], "took": moments}), tmp_path / "f.parquet")
    documents, rejected = read(tmp_path / "f.parquet")
    assert [d.text for d in documents] == ["one"] and [(r.line, r.kind) for r in rejected] == [(2, "unreadable field")]


def test_a_folder_is_read_in_order_and_one_bad_file_stops_nothing(tmp_path):
    write(tmp_path, "a.txt", "first")
    write(tmp_path, "b.txt", b"\xff\xfe\xfd")
    write(tmp_path, "c.jsonl", '{"text": "third"}\nnot json\n')
    documents, rejected = read(tmp_path)
    assert [d.text for d in documents] == ["first", "third"]
    assert [(r.source, r.line) for r in rejected] == [(str(tmp_path / "b.txt"), 0), (str(tmp_path / "c.jsonl"), 2)]


def test_strict_refuses_on_the_first_fault_in_one_line(tmp_path):
    file = write(tmp_path, "a.jsonl", '{"text": "fine"}\n{"text": 1}\n')
    documents = read_documents(file, strict=True)
    assert next(documents).text == "fine"
    with pytest.raises(DataError) as error:
        next(documents)
    assert f"{file}:2: text is not a string" in str(error.value) and "\n" not in str(error.value)


def test_wrong_use_is_told_before_anything_is_read(tmp_path):
    with pytest.raises(SettingError, match="on_reject"):
        read_documents(tmp_path)
    with pytest.raises(DataError, match="is empty"):
        read_documents(tmp_path, on_reject=print)
