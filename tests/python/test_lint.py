"""The gates of scripts/lint: each planted fault is found, and a clean tree passes."""

import os
import subprocess
from pathlib import Path

import pytest

LINT = Path(__file__).parents[2] / "scripts/lint"


def run(gate, root, *options):
    done = subprocess.run([LINT / gate, *options, "--root", root], capture_output=True, text=True)
    return done.returncode, done.stdout


def plant(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree(tmp_path):
    plant(tmp_path, "src/base/error.h", "#include <string>\n")
    plant(tmp_path, "src/kernels/adamw/adamw.cpp", '#include "kernels/adamw/adamw.h"\n')
    plant(tmp_path, "src/model/decoder.cpp", '#include <torch/torch.h>\n\n#include "residual/design.h"\n')
    plant(tmp_path, "src/residual/registry.cpp", 'auto name = "single";\n')
    plant(tmp_path, "src/cli/main.cpp", '#include "train/trainer.h"\nconst char* program = "mhar";\n')
    plant(tmp_path, "tests/ops/read_test.cpp", '#include "reference/depth_read.h"\n')
    return tmp_path


@pytest.mark.parametrize("gate", ["arrows", "sizes", "words", "format"])
def test_clean_tree_passes(tree, gate):
    code, out = run(gate, tree)
    assert (code, out) == (0, out), out
    assert "0 faults" in out


@pytest.mark.parametrize(
    "name, line, message",
    [
        ("src/kernels/x.cu", '#include "base/error.h"', "kernels may include no other room"),
        ("src/ops/x.cpp", '#include "model/decoder.h"', "ops may include base kernels"),
        ("src/train/x.cpp", '#  include "reference/depth_read.h"', "train may include"),
        ("src/cli/x.cpp", '#include "reference/depth_read.h"', "cli may include"),
        ("src/data/x.cpp", '#include "../base/error.h"', "write the path from src/"),
        ("src/data/x.cpp", '#include "prepare.h"', "write the path from src/"),
        ("src/checkpoint/x.h", "#include <torch/torch.h>", "checkpoint builds without LibTorch"),
        ("src/kernels/x.cuh", '#include "c10/util/Half.h"', "kernels builds without LibTorch"),
        ("src/config/x.h", "#include <ATen/ATen.h>", "config builds without LibTorch"),
        ("src/newroom/x.cpp", "int x;", "no row for this room"),
        ("src/train/x.cpp", 'if (design == "mhar") {', 'names the design "mhar"'),
        ("src/cli/x.cpp", 'auto d = {"standard"};', 'names the design "standard"'),
    ],
)
def test_arrows_finds(tree, name, line, message):
    plant(tree, name, f"// first line\n{line}\n")
    code, out = run("arrows", tree)
    assert code == 1
    fault = out.splitlines()[0]
    assert fault.startswith(name) and message in fault, out
    assert "1 fault" in out


def test_arrows_leaves_comments_and_longer_strings_alone(tree):
    plant(tree, "src/train/x.cpp", 'int x;  // "standard" reads its stream\nauto text = "the standard model";\n')
    assert run("arrows", tree)[0] == 0


def test_sizes(tree):
    plant(tree, "src/base/large.cpp", "int x;\n" * 401)
    code, out = run("sizes", tree)
    assert code == 0 and "src/base/large.cpp: 401 lines, large" in out
    plant(tree, "python/mhar/huge.py", "x = 1\n" * 601)
    code, out = run("sizes", tree)
    assert code == 1 and "python/mhar/huge.py: 601 lines, at most 600" in out


@pytest.mark.parametrize("text", ["// TO" "DO: later", "# FIX" "ME", 'path = "/ro' 'ot/data"', "cd /wo" "rk/main"])
def test_words_finds(tree, text):
    plant(tree, "docs/page.md", f"fine\n{text}\n")
    code, out = run("words", tree)
    assert code == 1 and "docs/page.md:2:" in out


def test_words_leaves_relative_paths_alone(tree):
    plant(tree, "docs/page.md", "see tests/work/sample and the root/first folder, mktemp folder.XX" "XXXX\n")
    assert run("words", tree)[0] == 0


def test_format_finds_and_mends(tree):
    plant(tree, "src/base/bad.cpp", "int  f( int x ){return x;}\n")
    code, out = run("format", tree)
    assert code == 1 and "src/base/bad.cpp:1:" in out
    assert run("format", tree, "--fix")[0] == 0
    assert run("format", tree)[0] == 0
    assert (tree / "src/base/bad.cpp").read_text() == "int f(int x) { return x; }\n"


def test_git_decides_which_files_count(tree):
    """New files count before they are added; ignored ones do not."""
    git = ["git", "-c", "init.defaultBranch=main", "-C", tree]
    if subprocess.run([*git, "init", "-q"], env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}).returncode:
        pytest.skip("no git")
    plant(tree, ".gitignore", "/scratch/\n")
    plant(tree, "scratch/x.md", "TO" "DO\n")
    assert run("words", tree)[0] == 0
    plant(tree, "new.md", "TO" "DO\n")
    assert run("words", tree)[0] == 1
