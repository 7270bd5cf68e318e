"""scripts/demo: the whole way from text to report in a few updates, and what it refuses."""

import json
import subprocess
import sys

import pytest
from conftest import REPOSITORY

DEMO = REPOSITORY / "scripts/demo"
TEXT = "".join(f"line {number}: the quick brown fox jumps over {number * 7} lazy dogs\n" for number in range(4000))


def demo(*arguments):
    return subprocess.run([DEMO, "--python", sys.executable, *map(str, arguments)], capture_output=True, text=True)


def test_from_text_to_report(mhar_program, tmp_path):
    text = tmp_path / "a text.txt"
    text.write_text(TEXT)
    out = tmp_path / "demo größe"
    done = demo("--text", text, "--out", out, "--steps", 4, "--device", "cpu", "--mhar", mhar_program)
    assert done.returncode == 0, done.stderr
    assert f"report: {out / 'report.html'}" in done.stdout
    assert done.stdout.count("of the text's unigram entropy") == 2
    for design in ("standard", "mhar"):
        assert f"---- a sample of {design}" in done.stdout
        sample = json.loads((out / design / "sample.json").read_text())
        assert sample["prompt"] == "The " and sample["tokens"] == 500
    names = {path.name for path in out.glob("report*")}
    assert {"report.html", "report-loss.png", "report-difference.png", "report-routing-mhar.png"} <= names
    # A second demo takes the place of the first.
    again = demo(text, "--out", out, "--steps", 2, "--device", "cpu", "--mhar", mhar_program)
    assert again.returncode == 0, again.stderr
    assert "steps = 2\n" in (out / "mhar/config.toml").read_text()


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "mhar"
    path.write_text("#!/bin/sh\nexit 7\n")
    path.chmod(0o755)
    return path


def test_leaves_a_folder_alone_that_no_demo_made(tmp_path, program):
    (tmp_path / "mine/data").mkdir(parents=True)
    (tmp_path / "mine/data/precious").write_text("x")
    done = demo("--out", tmp_path / "mine", "--mhar", program)
    assert done.returncode == 2
    assert "wanted a new folder or an earlier demo's, got one with other files in it" in done.stderr
    assert (tmp_path / "mine/data/precious").exists()


def test_hands_on_how_the_program_ended(tmp_path, program):
    assert demo("--text", REPOSITORY / "docs", "--out", tmp_path / "out", "--mhar", program).returncode == 7


@pytest.mark.parametrize(("arguments", "message"), [
    (["--text", "/no/such/text"], "read text: /no/such/text: wanted a file or folder, got no such path"),
    (["--mhar", "/no/mhar"], "run mhar: /no/mhar: wanted the program, got no such file; run make build"),
    (["--config", "/no/config"], "read config: /no/config: wanted a TOML file, got no such file"),
    (["--turbo"], "unknown option --turbo"),
    (["--steps"], "--steps: wanted a value, got none"),
])
def test_bad_input(tmp_path, program, arguments, message):
    done = demo("--out", tmp_path / "out", "--mhar", program, *arguments)
    assert done.returncode == 2 and message in done.stderr
    assert not (tmp_path / "out").exists()


def test_python_carries_enough_text(tmp_path):
    for name in ("first", "second"):
        subprocess.run([sys.executable, REPOSITORY / "scripts/demo_text.py", tmp_path / name], check=True)
    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file())
    size = sum((tmp_path / "first" / path).stat().st_size for path in files)
    assert 3_000_000 < size < 6_000_000 and len(files) > 100
    assert all((tmp_path / "first" / path).read_bytes() == (tmp_path / "second" / path).read_bytes() for path in files)


@pytest.mark.parametrize("text", [TEXT, "x" * 10_000, "short\n", "y"])
def test_a_single_file_is_cut_into_parts(tmp_path, text):
    (tmp_path / "text").write_text(text)
    subprocess.run([sys.executable, REPOSITORY / "scripts/demo_text.py", tmp_path / "parts", tmp_path / "text"], check=True)
    parts = [path.read_text() for path in sorted((tmp_path / "parts").iterdir())]
    assert "".join(parts) == text
    assert text is not TEXT or (25 <= len(parts) <= 50 and all(part.endswith("\n") for part in parts))
