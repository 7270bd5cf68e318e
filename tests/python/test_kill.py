"""Killed with SIGKILL at random instants, some inside a save, and resumed: the model is that of an unbroken run."""

import random
import time
from pathlib import Path

import pytest
from program import checkpoint, metrics, model_hash, saved_steps

STEPS_A_KILL = 6


class Killer:
    """Starts a run over and over and kills it: while it starts, at any time between steps, or inside a save."""

    def __init__(self, mhar, shards: Path, run: Path, seed: int, **plan):
        self.start = lambda: mhar.start(shards, run, resume="auto", **plan)
        self.run, self.random = run, random.Random(seed)
        self.in_save = 0

    def lines(self) -> int:
        path = self.run / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def saving(self, process) -> bool:
        """Whether this process has a checkpoint half written: its number is the last part of the folder's name."""
        return any((self.run / "checkpoints").glob(f".tmp-*-{process.pid}"))

    def wait_for(self, process, condition) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert process.poll() is None and time.monotonic() < deadline, f"ended before its kill: {process.poll()}"

    def kill(self, kind: str) -> None:
        process = self.start()
        if kind == "start":
            time.sleep(self.random.uniform(0, 0.6))
        else:
            before = self.lines()
            # A line beyond the one that announces the start: a step was made.
            self.wait_for(process, lambda: self.lines() > before + 2)
            if kind == "save":
                self.wait_for(process, lambda: self.saving(process))
                time.sleep(self.random.uniform(0, 0.004))
            else:
                time.sleep(self.random.uniform(0, 0.03))
        process.kill()
        assert process.wait() == -9, "the kill came too late"
        self.in_save += self.saving(process)


def check(mhar, shards, folder: Path, kinds: list[str], seed: int, **model) -> None:
    steps = STEPS_A_KILL * len(kinds) + 20
    plan = {"steps": steps, "save_every": 2, "validate_every": 7, "width": 128, "ffn": 512, "layers": 2, "heads": 4,
            "kv_heads": 2, "keep_last": 2, **model}
    killer = Killer(mhar, shards, folder / "killed", seed, **plan)
    for kind in kinds:
        killer.kill(kind)
    assert killer.in_save >= kinds.count("save") / 4, f"only {killer.in_save} kills were inside a save"
    mhar.train(shards, folder / "killed", resume="auto", **plan)
    mhar.train(shards, folder / "whole", **(plan | {"save_every": steps}))
    assert model_hash(folder / "killed", steps) == model_hash(folder / "whole", steps)
    assert saved_steps(folder / "killed") == [steps - 2, steps]
    for event in ("step", "validation"):
        killed, whole = metrics(folder / "killed", event), metrics(folder / "whole", event)
        assert [(line["step"], line["loss"]) for line in killed] == [(line["step"], line["loss"]) for line in whole]
    assert not list(checkpoint(folder / "killed", steps).parent.glob(".*")), "leftovers were removed"


def test_three_kills(mhar, shards, tmp_path):
    check(mhar, shards, tmp_path, ["step", "save", "start"], seed=1, design="mhar")


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("design", ["standard", "mhar"])
def test_twenty_kills(mhar, shards, tmp_path, design, precision):
    kinds = ["save"] * 8 + ["step"] * 9 + ["start"] * 3
    random.Random(5).shuffle(kinds)
    check(mhar, shards, tmp_path, kinds, seed=2, design=design, precision=precision)
