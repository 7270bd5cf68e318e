"""The words and numbers of a report: its two sentences, the final table, the settings."""

from mhar.runs import TAIL, Run
from mhar.units import BITS, LOSS, PER_TOKEN, exponential

LOSS_ROW = f"validation loss ({LOSS})"
TAIL_ROW = f"mean of the last {TAIL} validations ({LOSS})"
NOTHING = "–"


def number(value, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def ratio(run: Run) -> float | None:
    """Bits per byte over the text's unigram entropy."""
    return run.bits_per_byte / run.unigram if run.bits_per_byte is not None and run.unigram else None


def final_rows(runs: list[Run], paired: bool) -> list[tuple[str, list[str]]]:
    """(quantity with its unit, one cell per run)."""
    first = runs[0].validation_loss

    def row(name: str, cell) -> tuple[str, list[str]]:
        return name, [cell(run) for run in runs]

    rows = [
        row("design", lambda run: str(run.config["design"])),
        row("parameters (count)", lambda run: number(_started(run, "parameters"), ",")),
        row("steps (updates)", lambda run: f"{run.last_step:,}" + ("" if run.finished else f" of {run.planned:,}")),
        row("tokens trained on (count)", lambda run: number(run.tokens, ",")),
        row(f"train loss ({LOSS})", lambda run: number(run.train_loss, ".4f")),
        row(LOSS_ROW, lambda run: number(run.validation_loss, ".4f")),
        row(TAIL_ROW, _tail),
    ]
    if paired and len(runs) > 1 and first is not None:
        rows.append(row(f"validation loss minus {runs[0].label}'s ({LOSS})", lambda run: NOTHING if run is runs[0]
                        or run.validation_loss is None else f"{run.validation_loss - first:+.4f}"))
    rows += [
        row(f"validation {PER_TOKEN}", lambda run: number(
            None if run.validation_loss is None else exponential(run.validation_loss), ".4g")),
        row(f"validation bits per byte ({BITS})", lambda run: number(run.bits_per_byte, ".4f")),
        row(f"unigram entropy of the text ({BITS})", lambda run: number(run.unigram, ".4f")),
        row("bits per byte / unigram entropy (ratio)", lambda run: number(ratio(run), ".3f")),
        row("speed (tokens/s)", lambda run: number(run.tokens_per_s, ",.0f")),
    ]
    if any((run.done or {}).get("peak_bytes") for run in runs):
        rows.append(row("peak device memory (MiB)", lambda run: number(_mebibytes(run), ",.0f")))
    return rows


def best_cells(runs: list[Run]) -> dict[str, int]:
    """The column with the lowest loss in the rows where lower is better."""
    found = {}
    for name, values in ((LOSS_ROW, [run.validation_loss for run in runs]), (TAIL_ROW, [run.tail[0] for run in runs])):
        if len(runs) > 1 and None not in values and values.count(min(values)) == 1:
            found[name] = values.index(min(values))
    return found


def settings(runs: list[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """(options and facts of the start that differ, those that are common), one cell per run."""
    columns = [{**{name: _plain(value) for name, value in run.config.items() if name != "run"},
                **{f"{name} (as started)": _plain(value) for name, value in _facts(run).items()}} for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    differing, common = [], []
    for name in names:
        cells = [column.get(name, NOTHING) for column in columns]
        (differing if len(set(cells)) > 1 else common).append((name, cells))
    return differing, common


def summary(runs: list[Run], paired: bool) -> list[str]:
    """Two sentences: what was compared, and the result."""
    names = _join([run.label for run in runs])
    config = runs[0].config
    plan = (f"{config['steps']:,} updates of {config.get('global-batch')} sequences x {config.get('sequence')} tokens, "
            f"seed {config.get('seed')}")
    if len(runs) == 1:
        what = f"{names}: one run of the design {config['design']}, planned for {plan}."
    elif paired:
        what = f"{len(runs)} runs on the same data in the same order are compared, {names}: {plan}."
    else:
        what = f"{len(runs)} runs that differ in more than their model stand side by side: {names}."
    known = [run for run in runs if run.validation_loss is not None]
    if not known:
        return [what, "No validation has been made yet."]
    best = min(known, key=lambda run: run.validation_loss) if paired else known[0]
    result = f"{best.label} ends at a validation loss of {best.validation_loss:.4f} {LOSS}"
    if ratio(best) is not None:
        result += (f" ({best.bits_per_byte:.3f} {BITS}, {ratio(best):.2f} of the text's unigram entropy of "
                   f"{best.unigram:.3f} {BITS})")
    others = [run for run in known if run is not best]
    if paired and others:
        result += ", " + _join([f"{run.validation_loss - best.validation_loss:.4f} below {run.label}" for run in others])
    elif others:
        result += "; " + _join([f"{run.label} at {run.validation_loss:.4f} {LOSS}" for run in others])
    return [what, result + "."]


def lines(runs: list[Run]) -> list[str]:
    """One line per run for the terminal."""
    width = max(len(run.label) for run in runs)
    return [f"{run.label:{width}}  validation loss {number(run.validation_loss, '.4f')} {LOSS}, "
            f"{number(run.bits_per_byte, '.4f')} {BITS}, {number(ratio(run), '.3f')} of the text's unigram entropy "
            f"({number(run.unigram, '.4f')} {BITS})" for run in runs]


def sample_lead(run: Run) -> str:
    sample = run.sample
    text = str(sample.get("text", ""))
    visible = sum(character.isprintable() and character != "\ufffd" or character in "\n\r\t" for character in text)
    count = f"{sample['tokens']} tokens" if sample.get("tokens") is not None else f"{len(text)} characters"
    seed = f", seed {sample['seed']}" if sample.get("seed") is not None else ""
    share = f", {100 * visible / len(text):.1f} % of its characters printable" if text else ""
    return f"{run.label}: {count}{seed}{share}"


def _started(run: Run, name: str):
    return run.starts[-1].get(name) if run.starts else None


def _mebibytes(run: Run) -> float | None:
    peak = (run.done or {}).get("peak_bytes")
    return None if peak is None else peak / 2**20


def _tail(run: Run) -> str:
    mean, count = run.tail
    return number(mean, ".4f") + (f" (of {count})" if mean is not None and count < TAIL else "")


def _facts(run: Run) -> dict:
    """What the machine and program were: the plain values of the last start that its options do not tell already."""
    known = {"event", "step", "line", "time", "parameters", "tokens", "seconds"}
    options = set(run.config) - {"device", "threads"}  # asked for as auto or 0; the start says what was taken
    return {name: value for name, value in (run.starts[-1] if run.starts else {}).items()
            if name not in known and name.replace("_", "-") not in options and not isinstance(value, (dict, list))}


def _plain(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
