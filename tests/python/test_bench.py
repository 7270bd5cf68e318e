"""`mhar bench read` on small shapes of the CPU: the keys of its line, its peers, its refusals; the peer script's lines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SMALL = {"--device": "cpu", "--threads": 1, "--tokens": 7, "--width": 32, "--heads": 2, "--sites": 6, "--warm-up": 0,
         "--repeat": 2}
MEASURED = ["forward_ms", "backward_ms", "total_ms"]


def command(*more):
    """The small shape with further options; one that is given again replaces its value."""
    kept = [word for name, value in SMALL.items() if name not in more for word in (name, value)]
    return ["bench", "read", *kept, *more]


def bench(mhar, *more):
    done = mhar(*command(*more))
    line, = done.events
    return line, done.err


def test_line_of_a_small_shape(mhar):
    line, table = bench(mhar, "--dtype", "fp32")
    asked = {"kind": "bench read", "scale": "100m", "tokens": 7, "width": 32, "heads": 2, "sites": 6, "dtype": "fp32",
             "device": "cpu", "repeat": 2}
    assert {key: line[key] for key in asked} == asked
    assert line["kernels"].startswith("chunked (cpu") and line["version"] == mhar("--version").out.strip()
    assert sum(line["plan"]["forward"]) == sum(line["plan"]["backward"]) == 6
    assert all(0 <= line[key] <= 1e-5 for key in ("error_o", "error_ds", "error_dw"))
    for key in MEASURED:
        least, most = line["spreads"][key]
        assert 0 < least <= line[key] <= most
    positive = ["bytes_forward", "bytes_backward", "copy_bandwidth", "fraction_forward", "fraction_backward",
                "extra_memory", "extra_memory_percent"]
    assert all(line[key] > 0 for key in positive)
    assert not {"peers", "growth", "left_out", "gpu", "warm_total_ms"} & set(line), "nothing that was not measured"
    assert "7 tokens x 32 channels" in table and "errors" in table


@pytest.mark.parametrize("dtype, chunk", [("bf16", 1), ("fp16", 3)])
def test_chunk_and_type(mhar, dtype, chunk):
    line, _ = bench(mhar, "--dtype", dtype, "--chunk", chunk)
    assert set(line["plan"]["forward"]) == set(line["plan"]["backward"]) == {chunk}
    assert 0 < line["error_o"] < 2e-2 and 0 < line["error_ds"] < 2e-2


def test_gated_block_reads(mhar):
    line, table = bench(mhar, "--scale", "8b-delta", "--sites", 16, "--dtype", "fp32")
    assert max(line["error_o"], line["error_ds"], line["error_dw"]) <= 1e-5
    assert line["bytes_forward"] > 0 and "plan" not in line and "null" in line["left_out"] and "left out" in table


def test_composed_peer_on_the_cpu(mhar):
    line, table = bench(mhar, "--peers")
    peer, = line["peers"]
    assert peer["name"] == "composed" and all(peer[key] > 0 for key in MEASURED)
    assert peer["ratio"] == pytest.approx(peer["total_ms"] / line["total_ms"])
    assert "no GPU in use" in table and "times ours" in table


def test_growth(mhar):
    growth = bench(mhar, "--growth", "--tokens", 2, "--width", 8)[0]["growth"]
    assert growth["sources"] == [25, 50, 100, 200, 400]
    assert all(len(growth[key]) == 5 for key in MEASURED) and growth["exponent"] > 0


@pytest.mark.parametrize("arguments, words", [
    (["--scale", "2b"], ["--scale: wanted one of 100m", "8b-delta", "'2b'"]),
    (["--heads", 3], ["--heads: wanted a divisor of --width 32, got 3"]),
    (["--chunk", 17], ["--chunk: wanted a whole number of at most 16, got '17'"]),
    (["--chunk", -1], ["--chunk: wanted", "got '-1'"]),
    (["--dtype", "int8"], ["--dtype: wanted one of bf16, fp16, fp32, got 'int8'"]),
    (["--tokens", -4], ["--tokens: wanted", "got '-4'"]),
    (["--tokens", 2**40], ["--tokens: wanted a whole number from 1 to 2147483647"]),
    (["--scale", "8b-delta", "--sites", 12], ["--sites: wanted a multiple of the 8 sites of a block, got 12"]),
    (["--scale", "8b-delta", "--sites", 16, "--growth"], ["--growth: wanted", "8b-delta"]),
    (["--repat", 3], ["--repat", "did you mean --repeat? see mhar bench read --help"]),
    (["--device", "cuda:77"], ["--device", "--device cpu"])])
def test_refused(mhar, arguments, words):
    done = mhar(*command(*arguments), code=2)
    assert done.out == "" and all(word in done.message for word in words), done.message
    assert len(done.err.splitlines()) == 1 and "; " in done.message


def test_help(mhar):
    assert "read" in mhar("bench", "--help").out
    text = mhar("bench", "read", "--help").out
    assert all(word in text for word in ("8b-delta=100m", "--growth", "--peer-script"))


def test_no_measurement_named(mhar):
    assert "a command: read, step, got none; see mhar bench --help" in mhar("bench", code=2).message
    assert "did you mean read?" in mhar("bench", "raed", code=2).message


def test_peer_script_lists_every_failure(mhar):
    """Without a GPU each peer ends in a line with its reason, and none costs the others theirs."""
    if json.loads(mhar("info", "--json").out)["cuda_devices"] > 0:
        pytest.skip("this machine has a CUDA device")
    script = REPOSITORY / "bench" / "peers" / "depth_reads.py"
    shape = ["--tokens", "4", "--width", "8", "--heads", "2", "--sites", "3", "--device", "cpu"]
    done = subprocess.run([sys.executable, script, *shape], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["per site (Triton)", "fla, one head", "liger, one head"]
    assert all(line["error"] for line in lines)
