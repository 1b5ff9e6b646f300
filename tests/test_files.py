"""find_files: what a file, a folder and a glob stand for, and the one-line refusals."""

import os

import pytest

from workbench.data.files import find_files, kind_of
from workbench.errors import DataError


@pytest.fixture
def corpus(tmp_path):
    for name in (
        "b.txt", "a.md", "page.HTML", "x.htm.gz", "rows.parquet", "deep/er/c.jsonl.zst", "deep/d.txt.gz",
        "photo.jpg", "notes.pdf", "e.parquet.gz", ".hidden.txt", ".git/f.txt", "[1].txt", "没有.txt",
    ):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return tmp_path


def names(root, files):
    return [str(f.relative_to(root)) for f in files]


def test_folder_is_walked_sorted_without_hidden_and_foreign_files(corpus):
    assert names(corpus, find_files(str(corpus))) == [
        "[1].txt", "a.md", "b.txt", "deep/d.txt.gz", "deep/er/c.jsonl.zst",
        "page.HTML", "rows.parquet", "x.htm.gz", "没有.txt",
    ]  # fmt: skip


def test_file_glob_and_several_patterns_name_each_file_once(corpus):
    assert names(corpus, find_files(corpus / "b.txt")) == ["b.txt"]
    assert names(corpus, find_files(f"{corpus}/[1].txt")) == ["[1].txt"]  # a file of that name before the glob
    assert names(corpus, find_files(f"{corpus}/*.txt")) == ["[1].txt", "b.txt", "没有.txt"]
    assert names(corpus, find_files(f"{corpus}/**/*.gz")) == ["deep/d.txt.gz", "x.htm.gz"]
    assert names(corpus, find_files([f"{corpus}/b.txt", f"{corpus}/*.txt"])) == ["b.txt", "[1].txt", "没有.txt"]


@pytest.mark.parametrize(
    "name, kind",
    [("a.txt", ".txt"), ("a.TXT.GZ", ".txt"), ("a.b.jsonl.zst", ".jsonl"), ("a.parquet", ".parquet"),
     ("a.parquet.gz", ""), ("a.gz", ""), ("txt", ""), ("a.tar.gz", ""), ("a.json", "")],
)  # fmt: skip
def test_kind_of(tmp_path, name, kind):
    assert kind_of(tmp_path / name) == kind


def refusal(pattern) -> str:
    with pytest.raises(DataError) as error:
        find_files(pattern)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_refusals_say_what_was_given_and_what_is_read(corpus):
    for pattern in ("", "  ", [], str(corpus / "nope"), str(corpus / "*.nope"), str(corpus / "photo.jpg")):
        message = refusal(pattern)
        assert ".parquet" in message and (not pattern or str(pattern) in message)
    (corpus / "empty").mkdir()
    assert "is empty" in refusal(str(corpus / "empty"))
    (corpus / "empty" / "deeper").mkdir()
    for name in ("1.bin", "2.bin", "3.npy", "LICENSE"):
        (corpus / "empty" / "deeper" / name).write_bytes(b"\0")
    assert "only 4 files of other kinds (2 .bin, 1 .npy, 1 no ending)" in refusal(str(corpus / "empty"))
    assert "nope" in refusal([str(corpus / "b.txt"), str(corpus / "nope")])


def test_a_link_in_a_circle_ends(corpus):
    os.symlink(corpus, corpus / "deep" / "round")
    assert len(find_files(str(corpus))) == 9
