"""Figures of the report. Each is drawn once per theme (light, dark) and width (a page, a phone): a picture that is merely
scaled down cannot be read on a phone."""

import io
import math
import re
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from mhar.runs import Run
from mhar.units import LOSS

ANNOTATED = 13  # sites up to which every cell of a routing map shows its number


@dataclass(frozen=True)
class Look:
    narrow: bool = False
    dark: bool = False

    @property
    def width(self) -> float:
        return 4.0 if self.narrow else 9.0

    @property
    def ink(self) -> str:
        return "#e6e6e6" if self.dark else "#1f2328"

    @property
    def faint(self) -> str:
        return "#3d444d" if self.dark else "#d8dce0"

    @property
    def paper(self) -> str:
        return "#161b22" if self.dark else "#ffffff"

    def series(self, place: int) -> dict:
        """Colour (Okabe and Ito, safe for the colour blind; lighter on dark paper), marker and dash of a run."""
        light = ("#0072b2", "#d55e00", "#009e73", "#b8528f", "#8a6d00", "#3a3a3a")
        dark = ("#56b4e9", "#ff9b54", "#35c79a", "#e79ac4", "#f0e442", "#d0d0d0")
        colours = dark if self.dark else light
        dashes = ("-", "--", ":", "-.")
        return {"color": colours[place % len(colours)], "marker": "osD^vP"[place % 6],
                "linestyle": dashes[(place // len(colours)) % len(dashes)]}


LOOKS = [Look(narrow, dark) for narrow in (False, True) for dark in (False, True)]


def loss_figure(runs: list[Run], look: Look) -> Figure:
    """Train loss (smoothed) and validation loss of all runs over updates, with the text's unigram entropy as a mark; beside
    it the second half enlarged, where runs are close."""
    figure = _figure(look, 4.4 if not look.narrow else 6.6)
    grid = {"height_ratios": [5, 4]} if look.narrow else {"width_ratios": [5, 4]}
    whole, late = figure.subplots(2 if look.narrow else 1, 1 if look.narrow else 2, gridspec_kw=grid)
    middle = max(run.last_step for run in runs) / 2
    for axes, since in ((whole, 0), (late, middle)):
        for place, run in enumerate(runs):
            style = look.series(place)
            steps, losses = _series(run.steps)
            axes.plot(*_since(since, steps, smoothed(losses)), color=style["color"], linestyle=style["linestyle"],
                      linewidth=1.6)
            axes.plot(*_since(since, *_series(run.validations)), linestyle="none", marker=style["marker"],
                      color=style["color"], markersize=5.5, markeredgecolor=look.paper, markeredgewidth=0.6)
            axes.plot([], [], label=run.label, linewidth=1.6, markersize=5.5, **style)  # the legend's: line and point
    level = _common_unigram(runs)
    if level is not None:
        # Named in the legend: a name on the line would lie on curves that end near it.
        whole.axhline(level, color=look.ink, linewidth=0.9, linestyle=(0, (2, 3)), label="unigram entropy of the text")
    _finish(whole, look, "Loss over training", "line: train, running mean; points: validation", f"loss ({LOSS})")
    _finish(late, look, "Second half, enlarged", "lines and points as before", f"loss ({LOSS})")
    _legend(whole, look, len(runs) + (level is not None), "upper right")
    return figure


def difference_figure(runs: list[Run], look: Look) -> Figure:
    """Validation loss of every later run minus the first run's, at the updates where both have one."""
    figure = _figure(look, 4.0 if not look.narrow else 3.6)
    axes = figure.subplots()
    axes.axhline(0, color=look.ink, linewidth=1)
    base = dict(zip(*_series(runs[0].validations)))
    for place, run in enumerate(runs[1:], 1):
        pairs = [(step, loss - base[step]) for step, loss in zip(*_series(run.validations)) if step in base]
        axes.plot([step for step, _ in pairs], [value for _, value in pairs], label=f"{run.label} − {runs[0].label}",
                  linewidth=1.6, markersize=5, **look.series(place))
    _finish(axes, look, "Paired difference of validation loss", f"below 0: lower loss than {runs[0].label}",
            f"difference ({LOSS})")
    _legend(axes, look, len(runs) - 1, "best")
    return figure


def routing_figure(run: Run, look: Look, per_head: bool = False) -> Figure:
    """Token-averaged depth weights, sites by sources: averaged over heads, or one panel per head."""
    sites = run.routing["sites"]
    weights = [np.array(site["weights"], dtype=float) for site in sites]  # per site: [H, sources]
    heads = max(w.shape[0] for w in weights)
    panels = [_matrix([w[h] if h < len(w) else w[0][:0] for w in weights]) for h in range(heads)] if per_head else [
        _matrix([w.mean(axis=0) for w in weights])]
    columns = min(len(panels), 2 if look.narrow else 4 if len(sites) <= 33 else 2)
    rows = math.ceil(len(panels) / columns)
    cell = (0.2 if look.narrow else 0.24) if per_head else (0.3 if look.narrow else 0.38)
    height = rows * min(max(1.5, cell * len(sites)), 5.0 if per_head or look.narrow else 7.5) + 1.7
    figure = _figure(look, height)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    # Site 0 has one source and so always weight 1: left out of the scale, it would flatten every other site.
    # The square root shows differences among the small weights of late sites.
    scale = PowerNorm(0.5, 0, max([np.nanmax(panel[1:]) for panel in panels if len(panel) > 1], default=1.0))
    names, sources = _labels(sites)
    for axes, panel, head in zip(grid.flat, panels, range(len(panels))):
        axes.pcolormesh(panel, cmap="viridis", norm=scale, edgecolor=look.paper,
                        linewidth=0.8 if len(sites) <= 33 else 0)
        _map_ticks(axes, look, names, sources, fine=not per_head)
        if per_head:
            axes.set_title(f"head {head}", fontsize=10, color=look.ink)
        elif len(sites) <= (9 if look.narrow else ANNOTATED):
            _numbers(axes, panel, scale, 6.5 if look.narrow else 9)
    for axes in list(grid.flat)[len(panels):]:
        axes.set_visible(False)
    what = f"{heads} heads, one panel each" if per_head and heads > 1 else f"mean over {heads} heads" if heads > 1 else "one head"
    figure.suptitle(f"Routing of {run.label}" + ("\n" if look.narrow else "  ·  ") + what, x=0.02, ha="left",
                    fontsize=11 if look.narrow else 12, color=look.ink)
    for axes in grid[-1]:
        axes.set_xlabel("source", fontsize=10, color=look.ink)
    figure.supylabel("read site", fontsize=10, color=look.ink)
    bar = figure.colorbar(ScalarMappable(scale, "viridis"), ax=grid, extend="max", fraction=0.04, pad=0.02,
                          aspect=30, ticks=MaxNLocator(4), location="bottom" if look.narrow else "right")
    bar.set_label("mean weight over tokens (square-root scale)", fontsize=9, color=look.ink)
    bar.ax.tick_params(labelsize=9, colors=look.ink)
    bar.outline.set_edgecolor(look.faint)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as a PNG, two pixels per point on its page, without a date: same runs, same bytes."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160 if figure.get_figwidth() > 5 else 200, metadata={"Software": None},
                   pil_kwargs={"optimize": True})
    return buffer.getvalue()


def smoothed(values: list[float]) -> list[float]:
    """Running mean over about a thirtieth of the points, centred so that it does not lag behind; where it starts it is
    narrow (losses fall fast there), where it ends it looks back."""
    reach = max(1, len(values) // 60)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    result = []
    for place in range(len(values)):
        low, high = place - min(reach, place), min(place + min(reach, place), len(values) - 1) + 1
        result.append(float((sums[high] - sums[low]) / (high - low)))
    return result


def _series(events: list[dict]) -> tuple[list[int], list[float]]:
    kept = [(event["step"], event["loss"]) for event in events
            if isinstance(event.get("loss"), (int, float)) and math.isfinite(event["loss"])]
    return [step for step, _ in kept], [loss for _, loss in kept]


def _since(first: float, steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    kept = [(step, value) for step, value in zip(steps, values) if step >= first]
    return [step for step, _ in kept], [value for _, value in kept]


def _common_unigram(runs: list[Run]) -> float | None:
    """Unigram entropy in nats per token when all runs have the same text."""
    levels = set()
    for run in runs:
        train = (run.data or {}).get("train") or {}
        if run.unigram is None or not train.get("tokens"):
            return None
        levels.add(round(run.unigram * math.log(2) * train.get("bytes", 0) / train["tokens"], 6))
    return levels.pop() if len(levels) == 1 else None


def _matrix(rows: list[np.ndarray]) -> np.ndarray:
    """Sites by sources, not a number where a site has no such source."""
    matrix = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for place, row in enumerate(rows):
        matrix[place, :len(row)] = row
    return matrix


def _labels(sites: list[dict]) -> tuple[list[str], list[str]]:
    """Names of sites and of sources. Source i is what site i - 1 wrote only where every site r reads sources 0..r."""
    names = [re.sub(r"^layer (\d+) ", r"\1 ", str(site.get("name", f"site {place}"))).replace("attention", "attn")
             for place, site in enumerate(sites)]
    if all(len(site["weights"][0]) == place + 1 for place, site in enumerate(sites)):
        return names, ["embed", *names[:-1]]
    return names, [str(place) for place in range(max(len(site["weights"][0]) for site in sites))]


def _figure(look: Look, height: float) -> Figure:
    return Figure(figsize=(look.width, height), layout="constrained", facecolor=look.paper)


def _finish(axes, look: Look, title: str, note: str, ylabel: str) -> None:
    axes.set_facecolor(look.paper)
    axes.set_title(f"{title}\n{note}".rstrip(), loc="left", fontsize=10 if look.narrow else 11, color=look.ink, pad=8)
    axes.set_xlabel("update", color=look.ink, fontsize=10)
    axes.set_ylabel(ylabel, color=look.ink, fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(colors=look.ink, labelsize=10, length=3)
    axes.grid(color=look.faint, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.faint)


def _legend(axes, look: Look, entries: int, where: str) -> None:
    legend = axes.legend(loc=where, fontsize=10, ncols=1 + (entries - 1) // 8, facecolor=look.paper,
                         edgecolor=look.faint, framealpha=0.85)
    for text in legend.get_texts():
        text.set_color(look.ink)


def _map_ticks(axes, look: Look, names: list[str], sources: list[str], fine: bool) -> None:
    room = (9 if look.narrow else 25) if fine else (5 if look.narrow else 9)
    for axis, labels in ((axes.yaxis, names), (axes.xaxis, sources)):
        stride = max(1, math.ceil(len(labels) / room))
        places = range(0, len(labels), stride)
        axis.set_ticks([place + 0.5 for place in places], [labels[place] for place in places])
    axes.invert_yaxis() if not axes.yaxis_inverted() else None
    axes.tick_params(axis="x", rotation=90 if look.narrow or len(sources) > 13 or not fine else 30)
    axes.tick_params(colors=look.ink, labelsize=8 if look.narrow or not fine else 9, length=0)
    axes.set_facecolor(look.paper)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _numbers(axes, panel: np.ndarray, scale: Normalize, size: float) -> None:
    for (row, column), value in np.ndenumerate(panel):
        if not np.isnan(value):
            text = f"{value:.2f}"
            axes.text(column + 0.5, row + 0.5, text[1:] if text.startswith("0") else text.rstrip("0").rstrip("."),
                      ha="center", va="center", fontsize=size, color="black" if scale(value) > 0.5 else "white")
