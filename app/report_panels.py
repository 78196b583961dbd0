"""The figures of a report, drawn from its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.evaluator.strategies import Strategy
from app.plots.captions import Caption, describe_data, describe_oracle, format_hundredths, format_percent
from app.plots.frontiers import build_frontiers_figure
from app.plots.palette import METHOD_STYLES, LineStyle, pick_method_style
from app.plots.report_figures import (
    PLAIN_STYLE,
    Axis,
    Band,
    Range,
    Series,
    draw_curve,
    draw_frontier_panel,
    draw_histograms,
    draw_lines,
    draw_ranges,
    draw_scatter,
    span_values,
)
from app.plots.steps import FloatArray, ReducedSteps
from app.plots.traces import FrontierLines, span_accuracies
from app.report_values import Document

DIFFICULTY_FIGURES = {
    "outcome_efficiency": ("Outcome efficiency (%)", 100.0),
    "rfcs": ("Ratio of the first correct step (%)", 100.0),
    "flips": ("Flips per trajectory", 1.0),
    "dangerous_share": ("Trajectories with a dangerous flip (%)", 100.0),
}


@dataclass(frozen=True, eq=False)
class Panel:
    """One figure with the heading above it; a wide one takes the whole width."""

    title: str
    figure: go.Figure
    is_wide: bool = False


def panel_local_changes(document: Document) -> list[Panel]:
    """Proportions of gains, losses and neither against the tokens retained, and losses per gain."""
    bins = document["local_changes"]["bins"]
    middle = [(b["start_tokens"] + b["end_tokens"]) / 2 for b in bins]
    x = Axis("Thinking tokens retained, L(k)", 0, bins[-1]["end_tokens"] if bins else 1)
    styles = (METHOD_STYLES[0], METHOD_STYLES[4], METHOD_STYLES[3])
    names = {"positive": "Gain", "negative": "Loss", "flat": "No change"}
    hover = "%{fullData.name}: %{y:.1f}\u00a0% of the steps near %{x:,.0f} tokens"
    shares = [
        Series(label, middle, [_hundredfold(b[name]) for b in bins], style, hover)
        for (name, label), style in zip(names.items(), styles, strict=True)
    ]
    ratios = [b["negative_per_positive"] for b in bins]
    low, high = span_values([*ratios, 1.0], zero=True)
    ratio = Series("Losses per gain", middle, ratios, PLAIN_STYLE, "%{y:.2f} losses per gain near %{x:,.0f} tokens")
    return [
        Panel("All local changes", draw_lines(shares, x=x, y=Axis("Share of steps (%)", 0, 100))),
        Panel(
            "Losses per gain",
            draw_lines([ratio], x=x, y=Axis("Losses per gain", low, high), level=1.0),
        ),
    ]


def panel_macro_frontiers(document: Document) -> Panel:
    """The mean frontiers of the three strategies over all cells."""
    lines = _read_lines(document, None)
    by_strategy = {line.strategy: line for line in lines}
    exits = by_strategy[Strategy.DYNAMIC_EARLY_EXIT]
    n_cells = len(document["overthinking"]["cells"])
    subtitle = describe_data(
        snapshot=document["snapshot"],
        split=document["split"],
        place=f"{n_cells} cells" if n_cells > 1 else "1 cell",
        n_questions=sum(document["n_questions"].values()),
        kind=document["kind"],
    )
    caption = Caption(describe_oracle(exits.strategy, exits.beta_match), subtitle)
    return Panel(f"{caption.title}.", build_frontiers_figure(lines, caption=caption), is_wide=True)


def panel_model_frontiers(document: Document) -> list[Panel]:
    """The frontiers of each model over its benchmarks, all on the same axes."""
    lines = {model: _read_lines(document, model) for model in document["models"]}
    low, high = span_accuracies([line for of_model in lines.values() for line in of_model], [])
    return [Panel(model, draw_frontier_panel(of_model, low=low, high=high)) for model, of_model in lines.items()]


def panel_interval_frontiers(document: Document) -> Panel | None:
    """The mean frontiers with their pointwise intervals; None where there are none."""
    whole = next(board for board in document["intervals"]["boards"] if board["model"] is board["benchmark"] is None)
    bands = [
        Band(Strategy(curve["strategy"]), np.array(curve["low"]), np.array(curve["high"]))
        for curve in whole["frontiers"]
        if curve["low"] is not None
    ]
    if not bands:
        return None
    lines = _read_lines(document, None)
    low, high = span_accuracies(lines, [])
    low = min(low, *(100 * float(band.low.min()) for band in bands))
    high = max(high, *(100 * float(band.high.max()) for band in bands))
    figure = draw_frontier_panel(lines, low=low, high=high, bands=bands)
    return Panel("Mean frontiers with pointwise 95 % intervals", figure, is_wide=True)


def panel_thinning(document: Document) -> list[Panel]:
    """Expected OR and AD with fewer probes; how far OR and AD stray with fewer trajectories."""
    probes, trajectories = document["thinning"]["probes"], document["thinning"]["trajectories"]
    styles = {"overthinking_ratio": METHOD_STYLES[0], "accuracy_degradation": METHOD_STYLES[4]}
    names = {"overthinking_ratio": "OR (%)", "accuracy_degradation": "AD (points)"}
    counts = [float(thinned["probes"]) for thinned in probes]
    lines = [
        Series(
            label,
            counts,
            [_hundredfold(thinned["averages"][name]["macro"]) for thinned in probes],
            styles[name],
            "%{fullData.name}: %{y:.2f} with %{x:.0f} probes",
        )
        for name, label in names.items()
    ]
    top = span_values([value for line in lines for value in line.y], zero=True)[1]
    panels = [
        Panel(
            "Fewer probes at each position",
            draw_lines(
                lines,
                x=Axis("Probes per position", 0, counts[-1] * 1.04, dict.fromkeys(counts, "")),
                y=Axis("Expected OR (%), AD (points)", 0, top),
            ),
        )
    ]
    macro = document["overthinking"]["macro"]
    if macro is None or len(trajectories) < 2:
        return panels
    ranges = [
        Range(
            f"{names[name].split()[0]}, {thinned['trajectories']} trajectories",
            place + (0.1 if name == "accuracy_degradation" else -0.1),
            100 * (thinned["macro"][name]["low"] - macro[name]),
            100 * (thinned["macro"][name]["high"] - macro[name]),
            styles[name],
        )
        for place, thinned in enumerate(trajectories)
        for name in names
    ]
    extent = max(max(abs(bar.low), abs(bar.high)) for bar in ranges) * 1.1 or 0.5
    ticks = {float(place): str(thinned["trajectories"]) for place, thinned in enumerate(trajectories)}
    x = Axis("Trajectories per question", -0.5, len(trajectories) - 0.5, ticks)
    y = Axis("Deviation from all trajectories (points)", -extent, extent)
    return [*panels, Panel("Fewer trajectories per question", draw_ranges(ranges, x=x, y=y))]


def panel_curves(curves: Sequence[Document], *, titles: Sequence[str]) -> list[Panel]:
    """Recorded trajectories, each in its own panel on the same axes."""
    return [
        Panel(title, draw_curve(_share_tokens(curve), _list_accuracies(curve), curve["reference"]))
        for curve, title in zip(curves, titles, strict=True)
    ]


def title_curve(curve: Document) -> str:
    """Return a curve's k*, OR and AD in words."""
    return (
        f"k* = {curve['reference']} of {len(curve['retained_tokens']) - 1}, "
        f"OR {format_percent(curve['overthinking_ratio'])}, "
        f"AD {format_hundredths(curve['accuracy_degradation'])} points"
    )


def panel_step_lengths(document: Document) -> list[Panel]:
    """The distribution of step lengths of each model, for every partition there is."""
    partitions = document["step_lengths"]["partitions"]
    panels = []
    shares = {
        (model, p["step_tokens"]): _share_bins(p["models"][model]) for model in document["models"] for p in partitions
    }
    high = max((max(of_bins, default=0.0) for of_bins in shares.values()), default=0.0) * 1.05 or 1.0
    for model in document["models"]:
        series: list[Series] = []
        for partition in partitions:
            figures = partition["models"][model]
            left = [float(figures["bin_tokens"] * i) for i in range(len(figures["counts"]))]
            name = name_partition(partition)
            style = style_partition(partition, len(series))
            hover = "%{fullData.name}: %{y:.1f}\u00a0% of the steps have %{x:.0f} tokens or up to a bin more"
            series.append(Series(name, left, shares[model, partition["step_tokens"]], style, hover))
        x = Axis("Tokens of a step", 0, 1024)
        panels.append(Panel(model, draw_histograms(series, x=x, y=Axis("Share of steps (%)", 0, high))))
    return panels


def name_partition(partition: Document) -> str:
    """Return a partition's name in a key: the length that its steps aim at, if they aim at any."""
    target = partition["step_tokens"]
    return "recorded" if target is None else f"b = {target:,}"


def style_partition(partition: Document, idx: int) -> LineStyle:
    """Return how a partition is drawn: the recorded one solid, the one before and the one after it dashed."""
    return METHOD_STYLES[0] if partition["is_recorded"] else METHOD_STYLES[idx % 4 + 1]


def panel_correlation(document: Document) -> Panel:
    """OR against AD of every cell."""
    groups: dict[str, list[tuple[str, float, float]]] = {name: [] for name in document["benchmarks"]}
    for cell in document["overthinking"]["cells"]:
        point = (cell["model"], 100 * cell["overthinking_ratio"], 100 * cell["accuracy_degradation"])
        groups[cell["benchmark"]].append(point)
    top = span_values([point[2] for points in groups.values() for point in points], zero=True)[1]
    figure = draw_scatter(groups, x=Axis("OR (%)", 0, 100), y=Axis("AD (points)", 0, top))
    return Panel("OR and AD of every cell", figure)


def panel_difficulty(document: Document) -> list[Panel]:
    """Trace figures against question difficulty, a line for each benchmark with at least two levels."""
    reports = [r for r in document["traces"]["by_difficulty"] if len(r["levels"]) > 1]
    if not reports:
        return []
    grades = [level["difficulty"] for r in reports for level in r["levels"]]
    ticks = {float(grade): "" for grade in sorted(set(grades))} if len(set(grades)) <= 10 else None
    x = Axis("Difficulty of the question", min(grades) - 0.3, max(grades) + 0.3, ticks)
    panels = []
    for name, (title, factor) in DIFFICULTY_FIGURES.items():
        series = [
            Series(
                report["benchmark"],
                [level["difficulty"] for level in report["levels"]],
                [_times(level["figures"][name], factor) for level in report["levels"]],
                pick_method_style(document["benchmarks"].index(report["benchmark"])),
                "%{fullData.name}, difficulty %{x}: %{y:.2f}",
            )
            for report in reports
        ]
        low, high = span_values([value for line in series for value in line.y], zero=True)
        panels.append(Panel(title, draw_lines(series, x=x, y=Axis("", low, high))))
    return panels


def _read_lines(document: Document, model: str | None) -> list[FrontierLines]:
    lines = []
    for board in document["frontiers"]["boards"]:
        if board["model"] != model:
            continue
        grid = np.linspace(0.0, 1.0, board["grid_intervals"] + 1)
        lines.append(
            FrontierLines(
                strategy=Strategy(board["strategy"]),
                oracle=ReducedSteps(grid, np.array(board["accuracy"])),
                uninformed_beta=grid,
                uninformed_accuracy=np.array(board["uninformed_accuracy"]),
                full_accuracy=board["endpoint_accuracy"],
                beta_match=board["beta_match"],
                max_accuracy=board["max_accuracy"],
                beta_sat=board["beta_sat"],
            )
        )
    return lines


def _share_tokens(curve: Document) -> FloatArray:
    retained = np.array(curve["retained_tokens"], dtype=np.float64)
    return retained / max(1.0, float(retained[-1]))


def _list_accuracies(curve: Document) -> FloatArray:
    n_probes: int = curve["probes_per_position"]
    return np.array(curve["correct_probes"], dtype=np.float64) / n_probes


def _share_bins(figures: Document) -> list[float]:
    return [100 * count / max(1, figures["n_steps"]) for count in figures["counts"]]


def _hundredfold(value: float | None) -> float | None:
    return _times(value, 100.0)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value
