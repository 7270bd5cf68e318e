"""python -m mhar.data: each bad input gives exit code 2 and one line that helps, and the old set stays."""

import errno
import gzip
import json
import os
import resource
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from corpora import SENTENCES, jsonl, parquet, qwen_like

from mhar import data


@pytest.fixture
def corpus(tmp_path):
    qwen_like(tmp_path / "tokenizer.json")
    parquet(tmp_path / "a.parquet", SENTENCES)
    return tmp_path


def refusal(folder, capsys, *arguments, tokenizer="tokenizer.json", out="set") -> str:
    """The one line that the command prints for `arguments`."""
    options = ["--out", str(folder / "out" / out), "--tokenizer", str(folder / tokenizer)]
    assert data.main([*options, *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("mhar.data: ")
    leftovers = list((folder / "out").iterdir()) if (folder / "out").exists() else []
    assert leftovers == []
    return captured.err


def test_missing_files(corpus, capsys):
    line = refusal(corpus, capsys, corpus / "none.parquet")
    assert f"{corpus / 'none.parquet'}: wanted a file or folder, got No such file" in line
    assert "got No such file" in refusal(corpus, capsys, corpus / "a.parquet", tokenizer="none.json")
    assert "none.json: wanted a readable file" in refusal(corpus, capsys, corpus / "a.parquet", tokenizer="none.json")


def test_files_of_another_kind(corpus, capsys):
    (corpus / "a.txt").write_text("text")
    line = refusal(corpus, capsys, corpus / "a.txt")
    assert "wanted .parquet, .jsonl or .jsonl.gz, got '.txt'" in line and "mhar data" in line
    (corpus / "folder").mkdir()
    assert "wanted at least one .parquet, .jsonl or .jsonl.gz, got none" in refusal(corpus, capsys, corpus / "folder")


def test_broken_parquet(corpus, capsys):
    (corpus / "b.parquet").write_bytes(b"this is no parquet file at all")
    assert "b.parquet: wanted a parquet file, got" in refusal(corpus, capsys, corpus / "b.parquet")
    (corpus / "c.parquet").write_bytes((corpus / "a.parquet").read_bytes()[:-100])
    line = refusal(corpus, capsys, corpus / "a.parquet", corpus / "c.parquet")
    assert "c.parquet: wanted a parquet file, got" in line


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_missing_column_names_those_there_are(corpus, capsys, name):
    jsonl(corpus / "a.jsonl", SENTENCES)
    line = refusal(corpus, capsys, "--column", "body", corpus / name)
    assert "wanted the column 'body', got the columns " in line and "text" in line and "--column" in line


def test_columns_without_text(corpus, capsys):
    assert "wanted text in the column 'number', got int64" in refusal(
        corpus, capsys, "--column", "number", corpus / "a.parquet")
    (corpus / "a.jsonl").write_text('{"text": "fine"}\n{"text": 5}\n')
    assert "a.jsonl:2: wanted text in the column 'text', got int" in refusal(corpus, capsys, corpus / "a.jsonl")


@pytest.mark.parametrize("line,message", [
    (b'{"text": "cut', "wanted one JSON object in UTF-8"),
    (b'["text"]', "wanted a JSON object, got list"),
    (b'{"text": "\xff"}', "wanted one JSON object in UTF-8"),
    (b'{"text": "\\ud800"}', "wanted one JSON object in UTF-8"),
    (b"[" * 100000, "wanted one JSON object in UTF-8"),
])
def test_broken_jsonl_names_the_line(corpus, capsys, line, message):
    (corpus / "a.jsonl").write_bytes(b'{"text": "fine"}\n\n' + line + b"\n")
    assert f"a.jsonl:3: {message}" in refusal(corpus, capsys, corpus / "a.jsonl")


def test_broken_gzip(corpus, capsys):
    (corpus / "a.jsonl.gz").write_bytes(b"not gzip")
    line = refusal(corpus, capsys, corpus / "a.jsonl.gz")
    assert "a.jsonl.gz: wanted a whole gzip file, got Not a gzipped file" in line
    (corpus / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "fine"}\n' * 1000)[:-12])
    assert "a.jsonl.gz: wanted a whole gzip file" in refusal(corpus, capsys, corpus / "a.jsonl.gz")


@pytest.mark.parametrize("content", ["", "{", '{"model": {"type": "Nothing"}}', "\x00\x01"])
def test_broken_tokenizer(corpus, capsys, content):
    (corpus / "broken.json").write_text(content)
    line = refusal(corpus, capsys, corpus / "a.parquet", tokenizer="broken.json")
    assert "broken.json: wanted a Hugging Face tokenizer.json, got " in line


def test_no_end_of_text(corpus, capsys):
    qwen_like(corpus / "bare.json", special=("<pad>",))
    line = refusal(corpus, capsys, corpus / "a.parquet", tokenizer="bare.json")
    assert "wanted an end-of-text token (<|endoftext|>" in line
    assert "got none of them; name the token with --end-of-text" in line
    for asked in ("<|nothing|>", "99999"):
        line = refusal(corpus, capsys, "--end-of-text", asked, corpus / "a.parquet")
        assert f"option --end-of-text: {asked}: wanted a token or id" in line


def test_empty_corpus(corpus, capsys):
    for texts in ([], ["", None, ""]):
        parquet(corpus / "empty.parquet", texts)
        assert "got an empty corpus" in refusal(corpus, capsys, corpus / "empty.parquet")


@pytest.mark.parametrize("arguments,message", [
    (["--vocabulary", "100"], "option --vocabulary: wanted at least the "),
    (["--vocabulary", "5000000000"], "at most 2^32, got 5000000000"),
    (["--validation-fraction", "1"], "--validation-fraction: 1 is not at least 0 and below 1"),
    (["--validation-fraction", "nan"], "--validation-fraction: nan is not at least 0 and below 1"),
    (["--seed", "-1"], "--seed: -1 is not at least 0"),
    (["--seed", "x"], "--seed: invalid whole number value: 'x'"),
    (["--shard-tokens", "0"], "--shard-tokens: 0 is not at least 1"),
    (["--unknown"], "unrecognized arguments: --unknown"),
])
def test_bad_options(corpus, capsys, arguments, message):
    assert message in refusal(corpus, capsys, *arguments, corpus / "a.parquet")


def test_missing_options(capsys):
    assert data.main([]) == 2
    assert "the following arguments are required: PATH, --out, --tokenizer" in capsys.readouterr().err


def test_bad_names(corpus, capsys):
    assert "does not end in -validation" in refusal(corpus, capsys, corpus / "a.parquet", out="x-validation")
    (corpus / "file").write_text("")
    line = refusal(corpus, capsys, "--out", corpus / "file" / "set", corpus / "a.parquet")
    assert "wanted to write the shard set, got Not a directory" in line


def test_a_failure_leaves_the_old_set_whole(corpus, capsys):
    options = ["--out", str(corpus / "out" / "set"), "--tokenizer", str(corpus / "tokenizer.json")]
    assert data.main([*options, str(corpus / "a.parquet")]) == 0
    read = lambda: {path.name: path.read_bytes() for path in (corpus / "out").iterdir()}
    before = read()
    (corpus / "b.jsonl").write_text(json.dumps({"text": SENTENCES[0] * 20000}) + "\n")
    (corpus / "c.jsonl").write_text("broken\n")
    assert data.main([*options, str(corpus / "a.parquet"), str(corpus / "c.jsonl")]) == 2
    assert read() == before
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, limits[1]))  # a stand-in for a full disk
    try:
        capsys.readouterr()
        assert data.main([*options, str(corpus / "a.parquet"), str(corpus / "b.jsonl")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"got {os.strerror(errno.EFBIG)}; make room there" in capsys.readouterr().err
    assert read() == before


def test_a_failed_swap_is_taken_back(corpus, monkeypatch):
    options = ["--out", str(corpus / "out" / "set"), "--tokenizer", str(corpus / "tokenizer.json")]
    assert data.main([*options, str(corpus / "a.parquet")]) == 0
    read = lambda: {path.name: path.read_bytes() for path in (corpus / "out").iterdir()}
    before, rename, calls = read(), os.rename, []

    def fail_once(source, destination):
        calls.append(source)
        if len(calls) == 5:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(destination))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fail_once)
    assert data.main([*options, "--seed", "1", str(corpus / "a.parquet")]) == 2
    assert len(calls) > 5 and read() == before


def test_leftovers_of_dead_processes_go(corpus):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    keep = {f".tmp-set-{os.getppid()}", f".tmp-other-{gone.pid}", ".tmp-set-x"}
    for name in {*keep, f".tmp-set-{gone.pid}", f".tmp-set-{os.getpid()}"}:
        (corpus / "out" / name).mkdir(parents=True)
    options = ["--out", str(corpus / "out" / "set"), "--tokenizer", str(corpus / "tokenizer.json")]
    assert data.main([*options, str(corpus / "a.parquet")]) == 0
    assert {path.name for path in (corpus / "out").iterdir() if path.name.startswith(".")} == keep
