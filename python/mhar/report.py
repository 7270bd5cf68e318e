"""Compares training runs: `python -m mhar.report RUN... --out report.html`. One page that opens offline, and its figures as
PNG files beside it. Runs that cannot be compared point by point are refused unless told otherwise."""

import argparse
import os
import re
import sys
from pathlib import Path

from mhar import page, plots, tables
from mhar.comparable import contradictions, differences
from mhar.errors import InputError
from mhar.runs import Run, read_runs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mhar.report", allow_abbrev=False,
                                     description="One HTML page that compares training runs, with PNGs beside it.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder; the first is what others are compared with")
    parser.add_argument("--out", required=True, type=Path, help="the page to write, a name ending in .html")
    parser.add_argument("--heads", action="store_true", help="routing maps with one panel per head as well")
    parser.add_argument("--unpaired", action="store_true",
                        help="report runs of different schedules or data too, without a paired difference")
    chosen = parser.parse_args(arguments)
    try:
        for line in report(chosen.runs, chosen.out, chosen.heads, chosen.unpaired):
            print(line)
    except InputError as error:
        print(f"mhar.report: {error}", file=sys.stderr)
        return 2
    return 0


def report(folders: list[Path], out: Path, heads: bool = False, unpaired: bool = False) -> list[str]:
    """Writes the page and its PNGs; returns the lines that sum it up. Throws InputError."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError("option --out", out, "a name ending in .html", repr(out.name), "name the page to write")
    runs = read_runs(folders)
    obstacles = [text for run in runs for text in contradictions(run)]
    for run in runs[1:]:
        obstacles += differences(runs[0], run)
    if obstacles and not unpaired:
        what = "runs with one schedule, data set, order and batch" if len(runs) > 1 else "metrics of the run's own options"
        raise InputError("compare runs", ", ".join(run.label for run in runs), what,
                         "other values of " + "; ".join(obstacles),
                         "leave one out, or give --unpaired to see them without a paired difference")
    paired = not obstacles and not (unpaired and len(runs) > 1)
    figures = _figures(runs, paired, heads)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        written = [out]
        for name, (images, _) in figures.items():
            written.append(out.with_name(f"{out.stem}-{name}.png"))
            _write(written[-1], images[plots.Look()])
        _write(out, _page(runs, paired, obstacles, figures).encode("utf-8", "replace"))
    except OSError as error:
        raise InputError("write report", error.filename or out, "a file that can be written",
                         error.strerror or str(error), "choose another --out or make room there") from error
    return [*tables.lines(runs), f"report: {out}", *[f"figure: {path}" for path in written[1:]]]


def _figures(runs: list[Run], paired: bool, heads: bool) -> dict[str, tuple[dict[plots.Look, bytes], str]]:
    """Name of the figure (part of its file's name) to its looks and a description of it for those who cannot see it."""
    labels = ", ".join(run.label for run in runs)
    drawings = {"loss": (lambda look: plots.loss_figure(runs, look), f"Train and validation loss over updates: {labels}")}
    if paired and len(runs) > 1:
        drawings["difference"] = (lambda look: plots.difference_figure(runs, look),
                                  f"Validation loss minus that of {runs[0].label}, over updates")
    for run in runs:
        if run.routing is None:
            continue
        name, text = _file_name(run, runs), f"Depth weights of {run.label}, read sites by sources"
        drawings[f"routing-{name}"] = (lambda look, run=run: plots.routing_figure(run, look), text + ", mean over heads")
        if heads:
            drawings[f"routing-{name}-heads"] = (lambda look, run=run: plots.routing_figure(run, look, True),
                                                 text + ", one panel per head")
    return {name: ({look: plots.png(draw(look)) for look in plots.LOOKS}, text)
            for name, (draw, text) in drawings.items()}


def _file_name(run: Run, runs: list[Run]) -> str:
    """The label as part of a file name; numbered where two labels would give the same one."""
    plain = [re.sub(r"[^\w.-]+", "-", other.label) for other in runs]
    place = next(place for place, other in enumerate(runs) if other is run)
    return plain[place] if plain.count(plain[place]) == 1 else f"{plain[place]}-{place + 1}"


def _page(runs: list[Run], paired: bool, obstacles: list[str], figures: dict) -> str:
    labels = [run.label for run in runs]
    title = " against ".join(labels) if len(runs) <= 3 else f"{len(runs)} runs compared"
    parts = [page.heading(title, tables.summary(runs, paired))]
    if not paired:
        why = "The runs differ in " + "; ".join(obstacles) if obstacles else "Asked for with --unpaired"
        parts.append(page.alarm(f"Unpaired: losses stand side by side and are not compared point by point. {why}."))
    parts += [page.alarm(f"{run.label} stopped at update {run.last_step:,} of {run.planned:,}.")
              for run in runs if not run.finished]
    parts.append(page.section("Loss", *[page.picture(*figures[name]) for name in ("loss", "difference")
                                        if name in figures]))
    parts.append(page.section("Results", page.table("quantity (unit)", labels, tables.final_rows(runs, paired),
                                                    tables.best_cells(runs) if paired else None)))
    differing, common = tables.settings(runs)
    different = page.table("option", labels, differing, words=True) if differing else page.note("None differ.")
    shared = page.table("option", ["value"], [(name, cells[:1]) for name, cells in common], words=True)
    parts.append(page.section("Settings that differ" if len(runs) > 1 else "Settings",
                              *([different] if len(runs) > 1 else []),
                              page.details(f"{len(common)} common settings" if len(runs) > 1 else "All settings", shared)))
    parts += _unmoved(runs)
    maps = [page.picture(*figure) for name, figure in figures.items() if name.startswith("routing-")]
    if maps:
        windows = next(run.routing for run in runs if run.routing is not None)
        parts.append(page.section("Routing over depth", page.note(
            "Each row is a read: how much of it comes from each earlier source, averaged over tokens"
            + (f" ({windows['tokens']:,} tokens)" if isinstance(windows.get("tokens"), int) else "")
            + ". A fresh model weights all sources of a row alike. The first read has one source: its weight is always 1, "
            "beyond the colour scale."), *maps))
    samples = [page.quotation(tables.sample_lead(run), str(run.sample.get("prompt", "")), str(run.sample.get("text", "")))
               for run in runs if run.sample is not None]
    return page.document(title, parts + ([page.section("Text samples", *samples)] if samples else []))


def _unmoved(runs: list[Run]) -> list[str]:
    """Parameters whose bits still were those of the start, beyond the ones that cannot move."""
    rows = []
    for run in runs:
        event = run.unmoved or {}
        stuck = [name for name in event.get("parameters", []) if name not in set(event.get("expected", []))]
        if stuck:
            rows.append((run.label, [", ".join(stuck)]))
    if not rows:
        return []
    return [page.section("Parameters that had not moved", page.note(
        "Unexpected: their values after the first updates were still those of the start."),
        page.table("run", ["parameters"], rows, words=True))]


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    aside = path.with_name(path.name + ".part")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    sys.exit(main())
