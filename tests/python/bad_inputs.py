"""The table of test_bad_input.py: what is damaged, what is typed, and what the message must say."""

import json
import shutil
from pathlib import Path

from program import SMALL, checkpoint, copy


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

    def unlist(self):
        """Takes the list of sizes away, so that the reader of the damaged file itself has to notice."""
        (self.checkpoint / "files.json").unlink()

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


STATE = '{"format": "mhar-state", "version": 1, "options": {}}'

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
    "manifest newer": (lambda p: edit(p.manifest, version=9), lambda p: p.train(),
                       ['"version"', "wanted", "version 9"]),
    "data a folder": (None, lambda p: p.train("--data", p.data.parent), ["data.json", "No such file"]),
    "vocabulary too small": (None, lambda p: p.train("--vocabulary", 100), ["vocabulary of 100", "--vocabulary"]),
    "corpus below a window": (None, lambda p: p.train("--sequence", 9000), ["window", "--sequence"]),
    "corpus below a batch": (None, lambda p: p.train("--global-batch", 4000), ["batch of 4000", "--global-batch"]),
    # checkpoints
    "checkpoint missing": (None, lambda p: ["eval", "--checkpoint", p.root / "none", "--data", p.data],
                           ["none: wanted a folder", "nothing there"]),
    "checkpoint a file": (None, lambda p: ["eval", "--checkpoint", p.toml, "--data", p.data],
                          ["config.toml", "wanted a folder"]),
    "model truncated": (lambda p: cut(p.model, 3000), lambda p: p.eval(), ["model.safetensors", "3000"]),
    "model missing": (lambda p: p.model.unlink(), lambda p: p.eval(), ["model.safetensors"]),
    "model foreign": (lambda p: [p.unlist(), text(p.model, "x" * 500)], lambda p: p.eval(), ["model.safetensors"]),
    "model of another kind": (lambda p: [p.unlist(), edit(p.checkpoint / "config.json", hidden_size=64)],
                              lambda p: p.eval(), ["model.embed_tokens.weight", "[257, 64]", "[257, 32]"]),
    "config.json broken": (lambda p: [p.unlist(), cut(p.checkpoint / "config.json", 40)], lambda p: p.eval(),
                           ["config.json", "wanted a JSON object"]),
    "unknown mode": (lambda p: [p.unlist(), edit(p.checkpoint / "config.json", attnres_mode="ful")],
                     lambda p: p.eval(), ["attnres_mode", "'ful'", "did you mean 'full'"]),
    "state of another version": (lambda p: [p.unlist(), edit(p.checkpoint / "state.json", version=9)],
                                 lambda p: p.train("--resume", p.checkpoint), ["state.json", "version 9"]),
    "state without a field": (lambda p: [p.unlist(), text(p.checkpoint / "state.json", STATE)],
                              lambda p: p.train("--resume", p.checkpoint), ["state.json", "'step'"]),
    "optimizer missing": (lambda p: [p.unlist(), (p.checkpoint / "optimizer.safetensors").unlink()],
                          lambda p: p.train("--resume", p.checkpoint, "--steps", 12), ["optimizer.safetensors"]),
    "every checkpoint damaged": (lambda p: [cut(f, 100) for f in p.run.glob("checkpoints/*/model.safetensors")],
                                 lambda p: p.train("--run", p.run, "--steps", 12, "--resume", "auto"),
                                 ["only damaged ones", "step-00000012", "model.safetensors"]),
    "info of nothing": (None, lambda p: ["info", p.root / "nowhere"], ["nowhere", "nothing there"]),
    "info of a foreign folder": (None, lambda p: ["info", p.data.parent], ["wanted a checkpoint, a run folder"]),
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
    "heads that do not divide": (None, lambda p: p.train("--heads", 3),
                                 ["--heads: wanted a divisor of --width 32, got 3"]),
    "key heads that do not divide": (None, lambda p: p.train("--kv-heads", 3), ["--kv-heads", "--heads 2", "got 3"]),
    "routing heads that do not divide": (None, lambda p: p.train("--routing-heads", 3),
                                         ["--routing-heads", "--width 32", "3"]),
    "batch that does not divide": (None, lambda p: p.train("--microbatch", 3),
                                   ["--microbatch", "--global-batch 4", "3"]),
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
    "run folder exists": (None, lambda p: p.train("--run", p.run),
                          ["run: wanted a new or empty folder", "--resume auto"]),
    "run not in UTF-8": (None, lambda p: p.train("--run", str(p.new) + "\udcff"), ["--run", "UTF-8"]),
    "run below a file": (None, lambda p: p.train("--run", p.toml / "run"), ["config.toml"]),
    # evaluating and sampling
    "negative windows": (None, lambda p: p.eval("--windows", -1),
                         ["--windows: wanted a whole number of at least 0, got '-1'"]),
    "zero batch": (None, lambda p: p.eval("--batch", 0), ["--batch: wanted a whole number of at least 1, got '0'"]),
    "threads without end": (None, lambda p: p.eval("--threads", 10**6), ["--threads: wanted", "at most 1024"]),
    "window without end": (None, lambda p: p.eval("--sequence", 2**63 - 1),
                           ["--sequence: wanted", "at most 2147483647"]),
    "unknown split": (None, lambda p: p.eval("--split", "test"),
                      ["--split: wanted one of train, validation, got 'test'"]),
    "logits into nowhere": (None, lambda p: p.eval("--windows", 2, "--logits", p.root / "no" / "l.npy"),
                            ["l.npy", "No such file"]),
    "empty prompt": (None, lambda p: p.generate("--prompt", ""),
                     ["--prompt: wanted at least one token, got an empty prompt"]),
    "no prompt": (None, lambda p: p.generate(), ["--prompt", "an empty prompt"]),
    "two prompts": (None, lambda p: p.generate("--prompt", "a", "--prompt-tokens", "1"), ["--prompt"]),
    "token outside the vocabulary": (None, lambda p: p.generate("--prompt-tokens", "1,257"), ["0 to 256", "got 257"]),
    "token not a number": (None, lambda p: p.generate("--prompt-tokens", "1,x"), ["--prompt-tokens"]),
    "negative tokens": (None, lambda p: p.generate("--prompt", "a", "--tokens", -1), ["--tokens: wanted", "got '-1'"]),
    "temperature NaN": (None, lambda p: p.generate("--prompt", "a", "--temperature", "nan"),
                        ["--temperature: wanted", "'nan'"]),
    # preparing
    "text missing": (None, lambda p: ["data", "--out", p.root / "new", p.root / "no.txt"], ["no.txt", "No such file"]),
    "no text": (lambda p: (p.root / "nothing").mkdir(), lambda p: ["data", "--out", p.root / "new", p.root / "nothing"],
                ["wanted at least one file with text", "0 files"]),
    "binary text": (None, lambda p: ["data", "--out", p.root / "new", p.shard], ["wanted at least one file with text"]),
    "fraction NaN": (None, lambda p: ["data", "--out", p.root / "new", "--validation-fraction", "nan", p.toml],
                     ["--validation-fraction", "below 1", "nan"]),
    "fraction one": (None, lambda p: ["data", "--out", p.root / "new", "--validation-fraction", 1, p.toml],
                     ["--validation-fraction", "below 1", "1"]),
    "output below a file": (None, lambda p: ["data", "--out", p.toml / "new", p.manifest], ["config.toml"]),
}
