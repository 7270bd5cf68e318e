"""Fixtures of the Python tests: the built program, skipped with a message where there is none."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "python"))  # the checkout's package, whether or not one is installed


@pytest.fixture(scope="session")
def mhar_program() -> Path:
    """Path of build/mhar."""
    program = REPOSITORY / "build" / "mhar"
    if not program.is_file():
        pytest.skip(f"{program} is not built (make build)")
    return program


@pytest.fixture(autouse=True)
def quick_pictures(request, monkeypatch):
    """Drawing takes most of a report's time, so only tests that ask for `drawn` get real pictures."""
    if "report" in request.module.__name__ and "drawn" not in request.fixturenames:
        monkeypatch.setattr("mhar.plots.png", lambda figure: b"\x89PNG")


@pytest.fixture
def drawn():
    """Real pictures in the report."""
