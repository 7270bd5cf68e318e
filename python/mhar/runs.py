"""A run folder as `mhar train` leaves it: config.toml, metrics.jsonl, data.json, routing.json, sample.json."""

import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from mhar.errors import InputError
from mhar.units import perplexities

TAIL = 11  # validations in the reported mean (docs/method.md, section 10)


@dataclass
class Run:
    """Losses are in nats per token. `steps`, `validations` are the events in order of step, each step once: what a
    resumed run repeated replaces what it had written before it was killed."""

    folder: Path
    label: str
    config: dict
    starts: list[dict] = field(default_factory=list)
    steps: list[dict] = field(default_factory=list)
    validations: list[dict] = field(default_factory=list)
    done: dict | None = None
    unmoved: dict | None = None
    data: dict | None = None
    routing: dict | None = None
    sample: dict | None = None

    @property
    def planned(self) -> int | None:
        return self.config.get("steps")

    @property
    def last_step(self) -> int:
        return max([event["step"] for event in [*self.steps, *self.validations, self.done or {"step": 0}]])

    @property
    def finished(self) -> bool:
        return self.planned is None or self.last_step >= self.planned

    @property
    def tokens(self) -> int | None:
        """Training targets seen: as the trainer counted them at the end, else updates x sequences x tokens."""
        batch, length = self.config.get("global-batch"), self.config.get("sequence")
        planned = self.last_step * batch * length if batch and length else None
        return _first((self.done or {}).get("tokens"), planned)

    @property
    def train_loss(self) -> float | None:
        return _first((self.done or {}).get("train_loss"), self.steps[-1].get("loss") if self.steps else None)

    @property
    def validation_loss(self) -> float | None:
        last = self.validations[-1].get("loss") if self.validations else None
        return _first((self.done or {}).get("validation_loss"), last)

    @property
    def tail(self) -> tuple[float | None, int]:
        """Mean of the last eleven validations, and how many there were for it."""
        losses = [event["loss"] for event in self.validations[-TAIL:] if event.get("loss") is not None]
        mean = math.fsum(losses) / len(losses) if losses else None
        return _first((self.done or {}).get("validation_tail_mean"), mean), len(losses)

    @property
    def bits_per_byte(self) -> float | None:
        """Of the validation text: as the trainer logged it, else from the loss and the split's tokens and bytes."""
        logged = self.validations[-1].get("bits_per_byte") if self.validations else None
        split = (self.data or {}).get("validation") or {}
        if logged is not None or self.validation_loss is None or not (split.get("tokens") and split.get("bytes")):
            return logged
        nats = self.validation_loss * split["tokens"]
        return perplexities(nats, split["tokens"], text_bytes=split["bytes"]).bits_per_byte

    @property
    def unigram(self) -> float | None:
        """Entropy of the text's token frequencies, bits per byte."""
        return (self.data or {}).get("unigram_bits_per_byte")

    @property
    def tokens_per_s(self) -> float | None:
        speeds = [event["tokens_per_s"] for event in self.steps if event.get("tokens_per_s")]
        # A finished run that was started once more made no update, and its last line says 0.
        return _first((self.done or {}).get("tokens_per_s") or None, median(speeds) if speeds else None)

    @property
    def data_hash(self) -> str | None:
        """Of every data set the run trained on, in order; more than one when it was resumed with fresh data."""
        hashes = list(dict.fromkeys(start["data_hash"] for start in self.starts if start.get("data_hash")))
        return " then ".join(hashes) if hashes else (self.data or {}).get("source_hash")


def read_run(folder: Path, label: str | None = None) -> Run:
    """Throws InputError for a folder that is missing or is no run, and for files in it that cannot be understood."""
    folder = Path(folder)
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing there"
        raise InputError("read run", folder, "a run folder", got, "give the folder that mhar train --run wrote")
    if not (folder / "config.toml").is_file():
        raise InputError("read run", folder, "a run folder with config.toml", "none",
                         "give the folder that mhar train --run wrote")
    run = Run(folder, label or folder.resolve().name, _read_config(folder / "config.toml"))
    _read_metrics(run, folder / "metrics.jsonl")
    run.data = _read_json(folder / "data.json")
    run.routing = _read_json(folder / "routing.json")
    run.sample = _read_json(folder / "sample.json")
    if run.routing is not None:
        _check_routing(run.routing, folder / "routing.json")
    return run


def read_runs(folders: list[Path]) -> list[Run]:
    """The runs under labels that tell them apart: the folder's name, with as many parents as that takes."""
    paths = [Path(folder).resolve() for folder in folders]
    for place, path in enumerate(paths):
        if path in paths[:place]:
            raise InputError("read run", folders[place], "every run folder once", "the same folder twice",
                             "leave one of them out")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [read_run(folder, "/".join(path.parts[-depth:])) for folder, path in zip(folders, paths)]


def _first(*values):
    return next((value for value in values if value is not None), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError("read run", path, "a readable file", error.strerror or str(error),
                         "check the path and its permissions") from error


def _read_config(path: Path) -> dict:
    try:
        config = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError("read run", path, "name = value lines (TOML)", f"a broken file ({error})",
                         "take the config.toml that the run wrote") from error
    for name in ("steps", "warm-up", "seed", "sequence", "global-batch"):
        if name in config and (not isinstance(config[name], int) or isinstance(config[name], bool)):
            raise InputError("read run", path, f"a whole number for {name}", repr(config[name]),
                             "take the config.toml that the run wrote")
    if "design" not in config or "steps" not in config:
        missing = "design" if "design" not in config else "steps"
        raise InputError("read run", path, "all options of a run", f"a file without {missing}",
                         "take the config.toml that the run wrote, not the one it was started with")
    return config


def _read_json(path: Path) -> dict | None:
    if not path.exists():
        return None
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise InputError("read run", path, "one JSON object", f"a broken file ({error})",
                         "write the file again or remove it") from error
    if not isinstance(value, dict):
        raise InputError("read run", path, "one JSON object", f"a {type(value).__name__}",
                         "write the file again or remove it")
    return value


def _read_metrics(run: Run, path: Path) -> None:
    if not path.is_file():
        raise InputError("read run", run.folder, "a run folder with metrics.jsonl", "none",
                         "wait for the run's first update or give another folder")
    steps: dict[int, dict] = {}
    validations: dict[int, dict] = {}
    lines = _text(path).splitlines()
    for number, line in enumerate(lines, 1):
        event = _event(line, path, number, last=number == len(lines))
        kind, step = (event or {}).get("event"), (event or {}).get("step")
        if kind == "start":
            run.starts.append({**event, "line": number})
            for table in (steps, validations):
                for stale in [key for key in table if key > (step or 0)]:
                    del table[stale]
            run.done = None
        elif kind == "step" and step is not None:
            steps[step] = event
        elif kind == "validation" and step is not None:
            validations[step] = event
        elif kind == "unmoved":
            run.unmoved = event
        elif kind == "done" and step is not None:
            run.done = event
    if not steps and not validations:
        raise InputError("read run", path, "at least one step or validation", f"none in {len(lines)} lines",
                         "wait for the run's first update or give another folder")
    run.steps = [steps[key] for key in sorted(steps)]
    run.validations = [validations[key] for key in sorted(validations)]


def _event(line: str, path: Path, number: int, last: bool) -> dict | None:
    """None for an empty line and for a last line that a kill cut short."""
    if not line.strip():
        return None
    try:
        event = json.loads(line)
        fault = None if isinstance(event, dict) else f"a {type(event).__name__}"
        step = event.get("step", 0) if isinstance(event, dict) else 0
        if fault is None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
            fault = f"step {step!r}"
    except ValueError:
        fault = "a broken line"
    if fault is None:
        return event
    if last and fault == "a broken line":
        return None
    raise InputError("read run", path, f"one JSON event in line {number}", fault,
                     "remove the line, or take the file that the run wrote")


def _check_routing(routing: dict, path: Path) -> None:
    """Every head of a site has that site's number of sources; sites may differ in heads."""
    sites = routing.get("sites")
    fault = None if isinstance(sites, list) and sites else "no sites"
    for site in sites if fault is None else []:
        weights = site.get("weights") if isinstance(site, dict) else None
        if not isinstance(weights, list) or not weights or not all(isinstance(row, list) and row for row in weights):
            fault = f"no weights at site {site.get('site') if isinstance(site, dict) else site!r}"
        elif len({len(row) for row in weights}) > 1:
            fault = f"heads of unlike numbers of sources at site {site.get('site')}"
        elif not all(isinstance(value, (int, float)) for row in weights for value in row):
            fault = f"a weight that is no number at site {site.get('site')}"
        if fault:
            break
    if fault:
        raise InputError("read run", path, "routing weights as sites x heads x sources", fault,
                         "write the file again or remove it")
