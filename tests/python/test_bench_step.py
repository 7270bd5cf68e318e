"""`mhar bench step` on small shapes of the CPU: the keys of its lines, its refusals; the peer script's lines."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "bench" / "peers" / "train_step.py"
SMALL = {"--device": "cpu", "--threads": 1, "--scale": "tiny", "--width": 32, "--layers": 2, "--heads": 2,
         "--kv-heads": 1, "--ffn": 64, "--sequence": 16, "--microbatch": 2, "--warm-up": 1, "--steps": 3}


def command(*more):
    """The small shape with further options; one that is given again replaces its value."""
    kept = [word for name, value in SMALL.items() if name not in more for word in (name, value)]
    return ["bench", "step", *kept, *more]


def designs_there(mhar):
    done = mhar("bench", "step", "--design", "none of them", code=2)
    return done.message.split("wanted one of ")[1].split(", got")[0].split(", ")


def test_a_line_for_each_design(mhar):
    done = mhar(*command("--seed", 7))
    first, second = done.events
    asked = {"kind": "bench step", "scale": "tiny", "microbatch": 2, "sequence": 16, "accumulate": 1,
             "precision": "fp32", "steps": 3, "warm_up": 1, "device": "cpu", "cuda_graph": False}
    for line in (first, second):
        assert {key: line[key] for key in asked} == asked
        assert line["options"] == {"width": "32", "layers": "2", "heads": "2", "kv-heads": "1", "ffn": "64",
                                   "seed": "7", "threads": "1"}
        least, most = line["spread"]
        assert 0 < least <= line["step_ms"] <= most and line["wall_ms"] > 0
        assert line["tokens_per_s"] == pytest.approx(2 * 16 / line["step_ms"] * 1e3)
        assert line["first_loss"] == pytest.approx(math.log(257), abs=0.3) and math.isfinite(line["last_loss"])
        positive = ["parameters", "model_flops", "mfu", "gemm_peak", "copy_bandwidth", "limit_ms", "limit_percent"]
        assert all(line[key] > 0 for key in positive)
        assert line["limit_ms"] == pytest.approx(sum(item["ms"] for item in line["limit"].values()))
        alone = sum(ms for product in line["gemms"].values() for ms in product.values())
        assert len(line["gemms"]) == 5 and line["limit"]["gemm"]["ms"] == pytest.approx(alone)
        assert line["version"] == mhar("--version").out.strip()
        assert not {"peers", "headline", "profile", "peak_bytes", "gpu"} & set(line), "nothing that was not measured"
    assert first["design"] == "standard" and first["reads"] == "" and second["reads"].startswith("chunked")
    assert first["against"] == {second["design"]: pytest.approx(second["step_ms"] / first["step_ms"])}
    assert second["model_flops"] == first["model_flops"] and second["parameters"] > first["parameters"]
    assert "depth reads and norms" in second["limit"] and "depth reads and norms" not in first["limit"]
    assert "tokens/s" in done.err and "times standard" in done.err


def test_every_design_and_several_microbatches(mhar):
    names = designs_there(mhar)
    done = mhar(*command("--design", ",".join(names), "--accumulate", 3, "--precision", "bf16"))
    assert [line["design"] for line in done.events] == names
    for line in done.events:
        assert line["accumulate"] == 3 and line["precision"] == "bf16" and len(line.get("against", {})) == len(names) - 1
        assert "sum over microbatches" in line["limit"]
        assert line["tokens_per_s"] == pytest.approx(3 * 2 * 16 / line["step_ms"] * 1e3)


def test_no_profile_without_a_gpu(mhar):
    line, = mhar(*command("--design", "standard", "--profile")).events
    assert "GPU" in line["profile"]["missing"] and "against" not in line


def test_uncompiled_peer_on_the_cpu(mhar):
    done = mhar(*command("--peers", "--peer-only", "eager,per-site", "--python", sys.executable,
                         "--peer-script", SCRIPT))
    for line in done.events:
        eager, per_site = line["peers"]
        assert eager["name"] == "standard, eager" and eager["ms"] > 0
        assert eager["ratio"] == pytest.approx(eager["ms"] / line["step_ms"])
        assert eager["tokens_per_s"] == pytest.approx(2 * 16 / eager["ms"] * 1e3)
        assert "Triton" in per_site["name"] and (per_site["error"] if line["device"] == "cpu" else True)
        assert "headline" not in line, "the uncompiled model is nobody's headline"
    assert "peer      standard, eager: " in done.err


def table_command(number):
    """Scales stand in the table; the small dimensions hold for all of them."""
    words = command("--table", number, "--vocabulary", 31, "--layers", 4)
    at = words.index("--scale")
    return words[:at] + words[at + 2:]


@pytest.mark.parametrize("number", [4, 8])
def test_cost_tables(mhar, number):
    done = mhar(*table_command(number))
    assert [line["scale"] for line in done.events] == ["100m", "100m", "350m", "350m", "1b", "1b"]
    assert "| published: standard, tokens/s | 113900 | 45000 | 19700 |" in done.err
    assert "| published: mhar eager, times that | 0.31 | 0.16 | not given |" in done.err
    rate = [f"{line['tokens_per_s']:.0f}" for line in done.events[::2]]
    assert f"| ours: standard, tokens/s | {' | '.join(rate)} |" in done.err
    ratio = [f"{list(line['against'].values())[0]:.2f}" for line in done.events[1::2]]
    assert f"times ours: standard | {' | '.join(ratio)} |" in done.err


def test_table_of_reads(mhar):
    done = mhar(*table_command(5))
    assert done.out == "" and "| | 100m, 2 windows | 350m, 1 windows | 1b, 1 windows | 8b-delta |" in done.err
    assert "| published: fused | 5.700 | 11.400 | 42.400 | 323.000 |" in done.err
    ours = [row for row in done.err.splitlines() if row.startswith("| ours")]
    assert len(ours) == 2 and all(float(cell) > 0 for row in ours for cell in row.split("|")[2:-1])


@pytest.mark.parametrize("arguments, words", [
    (["--table", 4], ["--table: 4: wanted the scales of that table, got --scale; leave --scale out"]),
    (["--table", 7], ["--table: wanted one of 4, 5, 8, got '7'"]),
    (["--design", "standard,none"], ["--design: wanted one of standard", "'none'"]),
    (["--design", ""], ["--design: wanted designs with commas between, got nothing"]),
    (["--scale", "2b"], ["--scale: wanted one of 100m", "'2b'"]),
    (["--steps", 0], ["--steps: wanted a whole number of at least 1, got '0'"]),
    (["--warm-up", 0], ["--warm-up: wanted a whole number of at least 1, got '0'"]),
    (["--microbatch", -2], ["--microbatch: wanted", "got -2"]),
    (["--heads", 3], ["--heads: wanted a divisor of --width 32, got 3"]),
    (["--precision", "int8"], ["--precision: wanted one of bf16, fp32, got 'int8'"]),
    (["--limit-seconds", -1], ["--limit-seconds: wanted"]),
    (["--profil"], ["did you mean --profile? see mhar bench step --help"]),
    (["--data", "x"], ["--data", "an unknown one"]),
    (["--peers", "--peer-script", "nowhere.py"], ["--peer-script: nowhere.py: wanted the script of the peers"]),
    (["--peers", "--peer-script", str(SCRIPT), "--python", "no-such-python"], ["--python: no-such-python: wanted"]),
    (["--peers", "--peer-script", str(SCRIPT), "--python", sys.executable, "--peer-only", "tuned,magic"],
     ["--peer-only: wanted some of default,reduce-overhead", "'magic'"]),
    (["--device", "cuda:77"], ["--device", "--device cpu"])])
def test_refused(mhar, arguments, words):
    done = mhar(*command(*arguments), code=2)
    assert done.out == "" and all(word in done.message for word in words), done.message
    assert len(done.err.splitlines()) == 1 and "; " in done.message


def test_help(mhar):
    assert "step" in mhar("bench", "--help").out
    text = mhar("bench", "step", "--help").out
    assert all(word in text for word in ("--profile", "--peers", "--accumulate", "--cuda-graph", "[100m]"))
    assert not any(word in text for word in ("--data ", "--resume", "--save-every"))


def peer_lines(*more, **changes):
    shape = {"vocabulary": 31, "width": 16, "layers": 1, "heads": 2, "kv-heads": 1, "head-dim": 8, "ffn": 24,
             "routing-heads": 1, "sequence": 6, "microbatch": 2, "threads": 1, "device": "cpu", "precision": "fp32",
             "warm-up": 1, "steps": 3} | changes
    words = [word for name, value in shape.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, SCRIPT, *words, *more], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_peer_sums_over_microbatches():
    """Two microbatches of the same tokens are the step of one: the mean of two equal gradients."""
    one, = peer_lines("--only", "eager")
    two, = peer_lines("--only", "eager", accumulate=2)
    assert one["first_loss"] == pytest.approx(two["first_loss"]) and two["last_loss"] < two["first_loss"]
    assert one["last_loss"] == pytest.approx(two["last_loss"], rel=1e-5)


def test_peers_out_of_time():
    lines = peer_lines("--limit-seconds", "0.05")
    assert len(lines) == 5 and all("time limit" in line["error"] for line in lines)


def test_fault_of_a_peer_is_its_line():
    line, = peer_lines("--only", "eager", device="nowhere")
    assert line["name"] == "standard, eager" and "RuntimeError" in line["error"]
