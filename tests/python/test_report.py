"""The report: what it says of made-up runs, and that it needs nothing but itself."""

import struct

import pytest
from report_page import report
from run_folders import OPTIONS, UNIGRAM, done, events, loss, make_run, routing, start, step_event, validation_event

from mhar import plots
from mhar.runs import read_run


@pytest.fixture
def pair(tmp_path):
    sample = 'main(argv):\n    return "<b>" & argv\n'
    return (make_run(tmp_path / "standard", 0.0, sample=sample),
            make_run(tmp_path / "mhar", 0.03, design="mhar", rate=2e-3, with_routing=True, sample=sample))


def test_final_table(pair, tmp_path):
    code, page = report(pair, tmp_path / "report.html")
    assert code == 0
    final = [loss(600, 0.0), loss(600, 0.03)]
    assert page.row("quantity (unit)") == ["standard", "mhar"]
    assert page.row("design") == ["standard", "mhar"]
    assert page.row("parameters (count)") == ["818,000"] * 2
    assert page.row("steps (updates)") == ["600"] * 2
    assert page.row("tokens trained on (count)") == ["1,228,800"] * 2
    assert page.row("train loss (nats/token)") == [f"{value + 0.01:.4f}" for value in final]
    assert page.row("validation loss (nats/token)") == [f"{value:.4f}" for value in final]
    assert page.row("mean of the last 11 validations (nats/token)") == ["1.5000"] * 2
    assert page.row("validation loss minus standard's (nats/token)") == ["–", f"{final[1] - final[0]:+.4f}"]
    assert page.row("validation perplexity per token") == ["3.775", "3.679"]
    assert page.row("validation bits per byte (bits/byte)") == ["1.9173", "1.8802"]
    assert page.row("unigram entropy of the text (bits/byte)") == [f"{UNIGRAM:.4f}"] * 2
    assert page.row("bits per byte / unigram entropy (ratio)") == ["0.417", "0.409"]
    assert page.row("speed (tokens/s)") == ["20,500"] * 2


def test_sentences_name_the_runs_and_the_result(pair, tmp_path, capsys):
    _, page = report(pair, tmp_path / "report.html")
    assert "2 runs on the same data in the same order are compared, standard and mhar" in page.text
    assert "mhar ends at a validation loss of 1.3026 nats/token" in page.text
    assert "0.0257 below standard" in page.text
    assert "Unpaired" not in page.text
    printed = capsys.readouterr().out
    assert "mhar      validation loss 1.3026 nats/token, 1.8802 bits/byte, 0.409 of the text's unigram entropy" in printed
    assert f"report: {tmp_path / 'report.html'}" in printed


def test_needs_nothing_but_itself(pair, tmp_path):
    _, page = report(pair, tmp_path / "report.html", "--heads")
    for tag, attributes in page.tags:
        assert tag not in ("link", "script", "iframe", "object", "base")
        for name in ("src", "srcset", "href"):
            assert attributes.get(name, "data:").startswith("data:image/png;base64,") or name not in attributes
    html = (tmp_path / "report.html").read_text()
    style = html[html.index("<style>"):html.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "://" not in html


def test_fits_a_phone_and_both_colour_schemes(pair, tmp_path):
    _, page = report(pair, tmp_path / "report.html")
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    pictures = [attributes for tag, attributes in page.tags if tag == "source"]
    assert len(pictures) == 3 * sum(tag == "img" for tag, _ in page.tags)
    assert {"(max-width: 600px)", "(prefers-color-scheme: dark)"} <= {attributes["media"] for attributes in pictures}
    tables = sum(tag == "table" for tag, _ in page.tags)
    assert tables == sum(attributes.get("class") == "scroll" for _, attributes in page.tags)


def test_pictures_beside_the_page(pair, tmp_path, drawn):
    report(pair, tmp_path / "out" / "comparison.html", "--heads")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["comparison-difference.png", "comparison-loss.png", "comparison-routing-mhar-heads.png",
                     "comparison-routing-mhar.png", "comparison.html"]
    for path in (tmp_path / "out").glob("*.png"):
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert width == 1440 and height > 500


def test_settings_that_differ_are_apart_from_common_ones(pair, tmp_path):
    _, page = report(pair, tmp_path / "report.html")
    assert page.row("rate") == ["0.001", "0.002"]
    assert page.row("seed") == ["42"]
    assert page.row("attention (as started)") == ["flash (head dim 32)"]
    assert page.row("device") == ["auto"] and page.row("device (as started)") == ["cpu"]


def test_samples_are_shown_as_they_are(pair, tmp_path):
    _, page = report(pair, tmp_path / "report.html")
    assert 'main(argv):\n    return "<b>" & argv\n' in page.words
    assert "def " in page.words
    assert "100.0 % of its characters printable" in page.text


def test_one_run_and_three(tmp_path, drawn):
    folders = [make_run(tmp_path / name, gain, with_routing=name != "standard", design=name)
               for name, gain in (("standard", 0.0), ("single", 0.01), ("mhar", 0.03))]
    code, page = report(folders[2:], tmp_path / "one.html")
    assert code == 0 and "mhar: one run of the design mhar" in page.text
    assert not (tmp_path / "one-difference.png").exists()
    code, page = report(folders, tmp_path / "three.html")
    assert code == 0 and "below standard and" in page.text
    assert (tmp_path / "three-routing-single.png").exists() and (tmp_path / "three-routing-mhar.png").exists()


def test_runs_of_one_name_get_their_parents_names(tmp_path):
    folders = [make_run(tmp_path / parent / "mhar", with_routing=True) for parent in ("first", "second")]
    code, page = report(folders, tmp_path / "report.html")
    assert code == 0 and page.row("quantity (unit)") == ["first/mhar", "second/mhar"]
    assert (tmp_path / "report-routing-second-mhar.png").exists()


def test_path_with_space_and_umlaut(tmp_path):
    folder = make_run(tmp_path / "größte läufe" / "ein lauf", with_routing=True)
    code, _ = report([f"{folder}/"], tmp_path / "größte läufe" / "mein bericht.html")
    assert code == 0
    assert (tmp_path / "größte läufe" / "mein bericht-routing-ein-lauf.png").exists()


# ---- a run folder's metrics


def test_resumed_run_counts_each_step_once(tmp_path):
    config = OPTIONS
    first = [start(), *events(config, 0.0, last=400), step_event(config, 405, 9.0), validation_event(450, 9.0)]
    again = [start(step=400), *events(config, 0.0, first=400), done(config, 0.0)]
    run = read_run(make_run(tmp_path / "run", lines=first + again))
    assert [event["step"] for event in run.steps] == list(range(5, 601, 5))
    assert [event["loss"] for event in run.validations] == [loss(update, 0.0) for update in range(0, 601, 50)]


def test_half_written_last_line_and_unknown_events_are_ignored(tmp_path):
    config = OPTIONS
    lines = [start(), {"event": "weather", "sky": "blue"}, *events(config, 0.0, last=100)]
    folder = make_run(tmp_path / "run", lines=lines)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"event":"step","step":10')
    run = read_run(folder)
    assert run.last_step == 100 and not run.finished


def test_unfinished_run_is_marked(tmp_path):
    folder = make_run(tmp_path / "run", lines=[start(), *events(OPTIONS, 0.0, last=100)])
    _, page = report([folder], tmp_path / "report.html")
    assert page.row("steps (updates)") == ["100 of 600"]
    assert "run stopped at update 100 of 600." in page.text
    assert page.row("mean of the last 11 validations (nats/token)")[0].endswith("(of 3)")


def test_tail_mean_is_over_eleven_validations(tmp_path):
    run = read_run(make_run(tmp_path / "run", lines=[start(), *events(OPTIONS, 0.0)]))
    expected = sum(loss(update, 0.0) for update in range(100, 601, 50)) / 11
    assert run.tail == (pytest.approx(expected), 11)


def test_bits_per_byte_from_the_text_when_not_logged(tmp_path):
    lines = [{**event, "bits_per_byte": None} for event in [start(), *events(OPTIONS, 0.0)]]
    run = read_run(make_run(tmp_path / "run", lines=lines))
    assert run.bits_per_byte == pytest.approx(loss(600, 0.0) / 0.6931471805599453 * 100050 / 100000)


def test_losses_that_are_no_numbers_do_not_break_the_report(tmp_path):
    lines = [start(), *events(OPTIONS, 0.0, last=50), {**step_event(OPTIONS, 55, 0.0), "loss": None}]
    code, _ = report([make_run(tmp_path / "run", lines=lines)], tmp_path / "report.html")
    assert code == 0


def test_unexpectedly_unmoved_parameters_are_named(tmp_path):
    unmoved = {"event": "unmoved", "step": 100, "parameters": ["model.norm.weight", "first.query"], "expected": ["first.query"]}
    folder = make_run(tmp_path / "run", lines=[start(), *events(OPTIONS, 0.0), unmoved])
    _, page = report([folder], tmp_path / "report.html")
    assert page.row("run") == ["parameters"]
    assert ["run", "model.norm.weight"] in page.rows


# ---- figures


def test_smoothing_keeps_constants_and_follows_a_fall():
    assert plots.smoothed([2.0] * 200) == pytest.approx([2.0] * 200)
    line = [float(value) for value in range(100)]
    assert plots.smoothed(line)[:98] == pytest.approx(line[:98])
    assert plots.smoothed([]) == []


def test_routing_map_shows_the_mean_over_heads(tmp_path):
    folder = make_run(tmp_path / "mhar", with_routing=True)
    figure = plots.routing_figure(read_run(folder), plots.Look())
    weights = routing(4, 2)["sites"][3]["weights"]
    expected = [f"{(a + b) / 2:.2f}".lstrip("0") for a, b in zip(*weights)]
    written = [text.get_text() for text in figure.axes[0].texts if text.get_position()[1] == 3.5]
    assert written == expected
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == ["0 attn", "0 mlp", "1 attn"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()][:3] == ["embed", "0 attn", "0 mlp"]
    heads = plots.routing_figure(read_run(folder), plots.Look(), per_head=True)
    assert [axes.get_title() for axes in heads.axes][:2] == ["head 0", "head 1"]


def test_routing_map_of_sites_with_unlike_numbers_of_heads(tmp_path):
    folder = make_run(tmp_path / "mhar", with_routing=True)
    run = read_run(folder)
    run.routing["sites"][2]["weights"] = run.routing["sites"][2]["weights"][:1]
    figure = plots.routing_figure(run, plots.Look(), per_head=True)
    shown = [axes.collections[0].get_array().filled(-1).reshape(9, 9)[2] for axes in figure.axes[:2]]
    assert (shown[0][:3] > 0).all() and (shown[1] == -1).all()


def test_difference_is_taken_where_both_validated(tmp_path):
    runs = [read_run(make_run(tmp_path / "a")), read_run(make_run(tmp_path / "b", 0.03, validate_every=100))]
    figure = plots.difference_figure(runs, plots.Look())
    curve = figure.axes[0].lines[-1]
    assert list(curve.get_xdata()) == [0, 100, 200, 300, 400, 500, 600]
    assert curve.get_ydata()[-1] == pytest.approx(loss(600, 0.03) - loss(600, 0.0))
