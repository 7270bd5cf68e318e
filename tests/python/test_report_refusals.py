"""What the report refuses: runs that cannot be compared, and input that is no run."""

import re

import pytest
from report_page import main, refused, report
from run_folders import OPTIONS, events, make_run, start, write_metrics


@pytest.mark.parametrize(("option", "value", "both"), [
    ("steps", 700, "steps (600 in a against 700 in b)"),
    ("warm_up", 30, "warm-up (60 in a against 30 in b)"),
    ("rate_floor", 0.2, "rate-floor (0.1 in a against 0.2 in b)"),
    ("seed", 43, "seed (42 in a against 43 in b)"),
    ("sequence", 128, "sequence (256 in a against 128 in b)"),
    ("global_batch", 16, "global-batch (8 in a against 16 in b)"),
    ("validation_windows", 16, "validation-windows (256 in a against 16 in b)"),
])
def test_refuses_runs_that_cannot_be_paired(tmp_path, capsys, option, value, both):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", **{option: value})]
    message = refused(capsys, *runs, "--out", tmp_path / "report.html")
    assert both in message and "--unpaired" in message
    assert not (tmp_path / "report.html").exists()
    code, page = report(runs, tmp_path / "report.html", "--unpaired")
    assert code == 0 and both in page.text and "Unpaired: " in page.text
    assert not any("minus" in row[0] for row in page.rows)
    assert not (tmp_path / "report-difference.png").exists()


def test_refuses_another_data_set(tmp_path, capsys):
    other = [start(data_hash="ffff"), *events(OPTIONS, 0.0)]
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", lines=other)]
    assert "data (0123abcd in a against ffff in b)" in refused(capsys, *runs, "--out", tmp_path / "report.html")


def test_refuses_fresh_data_on_the_way(tmp_path, capsys):
    mixed = [start(data_hash="ffff"), *events(OPTIONS, 0.0, last=300), start(step=300), *events(OPTIONS, 0.0, first=300)]
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", lines=mixed)]
    message = refused(capsys, *runs, "--out", tmp_path / "report.html")
    assert "data (0123abcd in a against ffff then 0123abcd in b)" in message


def test_every_difference_is_named(tmp_path, capsys):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b"), make_run(tmp_path / "c", seed=1, sequence=128)]
    message = refused(capsys, *runs, "--out", tmp_path / "report.html")
    assert "seed (42 in a against 1 in c)" in message and "sequence (256 in a against 128 in c)" in message


def test_refuses_a_log_of_a_run_planned_otherwise(tmp_path, capsys):
    """Field case 23: the options agree, but the log comes from a run that was started for another number of steps."""
    resumed = [start(steps=800), *events(OPTIONS, 0.0, last=300), start(step=300, steps=600), *events(OPTIONS, 0.0, first=300)]
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", lines=resumed)]
    message = refused(capsys, *runs, "--out", tmp_path / "report.html")
    assert "steps (600 in b's config.toml against 800 in line 1 of its metrics.jsonl)" in message
    assert "steps (600 in b" in refused(capsys, runs[1], "--out", tmp_path / "report.html")


def test_refuses_a_log_whose_rates_follow_another_schedule(tmp_path, capsys):
    """Field case 23, without a start event that tells: the rates that were used do."""
    longer = OPTIONS | {"steps": 800}
    resumed = [start(), *events(longer, 0.0, last=300), start(step=300), *events(OPTIONS, 0.0, first=300)]
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", lines=resumed)]
    message = refused(capsys, *runs, "--out", tmp_path / "report.html")
    assert re.search(r"schedule \(rate 0\.\d+ of the peak at step 65 in a against 0\.\d+ in b\)", message)


def test_refuses_more_steps_than_planned(tmp_path, capsys):
    lines = [start(), *events(OPTIONS | {"steps": 700}, 0.0)]
    message = refused(capsys, make_run(tmp_path / "a", lines=lines), "--out", tmp_path / "report.html")
    assert "steps (600 in a's config.toml against 700 reached in its metrics.jsonl)" in message


def test_designs_rates_and_precision_may_differ(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", design="mhar", rate=4e-3, precision="bf16", layers=6)]
    code, page = report(runs, tmp_path / "report.html")
    assert code == 0 and page.row("precision") == ["fp32", "bf16"]


# ---- bad input


def test_refuses_a_missing_folder(tmp_path, capsys):
    message = refused(capsys, tmp_path / "none", "--out", tmp_path / "report.html")
    assert f"{tmp_path / 'none'}: wanted a run folder, got nothing there; give the folder" in message


def test_refuses_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert "wanted a run folder, got a file" in refused(capsys, tmp_path / "file", "--out", tmp_path / "report.html")


def test_refuses_what_is_no_run(tmp_path, capsys):
    message = refused(capsys, tmp_path, "--out", tmp_path / "report.html")
    assert "wanted a run folder with config.toml, got none" in message


def test_refuses_a_run_without_metrics(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    assert "wanted a run folder with metrics.jsonl, got none" in refused(capsys, folder, "--out", tmp_path / "r.html")
    write_metrics(folder, [start()])
    assert "wanted at least one step or validation, got none in 1 lines" in refused(capsys, folder, "--out", tmp_path / "r.html")


def test_refuses_a_broken_config(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    (folder / "config.toml").write_text("steps = = 3\n")
    assert "config.toml: wanted name = value lines (TOML), got a broken file" in refused(
        capsys, folder, "--out", tmp_path / "r.html")
    (folder / "config.toml").write_text('steps = "many"\n')
    assert "wanted a whole number for steps, got 'many'" in refused(capsys, folder, "--out", tmp_path / "r.html")
    (folder / "config.toml").write_text("steps = 3\n")
    assert "wanted all options of a run, got a file without design" in refused(capsys, folder, "--out", tmp_path / "r.html")


def test_refuses_a_broken_line_that_is_not_the_last(tmp_path, capsys):
    folder = make_run(tmp_path / "run", lines=[start(), '{"event":"st', *events(OPTIONS, 0.0)])
    message = refused(capsys, folder, "--out", tmp_path / "r.html")
    assert "metrics.jsonl: wanted one JSON event in line 2, got a broken line" in message


@pytest.mark.parametrize("line", ["[1, 2]", '{"event":"step","step":"five"}', '{"event":"step","step":-1}'])
def test_refuses_lines_of_another_kind(tmp_path, capsys, line):
    folder = make_run(tmp_path / "run", lines=[start(), line, *events(OPTIONS, 0.0)])
    assert "wanted one JSON event in line 2" in refused(capsys, folder, "--out", tmp_path / "r.html")


@pytest.mark.parametrize(("name", "text", "got"), [
    ("data.json", "{", "a broken file"), ("sample.json", "[]", "a list"), ("routing.json", '{"sites": []}', "no sites"),
    ("routing.json", '{"sites": [{"site": 0, "weights": [[1], [1]]}, {"site": 1, "weights": [[1, 0], [1]]}]}', "at site 1"),
    ("routing.json", '{"sites": [{"site": 0, "weights": [[null]]}]}', "a weight that is no number at site 0"),
    ("routing.json", '{"sites": [{"site": 0}]}', "no weights at site 0"),
])
def test_refuses_broken_files_of_a_run(tmp_path, capsys, name, text, got):
    folder = make_run(tmp_path / "run")
    (folder / name).write_text(text)
    message = refused(capsys, folder, "--out", tmp_path / "r.html")
    assert name in message and got in message and "write the file again or remove it" in message


def test_refuses_the_same_run_twice(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert "the same folder twice" in refused(capsys, folder, folder, "--out", tmp_path / "r.html")


def test_refuses_an_output_it_cannot_write(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert "wanted a name ending in .html" in refused(capsys, folder, "--out", tmp_path / "report.pdf")
    (tmp_path / "file").write_text("x")
    assert "wanted a file that can be written" in refused(capsys, folder, "--out", tmp_path / "file" / "r.html")


def test_refuses_unknown_options(tmp_path):
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path), "--out", "r.html", "--pair"])
    assert stop.value.code == 2


