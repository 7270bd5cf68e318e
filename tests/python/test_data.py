"""python -m mhar.data: ids, end-of-text tokens, widths, split and manifest; its agreement with the C++ program."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import tokenizers
import xxhash
from corpora import SENTENCES, jsonl, parquet, qwen_like
from tokenizers import processors

import mhar
from mhar import data
from mhar.shards import draw, in_validation

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def tokenizer(tmp_path):
    return qwen_like(tmp_path / "tokenizer.json")


def prepare(tmp_path, *arguments, out="set") -> dict:
    """Runs the command in tmp_path with its tokenizer.json and returns the manifest."""
    options = ["--out", str(tmp_path / "out" / out), "--tokenizer", str(tmp_path / "tokenizer.json")]
    assert data.main([*options, *map(str, arguments)]) == 0
    return json.loads((tmp_path / "out" / f"{out}.json").read_text(encoding="utf-8"))


def tokens(tmp_path, manifest: dict, split: str = "train") -> list[int]:
    files = [numpy.load(tmp_path / "out" / shard["file"]) for shard in manifest[split]["shards"]]
    return numpy.concatenate(files).tolist() if files else []


def documents(ids: list[int], end: int) -> list[list[int]]:
    """Takes the stream apart at its end-of-text tokens."""
    found, current = [], []
    for token in ids:
        if token == end:
            found.append(current)
            current = []
        else:
            current.append(token)
    assert current == [], "the last document has an end-of-text token too"
    return found


@pytest.mark.parametrize("write,name", [(parquet, "a.parquet"), (jsonl, "a.jsonl"), (jsonl, "a.jsonl.gz")])
def test_ids_are_the_tokenizers(tmp_path, tokenizer, write, name):
    write(tmp_path / name, SENTENCES)
    manifest = prepare(tmp_path, "--validation-fraction", 0, tmp_path / name)
    end = tokenizer.token_to_id("<|endoftext|>")
    got = documents(tokens(tmp_path, manifest), end)
    assert got == [tokenizer.encode(text, add_special_tokens=False).ids for text in SENTENCES]
    assert [tokenizer.decode(ids) for ids in got] == SENTENCES
    assert manifest["tokenizer"] == {
        "kind": "huggingface", "name": "tokenizer.json", "vocabulary": tokenizer.get_vocab_size(), "end_of_text": end,
        "hash": xxhash.xxh3_128_hexdigest((tmp_path / "tokenizer.json").read_bytes()),
    }


def test_manifest_counts_and_hashes(tmp_path, tokenizer):
    parquet(tmp_path / "a.parquet", SENTENCES)
    manifest = prepare(tmp_path, "--seed", 7, "--validation-fraction", 0.25, tmp_path / "a.parquet")
    assert (manifest["format"], manifest["version"], manifest["seed"]) == ("mhar-tokens", 1, 7)
    assert manifest["validation_fraction"] == 0.25
    every = []
    for split in ("train", "validation"):
        ids = tokens(tmp_path, manifest, split)
        every += ids
        assert manifest[split]["tokens"] == len(ids) == sum(shard["tokens"] for shard in manifest[split]["shards"])
        assert manifest[split]["documents"] == ids.count(manifest["tokenizer"]["end_of_text"]) > 0
        for shard in manifest[split]["shards"]:
            payload = numpy.load(tmp_path / "out" / shard["file"]).tobytes()
            assert shard["hash"] == xxhash.xxh3_128_hexdigest(payload)
    size = sum(len(text.encode()) for text in SENTENCES)
    assert manifest["train"]["bytes"] + manifest["validation"]["bytes"] == size
    assert manifest["source_hash"] == xxhash.xxh3_128_hexdigest(b"".join(text.encode() + b"\0" for text in SENTENCES))
    share = numpy.unique(every, return_counts=True)[1] / len(every)
    entropy = -(share * numpy.log2(share)).sum() * len(every) / size
    assert manifest["unigram_bits_per_byte"] == pytest.approx(entropy, rel=1e-12)


def test_width_follows_the_vocabulary(tmp_path, tokenizer):
    parquet(tmp_path / "a.parquet", SENTENCES)
    for vocabulary, width in ((65536, "<u2"), (65537, "<u4"), (151936, "<u4")):
        manifest = prepare(tmp_path, "--vocabulary", vocabulary, tmp_path / "a.parquet")
        assert manifest["tokenizer"]["vocabulary"] == vocabulary
        shard = tmp_path / "out" / manifest["train"]["shards"][0]["file"]
        assert numpy.load(shard, mmap_mode="r").dtype.str == width
        assert len(shard.read_bytes()) == 128 + manifest["train"]["tokens"] * int(width[-1])


# Field case 69, with a tokenizer whose start and end tokens are one and the same, which it adds when asked.
@pytest.mark.parametrize("write,name", [(parquet, "a.parquet"), (jsonl, "a.jsonl")])
def test_one_end_of_text_after_each_non_empty_document(tmp_path, tokenizer, write, name):
    end = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", end)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    a, b = (tokenizer.token_to_id(letter) for letter in "ab")
    write(tmp_path / name, ["a", "", None, "b"])
    manifest = prepare(tmp_path, "--validation-fraction", 0, tmp_path / name)
    assert tokens(tmp_path, manifest) == [a, end, b, end]
    assert manifest["train"]["documents"] == 2


def test_text_that_spells_end_of_text_stays_text(tmp_path, tokenizer):
    parquet(tmp_path / "a.parquet", ["before<|endoftext|>after"])
    manifest = prepare(tmp_path, tmp_path / "a.parquet")
    ids = tokens(tmp_path, manifest)
    assert ids.count(manifest["tokenizer"]["end_of_text"]) == 1
    assert tokenizer.decode(ids[:-1]) == "before<|endoftext|>after"


def test_truncation_and_padding_of_the_file_are_off(tmp_path, tokenizer):
    wanted = [tokenizer.encode(text).ids for text in SENTENCES[:3]]
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=200)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    parquet(tmp_path / "a.parquet", SENTENCES[:3])
    manifest = prepare(tmp_path, "--validation-fraction", 0, tmp_path / "a.parquet")
    assert documents(tokens(tmp_path, manifest), manifest["tokenizer"]["end_of_text"]) == wanted


@pytest.mark.parametrize("asked", ["<|im_end|>", "id"])
def test_end_of_text_may_be_named(tmp_path, tokenizer, asked):
    parquet(tmp_path / "a.parquet", SENTENCES)
    wanted = tokenizer.token_to_id("<|im_end|>")
    manifest = prepare(tmp_path, "--end-of-text", wanted if asked == "id" else asked, tmp_path / "a.parquet")
    assert manifest["tokenizer"]["end_of_text"] == wanted == tokens(tmp_path, manifest)[-1]


@pytest.mark.parametrize("token", ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"])
def test_end_of_text_is_found(tmp_path, token):
    made = qwen_like(tmp_path / "tokenizer.json", special=("<pad>", token))
    parquet(tmp_path / "a.parquet", SENTENCES[:2])
    assert prepare(tmp_path, tmp_path / "a.parquet")["tokenizer"]["end_of_text"] == made.token_to_id(token)


def test_vocabulary_covers_ids_with_holes(tmp_path, tokenizer):
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"][-1]["id"] += 1000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    parquet(tmp_path / "a.parquet", SENTENCES[:2])
    largest = max(tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab().values())
    assert prepare(tmp_path, tmp_path / "a.parquet")["tokenizer"]["vocabulary"] == largest + 1


# tests/data/random_test.cpp holds the same numbers.
def test_split_rule_is_golden():
    assert [draw(42, 0), draw(42, 1), draw(42, 2), draw(7, 1000000)] == [
        0x989B3F130A063869, 0x290DB4BF2570DED7, 0x2A990BE63A01B2D5, 0xBEF2599E0F5503CE]
    chosen = lambda seed: [i for i in range(40) if in_validation(seed, i, 0.2)]
    assert chosen(42) == [1, 2, 3, 7, 13, 14, 16, 18, 26, 29, 30, 32]
    assert chosen(43) == [1, 6, 9, 33, 34]
    assert not any(in_validation(42, i, 0.0) for i in range(100))


def test_split_is_by_document(tmp_path, tokenizer):
    jsonl(tmp_path / "a.jsonl", ["", *SENTENCES[:40]])  # the empty one has no number
    manifest = prepare(tmp_path, "--validation-fraction", 0.2, tmp_path / "a.jsonl")
    held = [tokenizer.encode(SENTENCES[i]).ids for i in range(40) if in_validation(42, i, 0.2)]
    assert documents(tokens(tmp_path, manifest, "validation"), manifest["tokenizer"]["end_of_text"]) == held
    assert manifest["train"]["documents"] == 40 - len(held)


def test_both_splits_get_a_document(tmp_path, tokenizer):
    for seed in range(4):
        for count in (1, 2):
            jsonl(tmp_path / "a.jsonl", SENTENCES[:count])
            manifest = prepare(tmp_path, "--seed", seed, "--validation-fraction", 0.5, tmp_path / "a.jsonl")
            assert (manifest["train"]["documents"], manifest["validation"]["documents"]) == (1, count - 1)


def test_formats_folders_and_column_agree(tmp_path, tokenizer):
    folder = tmp_path / "größe und mehr"
    (folder / "deep").mkdir(parents=True)
    jsonl(folder / "deep" / "a.jsonl.gz", SENTENCES[:20], "body")
    jsonl(folder / "m.jsonl", SENTENCES[20:30], "body")
    parquet(folder / "z.parquet", SENTENCES[30:], "body")
    (folder / "notes.txt").write_text("not a corpus file")
    parts = prepare(tmp_path, "--column", "body", f"{folder}/", out="parts")
    parquet(tmp_path / "whole.parquet", SENTENCES)
    whole = prepare(tmp_path, tmp_path / "whole.parquet", tmp_path / "whole.parquet", out="whole")
    assert parts["source_hash"] == whole["source_hash"]
    hashes = [[shard["hash"] for shard in manifest["train"]["shards"]] for manifest in (parts, whole)]
    assert hashes[0] == hashes[1] != []


def test_shards_are_filled_and_old_ones_removed(tmp_path, tokenizer):
    parquet(tmp_path / "a.parquet", SENTENCES)
    small = prepare(tmp_path, "--shard-tokens", 100, tmp_path / "a.parquet")
    sizes = [shard["tokens"] for shard in small["train"]["shards"]]
    assert len(sizes) > 3 and set(sizes[:-1]) == {100} and 0 < sizes[-1] <= 100
    before = tokens(tmp_path, small)
    one = prepare(tmp_path, f"--out={tmp_path}/out/set/", tmp_path / "a.parquet")
    assert tokens(tmp_path, one) == before
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "set.json", "set-00000.npy", "set-validation-00000.npy"}


def test_corpus_is_streamed(tmp_path):
    files = [jsonl(tmp_path / "a.jsonl", SENTENCES * 20), tmp_path / "missing.jsonl"]
    assert len(next(data.batches(files, "text"))) == data.BATCH_DOCUMENTS  # the second file is not touched yet


def test_module_prints_the_manifest_and_needs_no_torch(tmp_path, tokenizer):
    parquet(tmp_path / "a.parquet", SENTENCES)
    code = "import runpy, sys; runpy.run_module('mhar.data', run_name='__main__', alter_sys=True)"
    guard = f"import sys; sys.modules['torch'] = None; {code}"  # an import of torch would fail
    done = subprocess.run([sys.executable, "-c", guard, "--json", "--out", tmp_path / "out" / "set", "--tokenizer",
                           tmp_path / "tokenizer.json", tmp_path / "a.parquet"], cwd=REPOSITORY / "python",
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "set.json").read_text(encoding="utf-8"))


def test_version_is_the_programs():
    cmake = (REPOSITORY / "CMakeLists.txt").read_text()
    assert mhar.__version__ == re.search(r"project\(mhar VERSION ([0-9.]+)", cmake)[1]


def test_split_and_source_hash_are_those_of_mhar_data(tmp_path, tokenizer, mhar_program):
    (tmp_path / "text").mkdir()
    for i, text in enumerate(SENTENCES):
        (tmp_path / "text" / f"{i:03}.txt").write_bytes(text.encode())
    parquet(tmp_path / "a.parquet", SENTENCES)
    subprocess.run([mhar_program, "data", "--out", tmp_path / "bytes" / "set", "--validation-fraction", "0.2", "--seed",
                    "11", tmp_path / "text"], check=True, capture_output=True)
    theirs = json.loads((tmp_path / "bytes" / "set.json").read_text(encoding="utf-8"))
    ours = prepare(tmp_path, "--validation-fraction", 0.2, "--seed", 11, tmp_path / "a.parquet")
    assert ours.keys() == theirs.keys()
    assert ours["source_hash"] == theirs["source_hash"]
    for split in ("train", "validation"):
        assert ours[split].keys() == theirs[split].keys()
        for key in ("documents", "bytes"):
            assert ours[split][key] == theirs[split][key] > 0


def test_mhar_info_reads_the_set(tmp_path, tokenizer, mhar_program):
    parquet(tmp_path / "a.parquet", SENTENCES)
    manifest = prepare(tmp_path, "--vocabulary", 151936, tmp_path / "a.parquet")
    done = subprocess.run([mhar_program, "info", tmp_path / "out" / "set", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(manifest["train"]["tokens"]) in done.stdout
