"""`mhar train` from the first step to the last: what it prints, what it writes, how it stops."""

import json
import math
import os
import pty
import signal
import subprocess
import tomllib

import pytest
from program import SMALL, checkpoint, metrics, model_hash, saved_steps, snapshot, train_arguments

DESIGNS = ("standard", "single", "mhar")
SCHEDULE = [0.25, 0.5, 0.75, 1, 0.939711, 0.775, 0.55, 0.325, 0.160289, 0.1]  # 10 steps, warm-up 4, floor 0.1


@pytest.mark.parametrize("design", DESIGNS)
def test_trains_validates_and_ends_with_done(trained, design):
    run = trained(design)
    steps, validations = metrics(run, "step"), metrics(run, "validation")
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert [line["step"] for line in validations] == [0, 4, 8, 12]
    assert abs(validations[0]["loss"] - math.log(257)) < 0.2, "a new model knows nothing"
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.05 and validations[-1]["loss"] < validations[0]["loss"] - 0.05
    assert [line["tokens"] for line in steps] == [128 * step for step in range(1, 13)]
    done = metrics(run, "done")
    assert len(done) == 1 and metrics(run)[-1] == done[0] and metrics(run)[0]["event"] == "start"
    assert done[0]["step"] == 12 and done[0]["train_loss"] == steps[-1]["loss"] and done[0]["tokens_per_s"] > 0
    assert done[0]["validation_loss"] == validations[-1]["loss"]
    assert done[0]["validation_tail_mean"] == pytest.approx(sum(v["loss"] for v in validations) / 4, abs=1e-12)
    assert done[0]["checkpoint"] == str(checkpoint(run, 12)) and saved_steps(run) == [4, 8, 12]
    assert (run / "routing.json").is_file() == (design != "standard")


def test_json_prints_the_lines_of_metrics(mhar, shards, tmp_path):
    printed = mhar.train(shards, tmp_path / "run", steps=3).events
    assert printed == metrics(tmp_path / "run") and printed[-1]["event"] == "done"


def test_without_json_prints_a_result_for_people(mhar, shards, tmp_path):
    options = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    done = mhar("train", "--data", shards, "--run", tmp_path / "run", *options, "--steps", 2)
    assert done.out.startswith("step 2: validation loss ") and str(checkpoint(tmp_path / "run", 2)) in done.out


def test_progress_lines_on_standard_error(mhar, shards, tmp_path):
    done = mhar.train(shards, tmp_path / "run", steps=12, log_every=5)
    lines = [line for line in done.err.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1/12", "5/12", "10/12", "12/12"]
    assert all(part in lines[1] for part in ("loss", "rate", "gradient norm", "tokens/s", "left"))
    assert "\r" not in done.err


def test_progress_on_a_terminal_is_one_line(mhar, shards, tmp_path):
    ours, theirs = pty.openpty()
    command = mhar.command(*train_arguments(shards, tmp_path / "run", steps=3))
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=False).returncode
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert code == 0 and shown.count("\r\x1b[Kstep ") == 3, shown


def test_stored_configuration_starts_the_same_run(mhar, trained, tmp_path):
    config = trained("mhar") / "config.toml"
    values = tomllib.loads(config.read_text())
    assert values["design"] == "mhar" and values["width"] == 32 and values["warm-up"] == 2 and values["threads"] == 1
    mhar("train", "--config", config, "--run", tmp_path / "again")
    assert model_hash(tmp_path / "again", 12) == model_hash(trained("mhar"), 12)


def test_reported_mean_is_over_the_last_eleven_validations(mhar, shards, tmp_path):
    events = mhar.train(shards, tmp_path / "run", steps=14, validate_every=1).events
    losses = [event["loss"] for event in events if event["event"] == "validation"]
    assert len(losses) == 15
    assert events[-1]["validation_tail_mean"] == pytest.approx(sum(losses[-11:]) / 11, abs=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_only_the_first_query_stays_where_it_started(mhar, shards, tmp_path, design):
    if design == "single":  # what the parameters started from outlives a stop
        mhar.train(shards, tmp_path / "run", design=design, steps=101, stop_after=60, code=3)
    done = mhar.train(shards, tmp_path / "run", design=design, steps=101, resume="auto")
    unmoved = [event for event in done.events if event["event"] == "unmoved"]
    first = [] if design == "standard" else ["model.layers.0.attn_res_proj.weight"]
    assert unmoved == [{"event": "unmoved", "step": 100, "parameters": [], "expected": first}]
    assert "every parameter that can move has moved" in done.err


def test_gains_that_nearest_rounding_holds_are_named(mhar, shards, tmp_path):
    done = mhar.train(shards, tmp_path / "run", steps=101, precision="bf16", rounding="nearest", rate=1e-3)
    unmoved = next(event for event in done.events if event["event"] == "unmoved")
    gains = {f"model.layers.{layer}.{name}.weight" for layer in (0, 1)
             for name in ("input_layernorm", "post_attention_layernorm", "attn_res_norm", "mlp_res_norm",
                          "self_attn.q_norm", "self_attn.k_norm")}
    gains |= {"model.norm.weight", "model.final_res_norm.weight"}
    assert set(unmoved["parameters"]) == gains
    assert unmoved["expected"] == ["model.layers.0.attn_res_proj.weight"]
    warning = next(line for line in done.err.splitlines() if "have not moved" in line)
    assert "warning" in warning and "model.norm.weight" in warning


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_finishes_the_step_and_saves(mhar, shards, tmp_path, number):
    run = tmp_path / "run"
    process = mhar.start(shards, run, steps=3000, design="standard", save_every=100000, validate_every=100000)
    while not (run / "metrics.jsonl").exists() or not metrics_lines(run) > 5:
        assert process.poll() is None, (tmp_path / "run.log").read_text()
    process.send_signal(number)
    assert process.wait(60) == 3
    last = metrics(run)[-1]
    step = last["step"]
    assert last["event"] == "stopped" and last["checkpoint"] == str(checkpoint(run, step))
    assert saved_steps(run) == [step]
    assert 0 < step < 3000 and metrics(run, "step")[-1]["step"] == step
    # The same number of steps without a stop gives the same bits, so the rest of the run is kept short.
    mhar.train(shards, run, "--stop-after", step + 5, steps=3000, design="standard", resume="auto", code=3)
    mhar.train(shards, tmp_path / "whole", "--stop-after", step + 5, steps=3000, design="standard", code=3)
    assert model_hash(run, step + 5) == model_hash(tmp_path / "whole", step + 5)


def metrics_lines(run) -> int:
    return (run / "metrics.jsonl").read_text().count("\n")


def test_rates_when_stopped_and_resumed_after_every_step(mhar, shards, tmp_path):
    plan = {"steps": 10, "warm_up": 4, "rate": 1e-3, "rate_floor": 0.1}
    for stop in range(1, 10):
        mhar.train(shards, tmp_path / "run", stop_after=stop, resume="auto", code=3, **plan)
    mhar.train(shards, tmp_path / "run", resume="auto", **plan)
    lines = metrics(tmp_path / "run", "step")
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert [1e3 * line["rate"] for line in lines] == pytest.approx(SCHEDULE, abs=1e-6)
    mhar.train(shards, tmp_path / "whole", **plan)
    assert model_hash(tmp_path / "run", 10) == model_hash(tmp_path / "whole", 10)
    assert [line["loss"] for line in lines] == [line["loss"] for line in metrics(tmp_path / "whole", "step")]


def test_keeps_the_last_and_every_mth(mhar, shards, tmp_path):
    mhar.train(shards, tmp_path / "run", steps=11, save_every=1, keep_last=2, keep_every=4)
    assert saved_steps(tmp_path / "run") == [4, 8, 10, 11]


def test_threads_are_stored_and_a_change_is_announced(mhar, shards, tmp_path):
    run = tmp_path / "run"
    mhar.train(shards, run, stop_after=2, steps=6, code=3)
    assert json.loads((checkpoint(run, 2) / "state.json").read_text())["threads"] == 1
    kept = mhar.train(shards, run, stop_after=3, steps=6, resume="auto", threads=None, code=3)
    assert "threads changed" not in kept.err, "left out, the stored number is used"
    changed = mhar.train(shards, run, stop_after=4, steps=6, resume="auto", threads=2, code=3)
    assert "threads changed from 1 to 2" in changed.err
    assert json.loads((checkpoint(run, 4) / "state.json").read_text())["threads"] == 2


def test_resuming_a_finished_run_reports_it_again(mhar, trained, tmp_path):
    run = tmp_path / "run"
    config = trained("mhar") / "config.toml"
    mhar("train", "--config", config, "--run", run)
    before, done = snapshot(run / "checkpoints"), metrics(run, "done")[0]
    mhar("train", "--config", config, "--run", run, "--resume", "auto")
    assert snapshot(run / "checkpoints") == before
    again = metrics(run, "done")[-1]
    assert again | {"tokens_per_s": 0} == done | {"tokens_per_s": 0}
