"""Run folders as `mhar train` writes them, made up: losses fall along a formula, so every expected number is known."""

import json
import math
from pathlib import Path

OPTIONS = {
    "scale": "tiny", "design": "standard", "vocabulary": 257, "width": 128, "layers": 4, "heads": 4, "kv-heads": 2,
    "head-dim": 32, "ffn": 384, "routing-heads": 2, "tied": True, "qk-norm": True, "rope-theta": 1e4, "norm-eps": 1e-6,
    "data": "data/text", "sequence": 256, "microbatch": 8, "global-batch": 8, "accumulate": 1,
    "validation-windows": 256, "seed": 42, "steps": 600, "warm-up": 60, "rate": 1e-3, "rate-floor": 0.1, "beta1": 0.9,
    "beta2": 0.95, "adam-eps": 1e-8, "weight-decay": 0.1, "clip": 1.0, "z-loss": 0.0, "precision": "fp32",
    "rounding": "stochastic", "moments": "parameters", "run": "", "device": "auto", "threads": 2, "validate-every": 50,
    "save-every": 300, "keep-last": 3, "keep-every": 0, "log-every": 5, "resume": "never", "fresh-data": False,
    "stop-after": 0,
}
UNIGRAM = 4.6
TOKENS_PER_BYTE = 1.0005


def rate(config: dict, update: int) -> float:
    steps, warm, floor = config["steps"], config["warm-up"], config["rate-floor"]
    if update <= warm:
        return config["rate"] * update / warm
    return config["rate"] * (floor + (1 - floor) * (1 + math.cos(math.pi * (update - warm) / (steps - warm))) / 2)


def loss(update: int, gain: float) -> float:
    return 1.3 + 4.25 * math.exp(-((update / 60) ** 0.7)) - gain * update / (update + 100)


def start(step: int = 0, **fields) -> dict:
    return {"event": "start", "step": step, "version": "0.1.0", "device": "cpu", "threads": 2, "parameters": 818000,
            "data_hash": "0123abcd", "attention": "flash (head dim 32)", **fields}


def step_event(config: dict, update: int, gain: float) -> dict:
    ripple = 0.05 * math.sin(update * 1.7)
    return {"event": "step", "step": update, "loss": loss(update, gain) + ripple, "rate": rate(config, update),
            "gradient_norm": 1.0, "tokens": 2048, "tokens_per_s": 20000.0, "seconds": 0.1}


def validation_event(update: int, gain: float) -> dict:
    value = loss(update, gain)
    return {"event": "validation", "step": update, "loss": value, "tokens": 65536,
            "bits_per_byte": value / math.log(2) * TOKENS_PER_BYTE}


def events(config: dict, gain: float, first: int = 0, last: int | None = None) -> list[dict]:
    """Steps and validations after update `first` up to `last`; the validation at update 0 too when first is 0."""
    result = [validation_event(0, gain)] if first == 0 else []
    for update in range(first + 1, (last or config["steps"]) + 1):
        if update % config["log-every"] == 0:
            result.append(step_event(config, update, gain))
        if update % config["validate-every"] == 0:
            result.append(validation_event(update, gain))
    return result


def done(config: dict, gain: float) -> dict:
    return {"event": "done", "step": config["steps"], "train_loss": loss(config["steps"], gain) + 0.01,
            "validation_loss": loss(config["steps"], gain), "validation_tail_mean": 1.5,
            "tokens_per_s": 20500.0, "checkpoint": "checkpoints/step-00000600"}


def toml(config: dict) -> str:
    def value(item) -> str:
        return json.dumps(item)
    return "".join(f"{name} = {value(item)}\n" for name, item in config.items())


def routing(layers: int, heads: int) -> dict:
    sites = []
    for site in range(2 * layers + 1):
        part = "attention" if site % 2 == 0 else "mlp"
        weights = []
        for head in range(heads):
            raw = [math.exp(0.9 * math.cos(source * (head + 1) + site)) for source in range(site + 1)]
            weights.append([item / sum(raw) for item in raw])
        name = f"layer {site // 2} {part}" if site < 2 * layers else "final"
        sites.append({"site": site, "name": name, "weights": weights})
    return {"design": "mhar", "step": 600, "sites": sites, "heads": heads, "windows": 8, "tokens": 2048}


DATA = {
    "tokenizer": {"kind": "bytes", "name": "bytes", "hash": "", "vocabulary": 257, "end_of_text": 256}, "seed": 42,
    "validation_fraction": 0.05, "unigram_bits_per_byte": UNIGRAM, "source_hash": "feed",
    "train": {"shards": [], "tokens": 1000500, "documents": 500, "bytes": 1000000},
    "validation": {"shards": [], "tokens": 100050, "documents": 50, "bytes": 100000},
}


def write_metrics(folder: Path, lines: list) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def make_run(folder: Path, gain: float = 0.0, lines: list | None = None, with_routing: bool = False,
             sample: str | None = None, **options) -> Path:
    """`options` are config.toml's, with underscores; `lines` replaces the metrics."""
    folder.mkdir(parents=True)
    config = OPTIONS | {"run": str(folder)} | {name.replace("_", "-"): item for name, item in options.items()}
    (folder / "config.toml").write_text(toml(config))
    write_metrics(folder, lines if lines is not None else [start(), *events(config, gain), done(config, gain)])
    (folder / "data.json").write_text(json.dumps(DATA))
    if with_routing:
        (folder / "routing.json").write_text(json.dumps(routing(config["layers"], config["routing-heads"])))
    if sample is not None:
        (folder / "sample.json").write_text(json.dumps({"event": "sample", "prompt": "def ", "text": sample,
                                                        "tokens": len(sample), "seed": 1}))
    return folder
