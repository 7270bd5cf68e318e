"""Ends of runs: nothing to validate on, a split that is too short, a finished run that is started again."""

import json


def test_trains_without_a_validation_split_and_says_so(mhar, tmp_path):
    text = tmp_path / "one.txt"
    text.write_text("the only document there is, again and again. " * 60)
    mhar("data", "--out", tmp_path / "set", text)
    done = mhar.train(tmp_path / "set", tmp_path / "run", "--steps", 4, design="mhar")
    assert "nothing is validated" in done.err
    last = done.events[-1]
    assert last["event"] == "done" and last["validation_loss"] is None and last["validation_tail_mean"] is None
    assert not [event for event in done.events if event["event"] == "validation"]
    assert json.loads((tmp_path / "run/routing.json").read_text())["sites"]


def test_too_short_a_validation_split_is_refused_before_anything_is_written(mhar, tmp_path):
    for name, text in (("a", "a long document " * 200), ("b", "short")):
        (tmp_path / f"{name}.txt").write_text(text)
    for seed in range(20):  # the seed sends one of two documents to each split
        mhar("data", "--out", tmp_path / "set", "--seed", seed, tmp_path / "a.txt", tmp_path / "b.txt")
        if json.loads((tmp_path / "set.json").read_text())["validation"]["tokens"] < 33:
            break
    refused = mhar.train(tmp_path / "set", tmp_path / "run", "--steps", 2, code=2)
    assert "validation split" in refused.message
    assert not (tmp_path / "run").exists()


def test_a_finished_run_started_again_adds_no_second_end_and_one_off_options_do_not_stick(mhar, shards, tmp_path):
    run = tmp_path / "run"
    mhar.train(shards, run, "--steps", 3)
    again = mhar.train(shards, run, "--steps", 3, "--resume", "auto", "--fresh-data", "true")
    assert again.events[-1]["event"] == "done"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines].count("done") == 1
    config = (run / "config.toml").read_text()
    assert 'resume = "never"' in config and "fresh-data = false" in config
