"""The learning curve as a picture: success on held-out tasks over training, and what moved with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmanus_rl.tracking.metrics import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _MUTED, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_BLUE, _TEAL, _ORANGE = "#2563eb", "#0d9488", "#d97706"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def learning_curve(metrics_path: Path, output: Path, title: str) -> None:
    """Draw a run's metrics. A metric that is absent leaves its line or panel empty."""
    # matplotlib takes half a second to import and only this function needs it. `Figure` alone draws without a screen.
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lines = read_metrics(metrics_path)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 5.6), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        panels = figure.subplot_mosaic(
            [["success", "return"], ["success", "entropy"]], width_ratios=[2.1, 1], gridspec_kw={"wspace": 0.06}
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        _draw_success(panels["success"], lines)
        _draw_line(panels["return"], lines, "episode/return/mean", "Return of training episodes", _TEAL)
        _draw_line(panels["entropy"], lines, "actor/entropy", "Entropy of the policy", _ORANGE)
        panels["return"].tick_params(labelbottom=False)
        panels["entropy"].set_xlabel("training step")
        aside = output.with_name(f".{output.stem}.writing{output.suffix}")
        figure.savefig(aside)
        aside.replace(output)


def _draw_success(panel: "Axes", lines: Sequence[dict[str, Any]]) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_ylim(0, 102)
    panel.set_xlabel("training step")
    panel.grid(visible=False, axis="x")
    panel.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
    steps, success = _series(lines, "success/rate")
    if steps:
        panel.plot(steps, _percent(success), color=_MUTED, alpha=0.45, linewidth=1.2, label="training episodes")
    steps, low, high = _series(lines, "val/success/low", "val/success/high")
    panel.fill_between(steps, _percent(low), _percent(high), color=_BLUE, alpha=0.16, linewidth=0)
    steps, success = _series(lines, "val/success/rate")
    if steps:
        label = "held-out tasks, with 95 % interval"
        panel.plot(steps, _percent(success), color=_BLUE, linewidth=2.2, marker="o", markersize=4.5, label=label)
        _annotate_ends(panel, steps, _percent(success))
    if panel.get_legend_handles_labels()[0]:
        panel.legend(loc="lower right", frameon=False, labelcolor=_INK)
    has_time = _add_wall_time(panel, lines)
    panel.set_title(
        "Success (%) by training step (below) and time (above)" if has_time else "Success (%)",
        pad=28 if has_time else 8,
    )


def _annotate_ends(panel: "Axes", steps: Sequence[float], percent: Sequence[float]) -> None:
    """Say before and after in numbers, below the curve unless that is the floor."""
    from matplotlib.patheffects import withStroke

    ends = [("before", 0, "left"), ("after", -1, "right")] if len(steps) > 1 else [("before", 0, "left")]
    for name, index, side in ends:
        panel.annotate(
            f"{name} {percent[index]:.1f} %",
            (steps[index], percent[index]),
            xytext=(0, -38 if percent[index] > 20 else 24),
            textcoords="offset points",
            ha=side,
            color=_BLUE,
            fontsize=12,
            fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def _add_wall_time(panel: "Axes", lines: Sequence[dict[str, Any]]) -> bool:
    """Above, the same axis in time spent training, at round numbers; false if no time was written down."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    steps, seconds = _series(lines, "training/seconds")
    if len(steps) < 2:
        return False
    unit, size = ("s", 1) if seconds[-1] < 1200 else ("min", 60) if seconds[-1] < 36_000 else ("h", 3600)
    ticks = [tick for tick in MaxNLocator(6).tick_values(0, seconds[-1] / size) if tick * size <= seconds[-1]]
    above = panel.secondary_xaxis("top")
    above.set_xticks(np.interp([tick * size for tick in ticks], seconds, steps), [f"{tick:g} {unit}" for tick in ticks])
    above.spines["top"].set_visible(False)
    return True


def _draw_line(panel: "Axes", lines: Sequence[dict[str, Any]], metric: str, title: str, colour: str) -> None:
    panel.set_title(title)
    steps, values = _series(lines, metric)
    if steps:
        panel.plot(steps, values, color=colour, linewidth=1.6)
        panel.margins(y=0.15)
    else:
        panel.set(xticks=[], yticks=[])
        panel.text(0.5, 0.5, "not measured", color=_MUTED, ha="center", va="center", transform=panel.transAxes)


def _series(lines: Sequence[dict[str, Any]], *metrics: str) -> tuple[list[float], ...]:
    """The steps at which all of `metrics` are known, and their values."""
    known = [line for line in lines if all(line.get(metric) is not None for metric in metrics)]
    return tuple([line[name] for line in known] for name in ("step", *metrics))


def _percent(rates: Sequence[float]) -> list[float]:
    return [100 * rate for rate in rates]
