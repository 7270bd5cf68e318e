"""The commands beside `mhar train`: eval, generate, info, help; paths and files that are not plain ASCII with LF."""

import json
import math
import os
import subprocess
import sys

import numpy
import pytest
from corpora import SENTENCES, jsonl, qwen_like
from program import SMALL, checkpoint, model_hash, write_corpus

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAIN = ["--threads", 1, "--device", "cpu"]
JSON = [*PLAIN, "--json"]


def evaluate(mhar, run, shards, *more):
    return mhar("eval", "--checkpoint", run, "--data", shards, *JSON, *more).events[-1]


def sample(mhar, run, *more):
    return mhar("generate", "--checkpoint", run, *JSON, *more).events[-1]


def test_eval_agrees_with_training_and_names_its_units(mhar, shards, trained):
    run = trained("mhar")
    result = evaluate(mhar, run, shards)
    state = json.loads((checkpoint(run, 12) / "state.json").read_text())
    assert result["loss"] == pytest.approx(state["validations"][-1][1], abs=1e-6) and result["event"] == "eval"
    assert result["perplexity_per_token"] == pytest.approx(math.exp(result["loss"]))
    split = json.loads(shards.with_name("text.json").read_text())["validation"]
    bits = result["loss"] / math.log(2) * split["tokens"] / split["bytes"]
    assert result["bits_per_byte"] == pytest.approx(bits, rel=1e-9)
    assert split["tokens"] == split["bytes"] + split["documents"]
    windows = (split["tokens"] - 1) // 32
    assert (result["windows"], result["tokens"]) == (min(windows, 256), 32 * min(windows, 256))
    table = mhar("eval", "--checkpoint", run, "--data", shards, *PLAIN).out
    for unit in ("nats per token", "per token", "per byte of text", "tokens counted"):
        assert unit in table


@pytest.mark.parametrize("rounding", ["stochastic", "master"])
def test_eval_of_a_bf16_checkpoint(mhar, shards, tmp_path, rounding):
    done = mhar.train(shards, tmp_path / "run", steps=3, precision="bf16", rounding=rounding).events[-1]
    assert evaluate(mhar, tmp_path / "run", shards, "--batch", 4)["loss"] == done["validation_loss"]
    wide = evaluate(mhar, tmp_path / "run", shards, "--batch", 4, "--precision", "fp32")["loss"]
    assert wide != done["validation_loss"] and wide == pytest.approx(done["validation_loss"], abs=0.02)


def test_eval_of_fewer_and_more_windows(mhar, shards, trained):
    assert evaluate(mhar, trained("mhar"), shards, "--windows", 3)["tokens"] == 96
    done = mhar("eval", "--checkpoint", trained("mhar"), "--data", shards, "--windows", 100000, *JSON)
    assert "100000 windows asked for" in done.err and "all used" in done.err
    assert done.events[-1] == evaluate(mhar, trained("mhar"), shards, "--windows", 0)
    assert evaluate(mhar, trained("mhar"), shards, "--split", "train", "--windows", 2)["split"] == "train"


def test_eval_does_not_depend_on_the_batch(mhar, shards, trained):
    losses = [evaluate(mhar, trained("mhar"), shards, "--windows", 9, "--batch", n)["loss"] for n in (1, 4, 16)]
    assert max(losses) - min(losses) < 1e-5


def test_logits_are_those_of_the_loss(mhar, shards, trained, tmp_path):
    result = evaluate(mhar, trained("mhar"), shards, "--windows", 1, "--logits", tmp_path / "logits.npy")
    logits = numpy.load(tmp_path / "logits.npy").astype(numpy.float64)
    targets = numpy.load(shards.with_name("text-validation-00000.npy"))[1:33]
    assert logits.shape == (32, 257)
    loss = numpy.log(numpy.exp(logits).sum(1)) - logits[numpy.arange(32), targets]
    assert loss.mean() == pytest.approx(result["loss"], abs=1e-5)


@pytest.mark.parametrize("design", ["standard", "mhar"])
def test_generate_repeats_itself_with_the_same_seed(mhar, trained, design):
    more = ["--prompt", "the depth", "--tokens", 60, "--seed", 7]
    one, two, other = (sample(mhar, trained(design), *more[:-1], seed) for seed in (7, 7, 8))
    assert one["token_ids"] == two["token_ids"] != other["token_ids"]
    assert len(one["token_ids"]) == one["tokens"] == 60 and 256 not in one["token_ids"]
    # 69 tokens are more than the 32 of a window: the context was moved on twice.
    assert sample(mhar, trained(design), *more, "--temperature", 0, "--top-k", 5)["token_ids"] == sample(
        mhar, trained(design), "--prompt", "the depth", "--tokens", 60, "--seed", 1, "--temperature", 0)["token_ids"]


def test_generate_from_token_ids_and_from_one_token(mhar, trained):
    text = sample(mhar, trained("mhar"), "--prompt", "ab", "--tokens", 8)
    ids = sample(mhar, trained("mhar"), "--prompt-tokens", "97,98", "--tokens", 8)
    assert text["token_ids"] == ids["token_ids"] and ids["prompt_token_ids"] == [97, 98]
    assert sample(mhar, trained("mhar"), "--prompt", "a", "--tokens", 1)["tokens"] == 1
    assert sample(mhar, trained("mhar"), "--prompt", "ü", "--tokens", 1)["prompt_token_ids"] == list("ü".encode())
    command = mhar.command("generate", "--checkpoint", trained("mhar"), "--prompt", "the ", "--tokens", 8, *PLAIN)
    out = subprocess.run(command, capture_output=True, check=True).stdout
    assert out.startswith(b"the ") and len(out) == 4 + 8 + 1


def test_tokenizer_of_hugging_face_from_data_to_text(mhar, tmp_path):
    tokenizer = qwen_like(tmp_path / "tokenizer.json")
    jsonl(tmp_path / "text.jsonl", SENTENCES)
    environment = os.environ | {"PYTHONPATH": os.path.join(REPOSITORY, "python")}

    def python(module, *arguments):
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    python("mhar.data", "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "bpe",
           "--validation-fraction", 0.3, "--end-of-text", "<|endoftext|>", tmp_path / "text.jsonl")
    size = json.loads((tmp_path / "bpe.json").read_text())["tokenizer"]["vocabulary"]
    assert size == tokenizer.get_vocab_size()
    message = mhar.train(tmp_path / "bpe", tmp_path / "run", steps=2, code=2).message
    assert f"--vocabulary to {size}" in message
    mhar.train(tmp_path / "bpe", tmp_path / "run", steps=2, vocabulary=size)
    refusal = mhar("generate", "--checkpoint", tmp_path / "run", "--prompt", "the", *PLAIN, code=2).message
    assert "python -m mhar.generate" in refusal and "--prompt-tokens" in refusal and "tokenizer.json" in refusal
    call = ["--checkpoint", tmp_path / "run", "--tokenizer", tmp_path / "tokenizer.json", "--prompt", "Sentence one",
            "--json", "--mhar", mhar.path, "--tokens", 12, "--threads", 1]
    result = json.loads(python("mhar.generate", *call).stdout)
    assert result["prompt_token_ids"] == tokenizer.encode("Sentence one").ids and result["tokens"] == 12
    assert result["text"] == tokenizer.decode(result["token_ids"], skip_special_tokens=False)


def test_eval_refuses_another_tokenizer(mhar, shards, trained, tmp_path):
    manifest = json.loads(shards.with_name("text.json").read_text())
    manifest["tokenizer"] |= {"kind": "huggingface", "name": "other.json", "hash": "00"}
    for path in shards.parent.glob("text-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "text.json").write_text(json.dumps(manifest))
    message = mhar("eval", "--checkpoint", trained("mhar"), "--data", tmp_path / "text", code=2).message
    assert "bytes (257 ids)" in message and "other.json" in message


def test_info_of_a_checkpoint_a_run_and_shards(mhar, shards, trained):
    run = trained("mhar")
    info = mhar("info", checkpoint(run, 12), "--json").events[-1]
    wanted = {"kind": "checkpoint", "design": "mhar", "step": 12, "tokens": 12 * 128, "width": 32, "layers": 2,
              "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 64, "vocabulary": 257, "sequence": 32, "scale": "tiny",
              "precision": "fp32", "threads": 1, "tokenizer": "bytes"}
    assert {key: info[key] for key in wanted} == wanted
    layer = 2 * 32 + 2 * 16 + 32 * 16 * (2 + 1 + 1 + 2) + 3 * 32 * 64
    assert info["parameters"] == 257 * 32 + 2 * layer + 32 + 5 * 2 * 32
    whole = mhar("info", run, "--json").events[-1]
    assert whole["kind"] == "run" and whole["checkpoint"] == info and whole["steps"] == 12
    text = mhar("info", shards, "--json").events[-1]
    assert text["kind"] == "shards" and text["train"]["tokens"] > 0 and text["tokenizer"]["end_of_text"] == 256
    assert mhar("info", f"{shards}.json", "--json").events[-1]["train"] == text["train"]
    for path in (checkpoint(run, 12), run, shards):
        assert "design" in (out := mhar("info", path).out) or "tokenizer" in out


def test_info_of_a_run_before_its_first_checkpoint(mhar, trained, tmp_path):
    (tmp_path / "config.toml").write_bytes((trained("mhar") / "config.toml").read_bytes())
    assert "checkpoint" not in mhar("info", tmp_path, "--json").events[-1]


def test_info_of_this_machine_and_of_scales(mhar):
    machine = mhar("info", "--json").events[-1]
    assert machine["kind"] == "machine" and machine["cores"] >= 1 and machine["torch"].startswith("2.")
    counts = {design: mhar("info", "--scale", "100m", "--design", design, "--json").events[-1]["parameters"]
              for design in ("standard", "single", "mhar")}
    assert counts == {"standard": 115554304, "single": 115579904, "mhar": 115579904}


@pytest.mark.parametrize("command", [[], ["data"], ["train"], ["eval"], ["generate"], ["info"]])
def test_help(mhar, command):
    done = mhar(*command, "--help")
    assert done.err == "" and "--help" in done.out
    if command == ["train"]:
        for text in ("--routing-heads", "standard", "single", "mhar", "--rounding", "[0.001]"):
            assert text in done.out


def test_version(mhar):
    assert mhar("--version").out.strip() == mhar("info", "--json").events[-1]["version"]


def test_paths_and_files_of_other_systems(mhar, shards, trained, tmp_path):
    """Case 62: spaces, umlauts, separators at the end and CRLF give what plain paths give."""
    place = tmp_path / "ein Ordner für Läufe"
    place.mkdir()
    mhar("data", "--out", place / "der Text", "--validation-fraction", "0.25", f"{shards.parent / 'source'}/")
    assert (place / "der Text-00000.npy").read_bytes() == shards.with_name("text-00000.npy").read_bytes()
    settings = SMALL | {"steps": 12, "save-every": 4, "validate-every": 4, "design": "mhar",
                        "data": str(place / "der Text"), "run": f"{place / 'ein Lauf'}/"}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    (place / "die Wünsche.toml").write_bytes("\r\n".join(["# Einstellungen", *lines, ""]).encode())
    mhar("train", "--config", place / "die Wünsche.toml")
    assert model_hash(place / "ein Lauf", 12) == model_hash(trained("mhar"), 12)
    mhar("train", "--config", place / "die Wünsche.toml", "--resume", f"{checkpoint(place / 'ein Lauf', 8)}/")
    assert evaluate(mhar, f"{place / 'ein Lauf'}/", f"{place / 'der Text'}/")["loss"] == evaluate(
        mhar, trained("mhar"), shards)["loss"]
    assert mhar("info", f"{place / 'ein Lauf'}/", "--json").events[-1]["checkpoint"]["step"] == 12
    assert mhar("info", f"{place / 'der Text'}/", "--json").events[-1]["kind"] == "shards"


def test_relative_paths(mhar, tmp_path):
    write_corpus(tmp_path / "source", documents=20)
    mhar("data", "--out", "text", "--validation-fraction", 0.25, "source", cwd=tmp_path)
    options = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    mhar("train", "--data", "text", "--run", "run", *options, "--steps", 2, cwd=tmp_path)
    assert mhar("eval", "--checkpoint", "run", "--data", "./text.json", *JSON, cwd=tmp_path).events[-1]["tokens"] > 0
