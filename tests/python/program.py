"""Runs the built program as a user types it, on a corpus and a model small enough that a run takes a second."""

import hashlib
import json
import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Warm-up and seed are given so that no test depends on the defaults; one thread, since the machine may be shared.
SMALL = {"scale": "tiny", "width": 32, "layers": 2, "heads": 2, "kv-heads": 1, "ffn": 64, "sequence": 32,
         "microbatch": 4, "global-batch": 4, "precision": "fp32", "threads": 1, "warm-up": 2, "device": "cpu"}
WORDS = ("the depth read of a layer mixes what every earlier sublayer wrote and a head keeps its own slice while "
         "größe and naïve remind us that bytes are not letters").split()


@dataclass
class Done:
    """What a finished process left: `events` are the JSON lines of its standard output."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def message(self) -> str:
        """The one line of a refusal."""
        lines = [line for line in self.err.splitlines() if line.startswith("mhar: ")]
        assert len(lines) == 1, self.err
        return lines[0]


class Mhar:
    """The program; every call that does not end with the code asked for fails the test with its output."""

    def __init__(self, path: Path):
        self.path = path

    def command(self, *arguments) -> list[str]:
        return [str(self.path), *map(str, arguments)]

    def __call__(self, *arguments, code: int = 0, cwd: Path | None = None, before=None) -> Done:
        done = subprocess.run(self.command(*arguments), capture_output=True, timeout=300, cwd=cwd,
                              preexec_fn=before, encoding="utf-8", errors="surrogateescape")
        said = f"exit code {done.returncode}, wanted {code}\n{done.args}\n{done.stdout}{done.stderr}"
        assert done.returncode == code, said
        return Done(done.returncode, done.stdout, done.stderr)

    def train(self, data: Path, run: Path, *more, code: int = 0, before=None, **changes) -> Done:
        """`mhar train --json` of the small model; `changes` are options with underscores, None leaves one out."""
        return self(*train_arguments(data, run, *more, **changes), code=code, before=before)

    def start(self, data: Path, run: Path, *more, **changes) -> subprocess.Popen:
        """The same, not waited for; standard error goes to RUN.log beside the run folder."""
        with open(f"{run}.log", "a") as log:
            command = self.command(*train_arguments(data, run, *more, **changes))
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


def train_arguments(data: Path, run: Path, *more, **changes) -> list[str]:
    options = SMALL | {name.replace("_", "-"): value for name, value in changes.items()}
    typed = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return ["train", "--json", "--data", str(data), "--run", str(run), *typed, *map(str, more)]


def write_corpus(folder: Path, documents: int = 40, words: int = 80, seed: int = 1) -> Path:
    """Text files that are the same on every machine."""
    chooser = random.Random(seed)
    folder.mkdir(parents=True)
    for number in range(documents):
        text = " ".join(chooser.choice(WORDS) for _ in range(words))
        (folder / f"{number:03}.txt").write_text(text + ".\n", encoding="utf-8")
    return folder


def metrics(run: Path, event: str | None = None) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if event is None or line["event"] == event]


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08}"


def saved_steps(run: Path) -> list[int]:
    return sorted(int(folder.name[5:]) for folder in (run / "checkpoints").iterdir() if folder.name.startswith("step-"))


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def model_hash(run: Path, step: int) -> str:
    return file_hash(checkpoint(run, step) / "model.safetensors")


def snapshot(folder: Path) -> dict[str, str]:
    """Every file below a folder and its content's hash: two snapshots are equal when nothing was touched."""
    return {str(path.relative_to(folder)): file_hash(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def is_root() -> bool:
    return os.geteuid() == 0
