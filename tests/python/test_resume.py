"""`mhar train --resume`: what it goes on from, what it refuses, and that a refusal touches nothing."""

import shutil

import pytest
from program import checkpoint, copy, file_hash, metrics, model_hash, saved_steps, snapshot, write_corpus

PLAN = {"steps": 12, "save_every": 4, "validate_every": 4}


@pytest.fixture
def stopped(trained, tmp_path):
    """A run that looks as if it had been killed after step 8, and may be changed."""
    run = copy(trained("mhar"), tmp_path / "run")
    shutil.rmtree(checkpoint(run, 12))
    return run


def refused(mhar, shards, run, *more, **changes) -> str:
    before = snapshot(run)
    message = mhar.train(shards, run, *more, code=2, **(PLAN | {"resume": "auto"} | changes)).message
    assert snapshot(run) == before, "a refusal loses nothing"
    return message


def shard_copy(shards, folder):
    """The shard set again, to be changed."""
    folder.mkdir()
    for path in shards.parent.glob("text*"):
        shutil.copy(path, folder)
    return folder / "text"


def small_shards(mhar, folder, seed=1):
    """A set whose training split has several shards."""
    mhar("data", "--out", folder / "text", "--validation-fraction", 0.25, "--shard-tokens", 4000,
         write_corpus(folder / "source", seed=seed))
    return folder / "text"


def test_goes_on_with_the_same_bits_and_one_line_a_step(mhar, shards, trained, stopped):
    done = mhar.train(shards, stopped, resume="auto", **PLAN)
    assert f"resumed from {checkpoint(stopped, 8)} at step 8" in done.err
    assert model_hash(stopped, 12) == model_hash(trained("mhar"), 12)
    assert [line["step"] for line in metrics(stopped, "step")] == list(range(1, 13))
    assert [line["step"] for line in metrics(stopped, "validation")] == [0, 4, 8, 12]
    losses = [[line["loss"] for line in metrics(run, "step")] for run in (stopped, trained("mhar"))]
    assert losses[0] == losses[1]


def test_auto_without_a_run_starts_one(mhar, shards, tmp_path):
    mhar.train(shards, tmp_path / "run", steps=2, resume="auto")
    assert saved_steps(tmp_path / "run") == [2]


def test_from_a_named_checkpoint(mhar, shards, trained, stopped, tmp_path):
    mhar.train(shards, stopped, resume=f"{checkpoint(stopped, 4)}/", **PLAN)
    assert model_hash(stopped, 12) == model_hash(trained("mhar"), 12)
    mhar.train(shards, tmp_path / "other", resume=checkpoint(trained("mhar"), 4), **PLAN)
    assert model_hash(tmp_path / "other", 12) == model_hash(trained("mhar"), 12)
    assert saved_steps(tmp_path / "other") == [8, 12]


def test_going_back_keeps_what_is_saved_on_the_way(mhar, shards, trained, tmp_path):
    run = copy(trained("mhar"), tmp_path / "run")
    mhar.train(shards, run, steps=12, save_every=1, stop_after=6, keep_last=2, resume=checkpoint(run, 4), code=3)
    assert set(saved_steps(run)) >= {6, 12}


def test_existing_folder_without_resume(mhar, shards, stopped, tmp_path):
    message = refused(mhar, shards, stopped, resume="never")
    assert f"start a run: {stopped}: wanted a new or empty folder" in message and "--resume auto" in message
    (tmp_path / "file").write_text("mine")
    assert "wanted a new or empty folder" in mhar.train(shards, tmp_path / "file", code=2).message
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("option, asked, stored", [
    ("rate", "0.002", "0.001"), ("seed", "7", "42"), ("steps", "20", "12"), ("precision", "bf16", "fp32"),
    ("width", "64", "32"), ("design", "standard", "mhar"), ("global_batch", "8", "4"), ("sequence", "16", "32"),
    ("weight_decay", "0", "0.1")])
def test_changed_mathematics(mhar, shards, stopped, option, asked, stored):
    message = refused(mhar, shards, stopped, **{option: asked})
    assert f"--{option.replace('_', '-')}: wanted '{stored}' as the run was started with, got '{asked}'" in message


def test_changed_habits_are_taken(mhar, shards, trained, stopped):
    mhar.train(shards, stopped, steps=12, resume="auto", save_every=1, keep_last=9, log_every=1, validate_every=3)
    assert saved_steps(stopped) == [4, 8, 9, 10, 11, 12] and model_hash(stopped, 12) == model_hash(trained("mhar"), 12)


def test_another_data_set(mhar, stopped, tmp_path):
    other = small_shards(mhar, tmp_path / "other", seed=2)
    message = refused(mhar, other, stopped)
    assert "text-00000.npy" in message and "text-00001.npy" in message and "--fresh-data" in message
    assert message.count("data set ") == 2, "both are named"


def test_renamed_shard(mhar, shards, stopped, tmp_path):
    moved = shard_copy(shards, tmp_path / "copy")
    moved.with_name("text-00000.npy").rename(moved.with_name("text-00007.npy"))
    message = refused(mhar, moved, stopped)
    assert "text-00000.npy" in message and "text-00007.npy" in message
    manifest = moved.with_name("text.json")
    manifest.write_text(manifest.read_text().replace("text-00000.npy", "text-00007.npy"))
    message = refused(mhar, moved, stopped)
    assert "text-00000.npy" in message and "text-00007.npy" in message and "--fresh-data" in message


def test_reordered_shards(mhar, tmp_path):
    data, run = small_shards(mhar, tmp_path / "data"), tmp_path / "run"
    mhar.train(data, run, stop_after=4, code=3, **PLAN)
    one, two = data.with_name("text-00000.npy"), data.with_name("text-00001.npy")
    assert file_hash(one) != file_hash(two)
    one.rename(tmp_path / "aside"), two.rename(one), (tmp_path / "aside").rename(two)
    message = refused(mhar, data, run)
    assert "text-00000.npy" in message and "text-00001.npy" in message


def test_fresh_data_starts_at_the_first_window(mhar, stopped, tmp_path):
    other = small_shards(mhar, tmp_path / "other", seed=2)
    done = mhar.train(other, stopped, "--fresh-data", resume="auto", **PLAN)
    assert "the loader starts at 0" in done.err and "data changed from data set" in done.err
    assert '"next_batch": 4' in (checkpoint(stopped, 12) / "state.json").read_text(), "4 updates on the new data"
    mhar.train(other, stopped, resume="auto", **PLAN)  # from then on it is the run's own data


def test_truncated_newest_checkpoint_is_passed_over(mhar, shards, trained, stopped):
    damaged = checkpoint(stopped, 8) / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    message = refused(mhar, shards, stopped, resume=checkpoint(stopped, 8))
    assert f"{damaged}: wanted" in message and "got 1000" in message
    done = mhar.train(shards, stopped, resume="auto", **PLAN)
    warning = next(line for line in done.err.splitlines() if "passed over a checkpoint" in line)
    assert "warning" in warning and str(damaged) in warning
    assert model_hash(stopped, 12) == model_hash(trained("mhar"), 12)
    assert model_hash(stopped, 8) == model_hash(trained("mhar"), 8), "step 8 was saved again, whole this time"
    assert file_hash(damaged) == file_hash(checkpoint(trained("mhar"), 8) / "optimizer.safetensors")


def test_named_checkpoint_that_is_none(mhar, shards, stopped, tmp_path):
    assert "nothing there" in refused(mhar, shards, stopped, resume=tmp_path / "nowhere")
    assert "wanted a checkpoint folder with state.json" in refused(mhar, shards, stopped, resume=stopped)


def test_leftovers_of_a_killed_save_are_removed(mhar, shards, stopped):
    left = stopped / "checkpoints" / ".tmp-step-00000012-999999999"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    mhar.train(shards, stopped, resume="auto", **PLAN)
    assert not left.exists() and saved_steps(stopped) == [4, 8, 12]
