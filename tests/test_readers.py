"""Texts too long to be held, rows without a text, and going on where a reading was interrupted."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.data import readers
from workbench.data.documents import Document, Reading, find_files, read_documents
from workbench.errors import DataError

HARD = st.lists(st.sampled_from(["a", "é", "中", "😀", "\n", "\r\n", "\r", " ", "\n\n", "中文字 abc"]), max_size=60)


def read(path, **given):
    rejected, reading = [], Reading()
    documents = list(read_documents(path, on_reject=rejected.append, reading=reading, **given))
    assert reading.seen == reading.documents + len(rejected) and reading.documents == len(documents)
    files = find_files(path)
    assert reading.position == (len(files), 0) and reading.file_bytes == sum(f.stat().st_size for f in files)
    return documents, rejected, reading


@pytest.fixture
def small(monkeypatch):
    """Parts of 16 bytes and lines of 200, so that small files have what large ones have."""
    monkeypatch.setattr(readers, "PART", 16)
    monkeypatch.setattr(readers, "LONGEST", 200)


@settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=HARD.map("".join), ending=st.sampled_from(["", ".gz", ".zst"]))
def test_the_parts_of_a_long_text_joined_are_the_text(tmp_path, small, text, ending):
    file = tmp_path / f"a.md{ending}"
    data = text.encode()
    file.write_bytes({"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[ending](data))
    documents, rejected, reading = read(file)
    if len(data) <= 16:
        assert [d.text for d in documents] == ([text] if text.strip() else []) and reading.parts == 0
        assert [(d.line, r) for d, r in zip(documents, rejected)] == [] and all(d.line == 0 for d in documents)
        return
    assert reading.parts == len(documents)
    # Parts of white space alone are set aside, as such documents are; the others are there in order.
    assert {r.kind for r in rejected} <= {"empty text"}
    at = 0
    for document in documents:
        found = text.index(document.text, at)
        assert not text[at:found].strip() and len(document.text.encode()) <= 16
        assert document.line == text.count("\n", 0, found) + 1
        at = found + len(document.text)
    assert not text[at:].strip()
    if not rejected:
        assert "".join(d.text for d in documents) == text


@settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=HARD.map("".join))
def test_a_long_paragraph_comes_in_parts_and_a_short_one_does_not(tmp_path, small, monkeypatch, text):
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode())
    cut, _, reading = read(file, paragraphs=True)
    with monkeypatch.context() as patch:
        patch.setattr(readers, "PART", 1 << 20)
        whole, _, long_reading = read(file, paragraphs=True)
    assert long_reading.parts == 0 and {d.line for d in whole} <= {d.line for d in cut}
    squeezed = ["".join("".join(d.text for d in documents).split()) for documents in (whole, cut)]
    assert squeezed[0] == squeezed[1] == "".join(text.split())
    assert all(len(d.text.encode()) <= 16 for d in cut)
    short = [d for d in whole if len(d.text.encode()) + 2 <= 16]  # with its line end
    assert [d for d in cut if d in short] == short
    assert reading.parts == 0 or len(cut) > reading.parts or max(len(d.text.encode()) for d in whole) > 14


def test_a_bad_part_is_set_aside_with_its_place_and_the_others_are_read(tmp_path, small):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfone two thr\n" + b"b\xe4d line here\n" + b"third line ok\n" + b"last")
    documents, rejected, reading = read(file)
    assert [(d.line, d.text) for d in documents] == [(1, "one two thr\n"), (3, "third line ok\n"), (4, "last")]
    assert [(r.line, r.reason) for r in rejected] == [(2, "invalid UTF-8: byte 16 is 0xe4")]
    assert reading.parts == 3
    file.write_bytes(b"one two three\n" + b"n\0l line here\n" + b"third line ok\n")
    documents, rejected, _ = read(file)
    assert [d.text for d in documents] == ["one two three\n"]
    assert [(r.line, r.reason) for r in rejected] == [(2, "binary: NUL at byte 15")]
    for short in (b"\xef\xbb\xbfab\xff", b"abcde\xff"):
        file.write_bytes(short)
        assert [(r.line, r.reason) for r in read(file)[1]] == [(0, "invalid UTF-8: byte 5 is 0xff")]


def test_a_long_text_that_breaks_off_gives_the_parts_before(tmp_path, small):
    text = "".join(f"line {i * 7919 % 104729}\n" for i in range(900))
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(text.encode())[:-300])
    documents, rejected, _ = read(file)
    joined = "".join(d.text for d in documents)
    assert text.startswith(joined) and 1000 < len(joined) < len(text)
    assert [(r.line, r.kind) for r in rejected] == [(joined.count("\n") + 1, "truncated gz")]


def test_the_real_limits(tmp_path):
    text = "一行文字，没有别的。\r\n" * 700_000  # 22 MB
    (tmp_path / "a.txt").write_bytes(text.encode())
    documents, rejected, reading = read(tmp_path / "a.txt")
    assert "".join(d.text for d in documents) == text and not rejected and reading.parts == 3
    assert all(d.text.endswith("\r\n") and 8_300_000 < len(d.text.encode()) <= 8 << 20 for d in documents[:-1])
    assert [d.line for d in documents] == [1 + i * documents[0].text.count("\n") for i in range(3)]
    (tmp_path / "a.html.gz").write_bytes(gzip.compress(b"<p>" + b"x" * (65 << 20), 1))
    assert read(tmp_path / "a.html.gz")[1][0].reason == (
        "too long: a page is not cut and may have 67,108,864 bytes; split it"
    )
    (tmp_path / "b.html").write_bytes(b"<p>" + b"x" * (9 << 20))
    assert len(read(tmp_path / "b.html")[0][0].text) == 3 + (9 << 20)


def test_a_long_line_of_jsonl_is_set_aside_and_the_next_is_read(tmp_path, small):
    long = json.dumps({"text": "长" * 200}).encode()
    lines = [b'{"text": "one"}', long, b'{"text": "three"}', b"\xff" * 300, long]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    documents, rejected, _ = read(tmp_path / "a.jsonl")
    assert [(d.line, d.text) for d in documents] == [(1, "one"), (3, "three")]
    assert [(r.line, r.kind) for r in rejected] == [(2, "too long"), (4, "too long"), (5, "too long")]
    assert rejected[0].reason == f"too long: the line has {len(long) + 1:,} bytes, of at most 200"
    (tmp_path / "b.jsonl").write_bytes(long + b"\n" + lines[0])
    documents, rejected, _ = read(tmp_path / "b.jsonl")
    assert [d.line for d in documents] == [2] and [(r.line, r.kind) for r in rejected] == [(1, "too long")]
    (tmp_path / "c.jsonl").write_bytes(b"ELF\0" * 100)
    assert [(r.line, r.reason) for r in read(tmp_path / "c.jsonl")[1]] == [(0, "binary: NUL at byte 3")]


def test_rows_without_a_text(tmp_path):
    rows = ['{"prompt": "问", "answer": null, "n": {"a": 1, "b": [2]}}', "{}", '{"a": 1, "a": 2}', "[1]", "nope",
            '{"x": {"y": 1, "y": 2}}', '{"text": " "}']  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    pq.write_table(pa.table({"id": [1, 2], "of": ["x", None]}), tmp_path / "b.parquet")
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_text("text")
    (tmp_path / "e.html.gz").write_bytes(gzip.compress(b"<p>"))
    documents, rejected, reading = read(tmp_path, text_field=None)
    assert [(d.line, d.meta) for d in documents] == [
        (1, {"prompt": "问", "answer": None, "n": {"a": 1, "b": [2]}}), (2, {}),
        (6, {"x": {"y": 2}}), (7, {"text": " "}),
        (1, {"id": 1, "of": "x"}), (2, {"id": 2, "of": None}),
    ]  # fmt: skip
    assert documents[0] == Document("", str(tmp_path / "a.jsonl"), 1, json.loads(rows[0]))
    assert [(r.line, r.kind) for r in rejected] == [
        (3, "duplicate field"), (4, "not a JSON object"), (5, "broken JSON"), (0, "duplicate field"),
        (0, "no fields"), (0, "no fields"),
    ]  # fmt: skip
    assert "a .txt file is text alone" in rejected[-2].reason and reading.characters == reading.bytes == 0


def mixed_folder(folder):
    """Good and broken files of every kind, of one to some twenty items each."""
    rows = [json.dumps({"text": f"row {i} 行", "n": i}, ensure_ascii=False) for i in range(7)]
    faulty = "\n".join([*rows[:2], "nope", "", '{"txt": 1}', json.dumps({"text": "long " * 60}), *rows[2:4]])
    text = "".join(f"line {i} 中文{'é' * (i % 9)}\r\n" + "\n" * (i % 3 == 0) for i in range(12))
    packed = gzip.compress("".join(f'{{"text": "{i * 7919 % 104729}"}}\n' for i in range(20)).encode())
    files = {
        "a.txt": text, "b.txt": b"good first part!\nb\xffd part here 1\n and a good one\n" * 2, "c.md": "",
        "d.txt": b"x\0y",
        "e.txt": b"first part is ok\n" + b"then\0binary more\n" * 3, "f.html": "<p>page", "g.html": "<p>" * 100,
        "h.jsonl": faulty, "i.jsonl": b"\0\1", "j.jsonl.gz": packed[:-20], "k.jsonl.zst": b"garbage",
        "l.txt.gz": packed[:-20],
        "m.jsonl.zst": zstandard.compress(faulty.encode()), "n.parquet": b"no parquet", "o.parquet": b"",
        "p.jsonl": "\n\n",
        "r.htm.zst": zstandard.compress(b"<p>one")[:-2], "z.txt": "the end",
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    table = pa.table({"text": ["one", None, "", "四", "five"] * 2, "n": range(10)})
    pq.write_table(table, folder / "s.parquet", row_group_size=3)
    pq.write_table(table, folder / "t.parquet", row_group_size=3)
    whole = bytearray((folder / "t.parquet").read_bytes())
    at = pq.ParquetFile(folder / "t.parquet").metadata.row_group(2).column(0).dictionary_page_offset
    whole[at : at + 40] = b"\xff" * 40  # the third row group
    (folder / "t.parquet").write_bytes(bytes(whole))


def items(folder, start=(0, 0), most=None, **given):
    """What is given out and rejected, in order, of at most ``most`` items, and the position after them."""
    out, reading = [], Reading()
    for document in read_documents(folder, start=start, on_reject=out.append, reading=reading, **given):
        out.append(document)
        if most is not None and len(out) >= most:
            break
    return out, reading


@pytest.mark.parametrize("given", [{}, {"paragraphs": True}, {"text_field": None}, {"text_field": "n"}])
def test_going_on_after_any_item_gives_the_same_rest(tmp_path, small, given):
    mixed_folder(tmp_path)
    total = sum(f.stat().st_size for f in tmp_path.iterdir())
    everything, reading = items(tmp_path, **given)
    assert reading.file_bytes == total and len(everything) > 30
    kinds = set(reading.rejected)
    if given == {}:
        assert kinds == {
            "empty file", "invalid UTF-8", "binary", "too long", "broken JSON", "missing field", "truncated gz",
            "broken zst", "truncated zst", "unreadable parquet", "text is not a string", "empty text",
        }  # fmt: skip
        assert sum(r.source.endswith("t.parquet") for r in everything) == 7  # two row groups and the fault
    # Every position there is, those after a rejection as well.
    positions = []
    kept = Reading()
    note = lambda _: positions.append(kept.position)  # noqa: E731
    for _ in read_documents(tmp_path, on_reject=note, reading=kept, **given):
        note(None)
    assert len(positions) == len(everything) == len(set(positions))
    last = -1
    for k, position in enumerate([(0, 0), *positions]):
        rest, reading = items(tmp_path, start=position, **given)
        assert rest == everything[k:]
        assert reading.file_bytes == total and reading.seen == len(rest)
        begun, reading = items(tmp_path, start=position, most=3, **given)  # interrupted once more
        assert begun + items(tmp_path, start=reading.position, **given)[0] == rest
        assert last <= reading.file_bytes <= total or position == (0, 0)
        last = reading.file_bytes


def test_a_position_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\nnope\n')
    assert items(tmp_path, start=(1, 0))[0] == items(tmp_path, start=(0, 2))[0] == []
    assert items(tmp_path, start=[0, 1], most=1)[1].position == (1, 0)
    for start in ((2, 0), (-1, 0), (0, -1)):
        with pytest.raises(DataError, match="1 files"):
            items(tmp_path, start=start)
    with pytest.raises(DataError, match=r"a.jsonl holds 2 documents and rejections") as error:
        items(tmp_path, start=(0, 3))
    assert "\n" not in str(error.value)


def test_what_was_read_before_is_not_decoded_again(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(50)))
    decoded = []
    real = readers._json_line
    monkeypatch.setattr(readers, "_json_line", lambda line, field: decoded.append(line) or real(line, field))
    assert [d.text for d in items(tmp_path, start=(0, 45))[0]] == [str(i) for i in range(45, 50)]
    assert len(decoded) == 5
