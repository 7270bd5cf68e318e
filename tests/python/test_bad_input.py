"""Bad input of every kind: exit code 2, one message that says what, where, wanted, got and what to do, and nothing lost."""

import json
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from program import SMALL, checkpoint, copy, is_root, saved_steps, snapshot, write_corpus


class Place:
    """A private copy of a finished run and its shards that a case may damage, and the paths that cases name."""

    def __init__(self, root: Path, shards: Path, run: Path):
        self.root, self.data = root, root / "data" / "text"
        self.data.parent.mkdir(parents=True)
        for path in shards.parent.glob("text*"):
            shutil.copy(path, self.data.parent)
        self.run = copy(run, root / "run")
        self.checkpoint = checkpoint(self.run, 12)
        self.shard, self.manifest = self.data.with_name("text-00000.npy"), self.data.with_name("text.json")
        self.model = self.checkpoint / "model.safetensors"
        self.new = root / "new"
        self.toml = root / "config.toml"
        self.toml.write_text("steps = 4\n")

    def train(self, *more):
        options = SMALL | {"steps": 4}
        given = {word[2:] for word in map(str, more) if word.startswith("--")}
        words = [w for name, value in options.items() if name not in given for w in (f"--{name}", value)]
        return ["train", "--data", self.data, "--run", self.new, *words, *more]

    def eval(self, *more):
        return ["eval", "--checkpoint", self.checkpoint, "--data", self.data, "--threads", 1, *more]

    def generate(self, *more):
        return ["generate", "--checkpoint", self.checkpoint, "--threads", 1, *more]


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def text(path: Path, content: str) -> None:
    path.write_text(content)


def edit(path: Path, **keys) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def wider_token(path: Path) -> None:
    """A shard whose first token is 300, with the hash to match left out: the hash is what is reported."""
    content = bytearray(path.read_bytes())
    content[128:130] = (300).to_bytes(2, "little")
    path.write_bytes(content)


# name: (damage or None, arguments, words of the message)
CASES = {
    # shards and manifests
    "shard missing": (lambda p: p.shard.unlink(), lambda p: p.train(), ["text-00000.npy", "no such file"]),
    "shard truncated": (lambda p: cut(p.shard, 5000), lambda p: p.train(), ["text-00000.npy"]),
    "shard cut in its header": (lambda p: cut(p.shard, 20), lambda p: p.train(), ["text-00000.npy"]),
    "shard empty": (lambda p: cut(p.shard, 0), lambda p: p.train(), ["text-00000.npy"]),
    "shard foreign": (lambda p: text(p.shard, "no tokens here, only prose"), lambda p: p.train(), ["text-00000.npy"]),
    "shard changed": (lambda p: wider_token(p.shard), lambda p: p.train(), ["text-00000.npy", "hash"]),
    "shard a folder": (lambda p: folder_instead(p.shard), lambda p: p.train(), ["text-00000.npy", "a folder"]),
    "manifest missing": (lambda p: p.manifest.unlink(), lambda p: p.train(), ["text.json", "No such file"]),
    "manifest truncated": (lambda p: cut(p.manifest, 100), lambda p: p.eval(), ["text.json", "wanted JSON"]),
    "manifest foreign": (lambda p: text(p.manifest, "{}"), lambda p: p.train(), ['"format"', "mhar-tokens"]),
    "manifest newer": (lambda p: edit(p.manifest, version=9), lambda p: p.train(), ['"version"', "wanted", "version 9"]),
    "data a folder": (None, lambda p: p.train("--data", p.data.parent), ["data.json", "No such file"]),
    "vocabulary too small": (None, lambda p: p.train("--vocabulary", 100), ["vocabulary of 100", "--vocabulary"]),
    "corpus below a window": (None, lambda p: p.train("--sequence", 9000), ["window", "--sequence"]),
    "corpus below a batch": (None, lambda p: p.train("--global-batch", 4000), ["batch of 4000", "--global-batch"]),
    # checkpoints
    "checkpoint missing": (None, lambda p: ["eval", "--checkpoint", p.root / "none", "--data", p.data], ["none: wanted a folder",
                           "nothing there"]),
    "checkpoint a file": (None, lambda p: ["eval", "--checkpoint", p.toml, "--data", p.data], ["config.toml", "wanted a folder"]),
    "model truncated": (lambda p: cut(p.model, 3000), lambda p: p.eval(), ["model.safetensors", "3000"]),
    "model missing": (lambda p: p.model.unlink(), lambda p: p.eval(), ["model.safetensors"]),
    "model foreign": (lambda p: [(p.checkpoint / "files.json").unlink(), text(p.model, "x" * 500)], lambda p: p.eval(),
                      ["model.safetensors"]),
    "model of another kind": (lambda p: [(p.checkpoint / "files.json").unlink(), edit(p.checkpoint / "config.json",
                              hidden_size=64)], lambda p: p.eval(), ["model.embed_tokens.weight", "[257, 64]", "[257, 32]"]),
    "config.json broken": (lambda p: [(p.checkpoint / "files.json").unlink(), cut(p.checkpoint / "config.json", 40)],
                           lambda p: p.eval(), ["config.json", "wanted a JSON object"]),
    "unknown mode": (lambda p: [(p.checkpoint / "files.json").unlink(), edit(p.checkpoint / "config.json",
                     attnres_mode="ful")], lambda p: p.eval(), ["attnres_mode", "'ful'", "did you mean 'full'"]),
    "state of another version": (lambda p: [(p.checkpoint / "files.json").unlink(), edit(p.checkpoint / "state.json",
                                 version=9)], lambda p: p.train("--resume", p.checkpoint), ["state.json", "version 9"]),
    "optimizer missing": (lambda p: [(p.checkpoint / "files.json").unlink(), (p.checkpoint / "optimizer.safetensors").unlink()],
                          lambda p: p.train("--resume", p.checkpoint, "--steps", 12), ["optimizer.safetensors"]),
    "every checkpoint damaged": (lambda p: [cut(f, 100) for f in p.run.glob("checkpoints/*/model.safetensors")],
                                 lambda p: p.train("--run", p.run, "--steps", 12, "--resume", "auto"),
                                 ["only damaged ones", "step-00000012", "model.safetensors"]),
    "info of nothing": (None, lambda p: ["info", p.root / "nowhere"], ["nowhere", "nothing there"]),
    "info of a foreign folder": (None, lambda p: ["info", p.root], ["wanted a checkpoint, a run folder"]),
    # configuration
    "config missing": (None, lambda p: p.train("--config", p.root / "no.toml"), ["no.toml", "No such file"]),
    "config a folder": (None, lambda p: p.train("--config", p.root), ["Is a directory", "name a file, not a folder"]),
    "config broken": (lambda p: text(p.toml, "steps = 4\nrate 0.1\n"), lambda p: p.train("--config", p.toml),
                      ["config.toml:2", "no equals sign"]),
    "config key": (lambda p: text(p.toml, "\nstpes = 4\n"), lambda p: p.train("--config", p.toml),
                   ["config.toml:2: stpes", "did you mean steps"]),
    "config type": (lambda p: text(p.toml, 'steps = "4"\n'), lambda p: p.train("--config", p.toml),
                    ["config.toml:1: steps", "wanted a whole number, got a text"]),
    "config truncated": (lambda p: text(p.toml, 'data = "da'), lambda p: p.train("--config", p.toml),
                         ["config.toml:1", "closing quote"]),
    # options
    "no command": (None, lambda p: [], ["a command: data, train", "none"]),
    "unknown command": (None, lambda p: ["trian"], ["'trian'", "did you mean train"]),
    "unknown option": (None, lambda p: p.train("--step", 4), ["--step", "did you mean --steps"]),
    "unknown word": (None, lambda p: p.train("more"), ["more", "an argument of mhar train"]),
    "option without its value": (None, lambda p: p.eval("--windows"), ["--windows", "mhar eval --help"]),
    "option left out": (None, lambda p: ["eval", "--data", p.data], ["--checkpoint", "required"]),
    "no data": (None, lambda p: ["train", "--run", p.new], ["--data", "add --data PATH"]),
    "no run": (None, lambda p: ["train", "--data", p.data], ["--run", "add --run PATH"]),
    "zero steps": (None, lambda p: p.train("--steps", 0), ["--steps: wanted a whole number from 1", "got 0"]),
    "negative steps": (None, lambda p: p.train("--steps", -5), ["--steps: wanted", "got -5"]),
    "steps not a number": (None, lambda p: p.train("--steps", "many"), ["--steps: wanted a whole number, got 'many'"]),
    "warm-up above steps": (None, lambda p: p.train("--warm-up", 5), ["--warm-up: wanted 0 to --steps 4", "got 5"]),
    "heads that do not divide": (None, lambda p: p.train("--heads", 3), ["--heads: wanted a divisor of --width 32, got 3"]),
    "key heads that do not divide": (None, lambda p: p.train("--kv-heads", 3), ["--kv-heads", "--heads 2", "got 3"]),
    "routing heads that do not divide": (None, lambda p: p.train("--routing-heads", 3), ["--routing-heads", "--width 32", "3"]),
    "batch that does not divide": (None, lambda p: p.train("--microbatch", 3), ["--microbatch", "--global-batch 4", "3"]),
    "rate NaN": (None, lambda p: p.train("--rate", "nan"), ["--rate: wanted a finite number, got 'nan'"]),
    "rate negative": (None, lambda p: p.train("--rate", -1), ["--rate: wanted a finite number above 0, got -1"]),
    "negative threads": (None, lambda p: p.train("--threads", -1), ["--threads", "got -1"]),
    "negative seed": (None, lambda p: p.train("--seed", -1), ["--seed", "got -1"]),
    "number too large": (None, lambda p: p.train("--steps", 10**30), ["--steps", "within range"]),
    "model too large": (None, lambda p: p.train("--width", 2**30, "--ffn", 2**30), ["parameters", "--width"]),
    "unknown design": (None, lambda p: p.train("--design", "mhra"), ["--design", "did you mean 'mhar'"]),
    "unknown scale": (None, lambda p: p.train("--scale", "2b"), ["--scale", "100m", "'2b'"]),
    "unknown precision": (None, lambda p: p.train("--precision", "fp16"), ["--precision", "bf16, fp32", "'fp16'"]),
    "unknown device": (None, lambda p: p.train("--device", "tpu"), ["--device", "'tpu'"]),
    "device not there": (None, lambda p: p.train("--device", "cuda:77"), ["--device", "--device cpu"]),
    "run folder exists": (None, lambda p: p.train("--run", p.run), ["run: wanted a new or empty folder", "--resume auto"]),
    "run below a file": (None, lambda p: p.train("--run", p.toml / "run"), ["config.toml"]),
    # evaluating and sampling
    "negative windows": (None, lambda p: p.eval("--windows", -1), ["--windows: wanted a whole number of at least 0, got '-1'"]),
    "zero batch": (None, lambda p: p.eval("--batch", 0), ["--batch: wanted a whole number of at least 1, got '0'"]),
    "unknown split": (None, lambda p: p.eval("--split", "test"), ["--split: wanted one of train, validation, got 'test'"]),
    "logits into nowhere": (None, lambda p: p.eval("--windows", 2, "--logits", p.root / "no" / "l.npy"), ["l.npy", "No such file"]),
    "empty prompt": (None, lambda p: p.generate("--prompt", ""), ["--prompt: wanted at least one token, got an empty prompt"]),
    "no prompt": (None, lambda p: p.generate(), ["--prompt", "an empty prompt"]),
    "two prompts": (None, lambda p: p.generate("--prompt", "a", "--prompt-tokens", "1"), ["--prompt"]),
    "token outside the vocabulary": (None, lambda p: p.generate("--prompt-tokens", "1,257"), ["0 to 256", "got 257"]),
    "token not a number": (None, lambda p: p.generate("--prompt-tokens", "1,x"), ["--prompt-tokens"]),
    "negative tokens": (None, lambda p: p.generate("--prompt", "a", "--tokens", -1), ["--tokens: wanted", "got '-1'"]),
    "temperature NaN": (None, lambda p: p.generate("--prompt", "a", "--temperature", "nan"), ["--temperature: wanted", "'nan'"]),
    # preparing
    "text missing": (None, lambda p: ["data", "--out", p.root / "new", p.root / "no.txt"], ["no.txt", "No such file"]),
    "text empty": (None, lambda p: ["data", "--out", p.root / "new", p.new], ["No such file"]),
    "fraction NaN": (None, lambda p: ["data", "--out", p.root / "new", "--validation-fraction", "nan", p.toml],
                     ["--validation-fraction", "below 1", "nan"]),
    "fraction one": (None, lambda p: ["data", "--out", p.root / "new", "--validation-fraction", 1, p.toml],
                     ["--validation-fraction", "below 1", "1"]),
    "output below a file": (None, lambda p: ["data", "--out", p.toml / "new", p.manifest], ["config.toml"]),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(mhar, shards, trained, tmp_path, case):
    place = Place(tmp_path, shards, trained("mhar"))
    damage, arguments, words = CASES[case]
    if damage is not None:
        damage(place)
    before = snapshot(tmp_path)
    done = mhar(*arguments(place), code=2)
    assert done.out == "" and all(str(word) in done.message for word in words), done.message
    assert len(done.err.splitlines()) == 1, done.err
    assert "; " in done.message, "says what to do"
    assert snapshot(tmp_path) == before, "nothing lost, nothing left behind"
    assert not place.new.exists()


def test_cuda_that_is_not_there(mhar, shards, tmp_path):
    if json.loads(mhar("info", "--json").out)["cuda_devices"] > 0:
        pytest.skip("this machine has a CUDA device")
    message = mhar.train(shards, tmp_path / "run", device="cuda", code=2).message
    assert "option --device: wanted" in message and "--device cpu" in message and not (tmp_path / "run").exists()


def test_unreadable_folder(mhar, tmp_path):
    if is_root():
        pytest.skip("root reads every folder (tests/base has this as another user)")
    closed = write_corpus(tmp_path / "closed")
    closed.chmod(0)
    message = mhar("data", "--out", tmp_path / "new", closed, code=2).message
    closed.chmod(0o755)
    assert str(closed) in message and "Permission denied" in message


def limit_file_size(bytes_: int):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))


def test_file_size_limit_at_a_save(mhar, shards, tmp_path):
    """The optimizer's file, twice the model's, is the first that does not fit: step 4 is whole, step 8 never appears."""
    run, plan = tmp_path / "run", {"steps": 12, "save_every": 4, "validate_every": 100}
    mhar.train(shards, run, stop_after=4, code=3, **plan)
    before = snapshot(run / "checkpoints")
    size = (checkpoint(run, 4) / "model.safetensors").stat().st_size
    message = mhar.train(shards, run, resume="auto", code=2, before=limit_file_size(size + 4096), **plan).message
    assert "optimizer.safetensors" in message and "File too large" in message and "ulimit -f" in message
    assert snapshot(run / "checkpoints") == before and not list((run / "checkpoints").glob(".*"))
    mhar.train(shards, run, resume="auto", **plan)
    assert saved_steps(run) == [4, 8, 12]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes, where the tests may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if not is_root() or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs rights that are not there")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk(mhar, shards, small_disk, tmp_path):
    run = small_disk / "run"
    message = mhar.train(shards, run, steps=40, save_every=1, keep_last=30, code=2).message
    assert "No space left on device" in message and "free space" in message and str(run) in message
    steps = saved_steps(run)
    assert steps == list(range(1, len(steps) + 1)) and not list((run / "checkpoints").glob(".tmp-*"))
    mhar("eval", "--checkpoint", checkpoint(run, steps[-1]), "--data", shards, "--threads", 1)
    shutil.rmtree(checkpoint(run, 1))
    shutil.rmtree(checkpoint(run, 2))
    mhar.train(shards, run, steps=40, save_every=1, keep_last=1, resume="auto")
    mhar.train(shards, tmp_path / "whole", steps=40)
    assert snapshot(checkpoint(run, 40))["model.safetensors"] == snapshot(checkpoint(tmp_path / "whole", 40))["model.safetensors"]


def test_full_disk_while_preparing(mhar, small_disk, tmp_path):
    source = write_corpus(tmp_path / "source", documents=20)
    mhar("data", "--out", small_disk / "text", source)
    before = snapshot(small_disk)
    large = write_corpus(tmp_path / "large", documents=20, words=30000)
    message = mhar("data", "--out", small_disk / "text", large, code=2).message
    assert "No space left on device" in message and snapshot(small_disk) == before
