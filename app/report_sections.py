"""The sections of a report's page: tables and figures, each with a sentence that says what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app import report_panels as panels
from app.evaluator.strategies import Strategy
from app.plots.captions import STRATEGY_TITLES, format_hundredths, format_percent
from app.plots.palette import METHOD_STYLES, STRATEGY_TONES, LineStyle, pick_method_style
from app.report_panels import Panel
from app.report_tables import (
    UNDEFINED,
    Column,
    build_grid,
    build_list,
    index_figures,
    write_count,
    write_interval,
    write_number,
    write_percent,
)
from app.report_values import Document

SHAPE_TITLES = {"flat": "Flat", "late_peak": "Late peak", "fluctuating": "Fluctuating"}
POINT_TITLES = {"no_thinking": "No thinking", "beta_match": "β_match", "beta_sat": "β_sat"}
TRACE_COLUMNS = (
    Column("Outcome efficiency (%)", "outcome_efficiency", write_percent),
    Column("RFCS (%)", "rfcs", write_percent),
    Column("Flips", "flips", write_number),
    Column("Dangerous flips", "dangerous_flips", write_number),
)


@dataclass(frozen=True)
class Mark:
    """An entry of a figure's key: a piece of a line, or a point of a scatter."""

    name: str
    style: LineStyle
    is_point: bool = False


@dataclass(frozen=True, eq=False)
class PanelGroup:
    """Figures side by side, and the marks that need a name because they bear none."""

    panels: Sequence[Panel]
    key: Sequence[Mark] = ()
    is_small: bool = False


@dataclass(frozen=True, eq=False)
class Section:
    """A heading, what in the paper it is the counterpart of, a sentence or two, and tables and figures."""

    anchor: str
    title: str
    counterpart: str | None
    text: Sequence[str]
    parts: Sequence[str | PanelGroup]


STRATEGY_KEY = tuple(Mark(STRATEGY_TITLES[s], LineStyle("solid", "circle", STRATEGY_TONES[s])) for s in Strategy)


def list_sections(document: Document) -> list[Section]:
    """Return the sections of a document in the order of the page."""
    builders: Sequence[Callable[[Document], Section]] = (
        show_overthinking,
        show_baseline,
        show_intervals,
        show_local_changes,
        show_frontiers,
        show_direct_answers,
        show_thinning,
        show_diversity,
        show_examples,
        show_question,
        show_step_lengths,
        show_traces,
        show_efficiency,
    )
    return [build(document) for build in builders]


def show_overthinking(document: Document) -> Section:
    """Table 1: OR and AD."""
    section = document["overthinking"]
    macro = section["macro"]
    text = [
        "OR is the share of the thinking tokens that comes after the earliest best position; AD is what is lost by it."
    ]
    if macro is not None:
        text.insert(
            0,
            f"On average {format_percent(macro['overthinking_ratio'])} of the thinking comes after the position at "
            f"which a trajectory is at its best, and the end is {_points(macro['accuracy_degradation'])} below that.",
        )
    columns = (
        Column("AD", "accuracy_degradation", write_percent),
        Column("OR", "overthinking_ratio", write_percent),
    )
    table = build_grid(document, index_figures(section), columns, caption="AD in points, OR in percent")
    spearman = section["or_ad_spearman"]
    parts: list[str | PanelGroup] = [table]
    if spearman["value"] is not None:
        text.append(
            f"Over {spearman['n_points']} cells, Spearman's correlation of OR and AD is {_signed(spearman['value'])}: "
            "how long thinking goes on and how much it loses are different things."
            if spearman["n_points"] > 2
            else f"There are {spearman['n_points']} cells, too few for a correlation of OR and AD to mean anything."
        )
        key = [Mark(name, pick_method_style(idx), is_point=True) for idx, name in enumerate(document["benchmarks"])]
        parts.append(PanelGroup([panels.panel_correlation(document)], key if len(key) > 1 else ()))
    return Section("overthinking", "Overthinking", "Table 1, section 3.2", text, parts)


def show_baseline(document: Document) -> Section:
    """Table 3: full-thinking accuracy and tokens."""
    macro = document["overthinking"]["macro"]
    text = ["Accuracy of the original answers, one label a trajectory; not the probes at the last position."]
    if macro is not None:
        known = macro["full_thinking_accuracy"]
        accuracy = (
            "Original answers are not known" if known is None else f"{format_percent(known)} of the answers are right"
        )
        text.insert(0, f"{accuracy}, with {write_count(macro['mean_thinking_tokens'])} thinking tokens on average.")
    columns = (
        Column("Acc.", "full_thinking_accuracy", write_percent),
        Column("Tokens", "mean_thinking_tokens", write_count),
    )
    table = build_grid(
        document, index_figures(document["overthinking"]), columns, caption="Accuracy in percent, thinking tokens"
    )
    return Section("baseline", "Full-thinking baseline", "Table 3", text, [table])


def show_intervals(document: Document) -> Section:
    """Tables 4 to 6: intervals, where they were asked for."""
    intervals = document["intervals"]
    counterpart = "Tables 4, 5 and 6"
    if intervals is None:
        text = ["No intervals were computed. `otboard analyse … --bootstrap 10000` adds them."]
        return Section("intervals", "Intervals", counterpart, text, [])
    text = [
        f"95 % intervals about the figures, from {intervals['n_replicates']:,} paired replicates of questions and "
        f"trajectories (seed {intervals['seed']}); the recorded probes stay as they are.",
        "Cells with fewer than 20 questions have no interval, and neither have averages of such cells alone.",
    ]
    figures = {(b["model"], b["benchmark"]): b["figures"] for b in intervals["boards"]}
    titles = (
        ("overthinking_ratio", "OR (%)"),
        ("accuracy_degradation", "AD (points)"),
        ("full_thinking_accuracy", "Original full-thinking accuracy (%)"),
    )
    tables = [
        build_grid(document, figures, [Column("95 % intervals", name, write_interval)], caption=f"{title}:")
        for name, title in titles
    ]
    return Section("intervals", "Intervals", counterpart, text, tables)


def show_local_changes(document: Document) -> Section:
    """Figure 2."""
    width = document["local_changes"]["bin_tokens"]
    text = [
        "Where losses per gain are above 1 (dashed), more steps lose correct probes than gain some.",
        f"Steps by the tokens retained at their end, in bins of {width:,}; means over cells of the shares in each. "
        "Later bins rest on fewer and longer trajectories.",
    ]
    return Section(
        "local-changes", "Local changes", "Figure 2", text, [PanelGroup(panels.panel_local_changes(document))]
    )


def show_frontiers(document: Document) -> Section:
    """Figure 3, and figure 5 where there are intervals."""
    text = [_describe_match(curve) for curve in document["frontiers"]["macro"]]
    full = next(board["endpoint_accuracy"] for board in document["frontiers"]["boards"] if board["model"] is None)
    text.append(
        "Solid: the best accuracy any method of the strategy could reach within a budget, exactly. Dotted: the best "
        f"mix of constant policies. Dashed: probes at the end of full thinking, {format_percent(full)}. ◆ β_match, "
        "● β_sat."
    )
    parts: list[str | PanelGroup] = [PanelGroup([panels.panel_macro_frontiers(document)], STRATEGY_KEY)]
    if document["intervals"] is not None and (panel := panels.panel_interval_frontiers(document)) is not None:
        parts.append(PanelGroup([panel]))
        text.append(
            "Bands of routing and of fixed budgets lie too high, since replicates repeat trajectories within a "
            "question; where the solid line is not in the middle of its band, trust the line."
        )
    parts.append(_tabulate_frontiers(document))
    if len(document["models"]) > 1:
        parts.append(PanelGroup(panels.panel_model_frontiers(document), STRATEGY_KEY))
    return Section("frontiers", "Exact frontiers", "Figures 3 and 5", text, parts)


def show_direct_answers(document: Document) -> Section:
    """Table 7."""
    section = document["direct_answers"]
    text = ["Position 0 keeps no thinking; a direct answer comes from a separate prompt that asks for none."]
    if section["averages"]["direct_accuracy"]["macro"] is None:
        text.append(
            "The snapshot does not have a direct answer for every trajectory, so these figures are undefined (–)."
        )
    columns = (
        Column("k = 0", "zero_step_accuracy", write_percent),
        Column("Direct", "direct_accuracy", write_percent),
    )
    table = build_grid(document, index_figures(section), columns, caption="Accuracy without thinking in percent")
    return Section("direct-answers", "Position 0 and direct answers", "Table 7", text, [table])


def show_thinning(document: Document) -> Section:
    """Figure 6."""
    section = document["thinning"]
    names = ("overthinking_ratio", "accuracy_degradation", "same_reference")
    probes = [
        [str(thinned["probes"]), *(write_percent(thinned["averages"][name]["macro"]) for name in names)]
        for thinned in section["probes"]
    ]
    ranges = [
        [str(thinned["trajectories"]), *(_write_range(thinned["macro"], name) for name in names[:2])]
        for thinned in section["trajectories"]
    ]
    text = [
        "With fewer probes the best position is found earlier by chance, so that OR and AD come out higher: exact "
        "expectations over all choices of m of the recorded probes.",
        f"With fewer trajectories OR and AD only stray: 2.5 and 97.5 percentiles of {section['n_draws']:,} draws "
        "without replacement, the questions fixed.",
    ]
    key = (Mark("OR", METHOD_STYLES[0]), Mark("AD", METHOD_STYLES[4]))
    parts: list[str | PanelGroup] = [
        PanelGroup(panels.panel_thinning(document), key),
        build_list(
            ["Probes", "OR (%)", "AD (points)", "k* stays (%)"], probes, caption="Expected figures with fewer probes"
        ),
        build_list(["Trajectories", "OR (%)", "AD (points)"], ranges, caption="Ranges with fewer trajectories"),
    ]
    return Section("thinning", "Fewer probes, fewer trajectories", "Figure 6", text, parts)


def show_diversity(document: Document) -> Section:
    """Pairwise differences, section 3.2."""
    section = document["diversity"]
    macro = {name: average["macro"] for name, average in section["averages"].items()}
    if section["reason"]:
        text = ["There is one trajectory per question, so no two can differ."]
    elif macro["overthinking_ratio"] is None:
        text = ["Trajectories of one question, compared pair by pair."]
    else:
        text = [
            f"Two trajectories of one model on one question differ by {_points(macro['overthinking_ratio'])} of OR and "
            f"{_points(macro['accuracy_degradation'])} of AD on average."
        ]
    columns = (
        Column("OR", "overthinking_ratio", write_percent),
        Column("AD", "accuracy_degradation", write_percent),
    )
    pairs = "one pair" if section["n_pairs"] == 1 else f"{section['n_pairs']} pairs"
    caption = f"Mean absolute difference over {pairs} of trajectories a question, in points"
    table = build_grid(document, index_figures(section), columns, caption=caption)
    return Section("diversity", "Trajectory diversity", "Section 3.2", text, [table])


def show_examples(document: Document) -> Section:
    """Figure 7."""
    curves, titles, rules = [], [], []
    for shape in document["examples"]["shapes"]:
        title = SHAPE_TITLES[shape["shape"]]
        rules.append(f"{title}: {shape['rule'][0].lower()}{shape['rule'][1:]}")
        if not shape["curves"]:
            rules[-1] += " No trajectory has this shape."
        for curve in shape["curves"]:
            curves.append(curve)
            place = f"{curve['model']}, {curve['benchmark']}, {curve['question_id']}, trajectory {curve['trajectory']}"
            titles.append(f"{title}. {place}: {panels.title_curve(curve)}")
    text = [
        "Recorded curves of three shapes, picked by rule. They say what occurs, not how often. ★ marks the earliest "
        "best position."
    ]
    group = PanelGroup(panels.panel_curves(curves, titles=titles))
    return Section("examples", "Example trajectories", "Figure 7", [*text, *rules], [group] if curves else [])


def show_question(document: Document) -> Section:
    """Figure 8."""
    question = document["examples"]["question"]
    curves = question["curves"]
    first = curves[0]
    text = [
        f"All {len(curves)} trajectories of {first['model']} on {first['benchmark']} question {first['question_id']}, "
        "on the same axes.",
        f"Chosen by rule: {question['rule'][0].lower()}{question['rule'][1:]}",
    ]
    titles = [f"{curve['trajectory']}: {panels.title_curve(curve)}" for curve in curves]
    group = PanelGroup(panels.panel_curves(curves, titles=titles), is_small=True)
    return Section("question", "All trajectories of one question", "Figure 8", text, [group])


def show_step_lengths(document: Document) -> Section:
    """Figure 9."""
    section = document["step_lengths"]
    rows = [
        [model, write_count(partition["step_tokens"]), *_write_steps(partition["models"][model])]
        for model in document["models"]
        for partition in section["partitions"]
    ]
    target = section["target_step_tokens"]
    text = ["The snapshot does not say which length its steps aim at."]
    if target is not None:
        text = [f"Steps aim at {target:,} tokens and end where paragraphs do, so their lengths vary."]
    if section["other_lengths"] is None:
        text.append("The snapshot does not have the blocks that other step lengths would be made of.")
    key = [
        Mark(panels.name_partition(partition), panels.style_partition(partition, idx))
        for idx, partition in enumerate(section["partitions"])
    ]
    parts: list[str | PanelGroup] = [
        PanelGroup(panels.panel_step_lengths(document), key if len(key) > 1 else ()),
        build_list(
            ["Model", "b", "Steps", "Mean tokens", "1,024 or more (%)"],
            rows,
            caption="Lengths over all steps of a model",
        ),
    ]
    return Section("step-lengths", "Step lengths", "Figure 9", text, parts)


def show_traces(document: Document) -> Section:
    """Outcome efficiency, first correct step and flips, by cell and by difficulty."""
    section = document["traces"]
    text = [
        "Outcome efficiency: the share of the thinking needed for the first position with most probes right, 0 "
        "where the end is wrong. RFCS: that position over the number of steps, where the end is right.",
        "A flip is a change of that majority from one position to the next; it is dangerous from right to wrong.",
    ]
    figures = index_figures(section)
    shares = (Column("OE", "outcome_efficiency", write_percent), Column("RFCS", "rfcs", write_percent))
    flips = (Column("All", "flips", write_number), Column("Dangerous", "dangerous_flips", write_number))
    parts: list[str | PanelGroup] = [
        build_grid(document, figures, shares, caption="Outcome efficiency (OE) and RFCS in percent"),
        build_grid(document, figures, flips, caption="Flips per trajectory"),
    ]
    shown = [report for report in section["by_difficulty"] if len(report["levels"]) > 1]
    if not shown:
        text.append("No benchmark has questions of at least two known difficulties.")
    else:
        parts.append(PanelGroup(panels.panel_difficulty(document)))
    parts += [_tabulate_difficulty(report) for report in shown]
    return Section("traces", "Traces and difficulty", None, text, parts)


def show_efficiency(document: Document) -> Section:
    """E3 and AES of what the oracles reach."""
    rows = [
        [
            STRATEGY_TITLES[Strategy(point["strategy"])],
            POINT_TITLES[point["point"]],
            write_percent(point["beta"]),
            write_percent(point["accuracy"]),
            write_number(point["e3"]),
            write_number(point["aes"]),
        ]
        for point in document["frontiers"]["efficiency"]
    ]
    text = [
        "E³ and AES weigh accuracy against tokens; full thinking has 1 and 0. These are those of each strategy's "
        "oracle, against the probes at the end of full thinking.",
        *_describe_weights(document["frontiers"]["efficiency"]),
    ]
    headings = ["Strategy", "Point", "Tokens (%)", "Accuracy (%)", "E³", "AES"]
    table = build_list(headings, rows, caption="What the oracles reach, over all cells", n_texts=2)
    return Section("efficiency", "Efficiency of the oracles", None, text, [table])


def _tabulate_frontiers(document: Document) -> str:
    rows = [
        [
            STRATEGY_TITLES[Strategy(board["strategy"])],
            board["model"] or "All",
            *(write_percent(board[name]) for name in ("endpoint_accuracy", "beta_match", "max_accuracy", "beta_sat")),
            *(write_percent(board[name]) for name in ("area", "uninformed_area")),
        ]
        for board in document["frontiers"]["boards"]
        if board["model"] is None or len(document["models"]) > 1
    ]
    headings = ["Strategy", "Models", "A_full", "β_match", "A_max", "β_sat", "Area", "Uninformed area"]
    return build_list(headings, rows, caption="Frontiers in percent, means over cells", n_texts=2)


def _tabulate_difficulty(report: Document) -> str:
    rows = [
        [
            str(level["difficulty"]),
            str(level["n_questions"]),
            *(c.write(level["figures"][c.name]) for c in TRACE_COLUMNS),
        ]
        for level in report["levels"]
    ]
    correlations = [report["over_questions"][column.name]["value"] for column in TRACE_COLUMNS]
    summary = ["Pearson's r", str(report["n_known"]), *(UNDEFINED if r is None else _signed(r) for r in correlations)]
    headings = ["Difficulty", "Questions", *(column.heading for column in TRACE_COLUMNS)]
    caption = f"{report['benchmark']}: means over the questions of a difficulty, all models; r over questions"
    return build_list(headings, rows, caption=caption, summary=summary)


def _describe_match(curve: Document) -> str:
    title = STRATEGY_TITLES[Strategy(curve["strategy"])]
    match = "never matches full thinking"
    if curve["beta_match"] == 0:
        match = "matches full thinking without any thinking"
    elif curve["beta_match"] is not None:
        match = f"matches full thinking at {format_percent(curve['beta_match'])} of the tokens"
    highest = format_percent(curve["max_accuracy"])
    return f"{title} {match} and reaches at most {highest}, at {format_percent(curve['beta_sat'])} of the tokens."


def _describe_weights(points: Sequence[Document]) -> list[str]:
    if not points:
        return []
    weights = points[0]["aes_weights"]
    return [
        f"E³ has ρ = {points[0]['rho']:g} and the weight w = A_full. AES weighs tokens saved by "
        f"{weights['tokens']:g}, accuracy gained by {weights['gain']:g} and lost by {weights['loss']:g}.".replace(
            "-", "\N{MINUS SIGN}"
        )
    ]


def _write_range(ranges: Document | None, name: str) -> str:
    return UNDEFINED if ranges is None else write_interval([ranges[name]["low"], ranges[name]["high"]])


def _write_steps(figures: Document) -> tuple[str, str, str]:
    share: Any = figures["long_share"]
    tail = UNDEFINED if share is None else format_hundredths(share, 3)
    return write_count(figures["n_steps"]), write_number(figures["mean_tokens"]), tail


def _points(fraction: float) -> str:
    return f"{format_hundredths(fraction)} points"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
