"""Fixtures of the Python tests: the built program, skipped with a message where there is none."""

import sys
from pathlib import Path

import pytest
from program import Mhar, write_corpus

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "python"))  # the checkout's package, whether or not one is installed


@pytest.fixture(scope="session")
def mhar_program() -> Path:
    """Path of build/mhar."""
    program = REPOSITORY / "build" / "mhar"
    if not program.is_file():
        pytest.skip(f"{program} is not built (make build)")
    return program


@pytest.fixture(scope="session")
def mhar(mhar_program) -> Mhar:
    """The program, to be called."""
    return Mhar(mhar_program)


@pytest.fixture(scope="session")
def shards(mhar, tmp_path_factory) -> Path:
    """DIR/NAME of a small byte-level shard set. Shared by all tests: copy it before changing it."""
    folder = tmp_path_factory.mktemp("shards")
    mhar("data", "--out", folder / "text", "--validation-fraction", 0.25, write_corpus(folder / "source"))
    return folder / "text"


@pytest.fixture(scope="session")
def trained(mhar, shards, tmp_path_factory):
    """trained(design): folder of a finished run of 12 steps, saved and validated every 4. Shared, too."""
    runs = {}

    def make(design: str) -> Path:
        if design not in runs:
            runs[design] = tmp_path_factory.mktemp("trained") / design
            mhar.train(shards, runs[design], design=design, steps=12, save_every=4, validate_every=4)
        return runs[design]

    return make


@pytest.fixture(autouse=True)
def quick_pictures(request, monkeypatch):
    """Drawing takes most of a report's time, so only tests that ask for `drawn` get real pictures."""
    if "report" in request.module.__name__ and "drawn" not in request.fixturenames:
        monkeypatch.setattr("mhar.plots.png", lambda figure: b"\x89PNG")


@pytest.fixture
def drawn():
    """Real pictures in the report."""
