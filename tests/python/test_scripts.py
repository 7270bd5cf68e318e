"""Set-up, stages and the GPU check, as far as they can be tried without installing anything."""

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bare(tmp_path):
    """A checkout with a space in its path, without .venv, and fake programs first on PATH that say all packages are there."""
    tree = tmp_path / "a checkout"
    (tree / "scripts").mkdir(parents=True)
    for name in ("setup", "packages.txt", "packages-check.txt"):
        shutil.copy(ROOT / "scripts" / name, tree / "scripts" / name)
    for name in ("requirements.txt", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tree / name)
    fakes = tmp_path / "fakes"
    program(fakes, "dpkg-query", 'for name; do :; shift; printf "installed %s 0\\n" "$name"; done')
    program(fakes, "apt-get", 'echo "apt-get $*"; exit 1')
    # Old Python: says so by failing the version test and printing 3.9.2.
    program(fakes, "python-old", 'case "$2" in *exit*) exit 1 ;; *ensurepip*) exit 0 ;; *) echo 3.9.2 ;; esac')
    return tree, {**os.environ, "PATH": f"{fakes}:{os.environ['PATH']}"}, fakes


def setup(bare, *options):
    tree, environment, _ = bare
    done = subprocess.run([tree / "scripts/setup", *options], env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_setup_refuses_an_old_python(bare):
    code, said = setup(bare, "--python", "python-old")
    assert code == 2
    assert "python-old: wanted Python 3.11 or newer, got 3.9.2" in said
    assert "scripts/setup --python PATH" in said


def test_setup_names_a_python_that_is_not_there(bare):
    code, said = setup(bare, "--python", "no-such-python")
    assert code == 2 and "wanted Python 3.11 or newer, found no no-such-python" in said


def test_setup_without_a_venv_module_says_what_to_install(bare):
    program(bare[2], "python-bare", 'case "$*" in "-m venv"*) echo "no ensurepip" >&2; exit 1 ;; *) exit 0 ;; esac')
    code, said = setup(bare, "--python", "python-bare")
    assert code == 2 and "apt-get install python3-venv" in said
    assert not (bare[0] / ".venv").exists()


def test_setup_names_missing_packages(bare):
    if os.geteuid() != 0:
        program(bare[2], "sudo", '[ "$1" = -n ] && shift; exec "$@"')
    program(bare[2], "dpkg-query", "exit 1")
    code, said = setup(bare, "--check")
    assert code == 2
    last = said.splitlines()[-1]
    assert last.startswith("setup: or install them by hand: apt-get install ")
    for name in ("libcli11-dev", "libspdlog-dev", "clang-tidy"):
        assert name in last
    assert "libspdlog-dev=1:1.10.0*" in said  # the pinned versions were tried first


def test_setup_refuses_a_broken_environment(bare):
    program(bare[0] / ".venv", "bin", "")
    code, said = setup(bare)
    assert code == 2 and "remove the folder .venv" in said


def test_setup_refuses_an_unknown_option(bare):
    code, said = setup(bare, "--chekc")
    assert code == 2 and "unknown option --chekc" in said


def test_requirements_are_pinned_and_locked():
    lock = {line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")}
    direct = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert direct and all("==" in line for line in direct)
    assert set(direct) <= lock


def test_stages_stop_at_the_first_failure(tmp_path):
    script = tmp_path / "three"
    script.write_text(f'set -eu\nsource "{ROOT}/scripts/stages.sh"\nstage one true\nstage two sh -c "exit 7"\nstage three true\n')
    done = subprocess.run(["bash", script], capture_output=True, text=True)
    assert done.returncode == 7
    assert "stopped here: two ended with 7" in done.stdout and "== three" not in done.stdout


@pytest.mark.parametrize("text", ["a folder/with 'quotes'", 'do"uble', "$HOME and `ls`", "umläut"])
def test_demo_text_reaches_the_script_as_typed(tmp_path, text):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("setup", "build"):
        program(tmp_path / "scripts", name, "")
    program(tmp_path / "scripts", "demo", 'printf "%s" "$1" >seen')
    subprocess.run(["make", "demo", "TEXT=" + text.replace("$", "$$")], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "seen").read_text() == text


def test_gpu_check_names_a_missing_program(tmp_path):
    done = subprocess.run([ROOT / "scripts/gpu-check", "--prebuilt", tmp_path, "--out", tmp_path / "out"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "wanted the program mhar in it, found none" in done.stderr


def test_gpu_check_without_a_gpu_says_what_it_skipped(tmp_path):
    program(tmp_path / "built", "mhar", "exit 1")
    program(tmp_path / "fakes", "nvidia-smi", "exit 9")
    done = subprocess.run([ROOT / "scripts/gpu-check", "--prebuilt", tmp_path / "built", "--out", tmp_path / "out"],
                          env={**os.environ, "PATH": f"{tmp_path / 'fakes'}:{os.environ['PATH']}"},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "out/summary.md").read_text()
    for name in ("tests", "demo", "100m standard", "100m mhar"):
        assert f"skipped: {name}" in done.stdout and f"| {name} | skipped, no GPU |" in summary


@pytest.mark.parametrize(
    "losses, falls",
    [
        ([11.9 - 0.1 * i for i in range(50)], True),
        ([11.9] * 50, False),
        ([11.9 - 0.001 * i for i in range(50)], False),
        ([11.9] * 40 + [float("nan")] * 10, False),
        ([11.9, 1.0], False),
    ],
)
def test_gpu_losses(tmp_path, capsys, losses, falls):
    # Ten seconds for the first step, then 2,000 tokens a second.
    lines = [{"event": "step", "step": i + 1, "loss": loss, "tokens": 2000 * (i + 1), "seconds": 10.0 + i}
             for i, loss in enumerate(losses)]
    lines.append({"event": "done", "step": len(losses), "validation_loss": 7.5, "peak_bytes": 3 * 2**20})
    (tmp_path / "mhar-metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "mhar-memory.txt").write_text("100\n2500\n300\n")
    module = load("gpu_losses")
    assert module.main(["mhar", str(tmp_path)]) == (0 if falls else 1)
    module.main(["--table", str(tmp_path), "mhar", "standard"])
    table = capsys.readouterr().out
    assert f"| mhar | {losses[0]:.4f} | {losses[-1]:.4f} | 2000 | 3 / 2500 | 7.5000 |" in table
    assert "| standard | no steps |" in table
