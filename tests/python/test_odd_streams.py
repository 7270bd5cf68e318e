"""Standard streams that are closed or full, a run folder that two processes want or that was moved."""

import json
import subprocess
import time

import pytest
from program import checkpoint, copy, metrics, train_arguments


def call(mhar, shell, *arguments):
    """The program with `shell`, such as `2>&-`, after its arguments."""
    command = ["sh", "-c", f'"$@" {shell}', "sh", *mhar.command(*arguments)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("shell", [">&-", "2>&-", ">&- 2>&- <&-", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_a_run_does_not_need_its_streams(mhar, shards, tmp_path, shell):
    call(mhar, shell, *train_arguments(shards, tmp_path / "run", steps=2))
    assert checkpoint(tmp_path / "run", 2).is_dir()
    # The number of a closed stream is not the next file's: what is printed would land in it.
    assert [line["event"] for line in metrics(tmp_path / "run")] == [
        "start", "validation", "step", "step", "validation", "done"]


@pytest.mark.parametrize("arguments", [["--prompt", "a"], ["--prompt", "a", "--json"]])
def test_lost_output_is_no_success(mhar, trained, arguments):
    code, _, err = call(mhar, ">/dev/full", "generate", "--checkpoint", trained("mhar"), "--threads", 1, *arguments)
    assert code == 2 and "standard output" in err and "No space left on device" in err


def test_refusals_without_standard_error(mhar):
    assert call(mhar, "2>/dev/full", "info", "none")[0] == 2
    assert call(mhar, "2>/dev/full", "nonsense")[0] == 2


def test_one_process_a_run_folder(mhar, shards, tmp_path):
    run = tmp_path / "run"
    first = mhar.start(shards, run, steps=100000, save_every=1)
    try:
        while not list((run / "checkpoints").glob("step-*")):
            assert first.poll() is None
            time.sleep(0.05)
        message = mhar.train(shards, run, resume="auto", steps=100000, code=2).message
        assert str(run) in message and "another process" in message
    finally:
        first.kill()
        first.wait()


def test_a_run_folder_that_was_moved(mhar, trained, tmp_path):
    run = copy(trained("mhar"), tmp_path / "run")
    message = mhar("train", "--config", run / "config.toml", "--resume", "auto", code=2).message
    assert str(run) in message and str(trained("mhar")) in message and "--run" in message
    done = mhar("train", "--config", run / "config.toml", "--resume", "auto", "--run", run, "--json")
    assert json.loads(done.out.splitlines()[-1])["checkpoint"] == str(checkpoint(run, 12))
