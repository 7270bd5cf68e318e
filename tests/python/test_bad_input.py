"""Bad input of every kind: exit code 2, one message (what, where, wanted, got, what to do), and nothing lost."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from bad_inputs import CASES, Place
from program import checkpoint, is_root, model_hash, saved_steps, snapshot, write_corpus

NOBODY = 65534


@pytest.mark.parametrize("case", CASES)
def test_refused(mhar, shards, trained, tmp_path, case):
    place = Place(tmp_path, shards, trained("mhar"))
    damage, arguments, words = CASES[case]
    if damage is not None:
        damage(place)
    before = snapshot(tmp_path)
    done = mhar(*arguments(place), code=2)
    assert done.out == "" and all(str(word) in done.message for word in words), done.message
    assert len(done.err.splitlines()) == 1, done.err
    assert "; " in done.message, "says what to do"
    assert snapshot(tmp_path) == before, "nothing lost, nothing left behind"
    assert not list(tmp_path.glob("new*"))


def test_cuda_that_is_not_there(mhar, shards, tmp_path):
    if json.loads(mhar("info", "--json").out)["cuda_devices"] > 0:
        pytest.skip("this machine has a CUDA device")
    message = mhar.train(shards, tmp_path / "run", device="cuda", code=2).message
    assert "option --device: wanted" in message and "--device cpu" in message and not (tmp_path / "run").exists()


@pytest.fixture
def closed(tmp_path_factory):
    """A folder that a user without rights owns and may not read, and what makes a process that user's."""
    if not is_root():
        folder = tmp_path_factory.mktemp("closed")
        yield folder, None
        folder.chmod(0o755)
        return
    with tempfile.TemporaryDirectory() as root:  # pytest's own folders are root's alone
        os.chmod(root, 0o755)
        folder = Path(root) / "closed"
        folder.mkdir()
        yield folder, lambda: os.setresuid(NOBODY, NOBODY, NOBODY)


@pytest.mark.parametrize("arguments", [
    lambda folder: ["data", "--out", folder.parent / "new" / "text", folder],
    lambda folder: ["eval", "--checkpoint", folder, "--data", folder / "text"],
    lambda folder: ["eval", "--checkpoint", folder / "checkpoint", "--data", folder / "text"],
    lambda folder: ["info", folder],
    lambda folder: ["info", folder / "run"],
    lambda folder: ["generate", "--checkpoint", folder, "--prompt", "a"],
    lambda folder: ["train", "--data", folder / "text", "--run", folder.parent / "run"],
    lambda folder: ["train", "--data", folder / "text", "--run", folder / "run"],
    lambda folder: ["train", "--data", folder / "text", "--run", folder / "run", "--resume", "auto"],
    lambda folder: ["train", "--data", folder / "text", "--run", folder / "new", "--resume", folder / "run"],
    lambda folder: ["train", "--config", folder / "config.toml"]])
def test_unreadable_folder(mhar, closed, arguments):
    folder, before = closed
    write_corpus(folder / "text", documents=1)
    folder.chmod(0)
    try:
        message = mhar(*arguments(folder), code=2, before=before).message
    except PermissionError:
        pytest.skip("a user without rights may not run the program here")
    assert str(folder) in message and "ermission denied" in message and "; " in message


def limit_file_size(bytes_: int):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))


def test_file_size_limit_at_a_save(mhar, shards, tmp_path):
    """The optimizer's file, twice the model's, does not fit: step 4 stays whole, step 8 never appears."""
    run, plan = tmp_path / "run", {"steps": 12, "save_every": 4, "validate_every": 100}
    mhar.train(shards, run, stop_after=4, code=3, **plan)
    before = snapshot(run / "checkpoints")
    size = (checkpoint(run, 4) / "model.safetensors").stat().st_size
    message = mhar.train(shards, run, resume="auto", code=2, before=limit_file_size(size + 4096), **plan).message
    assert "optimizer.safetensors" in message and "File too large" in message and "ulimit -f" in message
    assert snapshot(run / "checkpoints") == before and not list((run / "checkpoints").glob(".*"))
    mhar.train(shards, run, resume="auto", **plan)
    assert saved_steps(run) == [4, 8, 12]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes, where the tests may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if not is_root() or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs rights that are not there")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk(mhar, shards, small_disk, tmp_path):
    run = small_disk / "run"
    message = mhar.train(shards, run, steps=40, save_every=1, keep_last=30, code=2).message
    assert "No space left on device" in message and "free space" in message and str(run) in message
    steps = saved_steps(run)
    assert steps == list(range(1, len(steps) + 1)) and not list((run / "checkpoints").glob(".tmp-*"))
    mhar("eval", "--checkpoint", checkpoint(run, steps[-1]), "--data", shards, "--threads", 1)
    shutil.rmtree(checkpoint(run, 1))
    shutil.rmtree(checkpoint(run, 2))
    mhar.train(shards, run, steps=40, save_every=1, keep_last=1, resume="auto")
    mhar.train(shards, tmp_path / "whole", steps=40)
    assert model_hash(run, 40) == model_hash(tmp_path / "whole", 40)


def test_full_disk_while_preparing(mhar, small_disk, tmp_path):
    source = write_corpus(tmp_path / "source", documents=20)
    mhar("data", "--out", small_disk / "text", source)
    before = snapshot(small_disk)
    large = write_corpus(tmp_path / "large", documents=20, words=30000)
    message = mhar("data", "--out", small_disk / "text", large, code=2).message
    assert "No space left on device" in message and snapshot(small_disk) == before
