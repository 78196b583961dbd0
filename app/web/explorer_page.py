"""The explorer of accuracy curves: any trajectory of a snapshot, all of a question's side by side, examples by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from app.plots.captions import Caption, describe_data
from app.report_examples import CurveExample
from app.report_panels import panel_curves, title_curve
from app.report_sections import SHAPE_TITLES
from app.services.analyses import list_analyses
from app.services.explorer import ShownQuestion, find_question, list_open_questions
from app.services.snapshot_summaries import SnapshotSummary, get_summary
from app.services.snapshots import get_snapshot
from app.web.analyses_page import describe_status
from app.web.board_page import choose_split
from app.web.formatting import split_title
from app.web.panels import PanelView, show_panel

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TrajectoryQuery:
    """Which trajectories an address asks for; empty where it leaves the choice to the page."""

    split: str = ""
    model: str = ""
    benchmark: str = ""
    question_id: str = ""
    trajectory: str = ""

    def address(self, path: str, **changes: str) -> str:
        """Return the address of this view, or of the one with these changes."""
        shown = {name: value for name, value in {**vars(self), **changes}.items() if value}
        return f"{path}?{urlencode(shown)}"


@dataclass(frozen=True)
class PositionRow:
    """One position of a trajectory."""

    position: int
    retained_tokens: int
    share: float
    correct_probes: int
    accuracy: float
    is_reference: bool


@dataclass(frozen=True)
class ExampleLink:
    """A trajectory that shows a shape, found by a stated rule."""

    text: str
    address: str


@dataclass(frozen=True)
class ExampleGroup:
    """The trajectories of one shape with the rule that finds them."""

    title: str
    rule: str
    links: tuple[ExampleLink, ...]


@dataclass(frozen=True)
class ExplorerPage:
    """Everything the template of the explorer shows."""

    snapshot: SnapshotSummary
    address: str
    query: TrajectoryQuery
    status: str
    splits: Options
    models: Options
    benchmarks: Options
    questions: Options
    trajectories: Options
    shown: ShownQuestion | None
    panels: tuple[PanelView, ...]
    positions: tuple[PositionRow, ...]
    sentence: str
    rest_address: str
    examples: tuple[ExampleGroup, ...]


def load_explorer_page(session: Session, name: str, query: TrajectoryQuery) -> ExplorerPage:
    """Return the trajectories asked for; what an address does not say, or says wrongly, is the first there is."""
    summary = get_summary(session, name)
    snapshot = get_snapshot(session, name)
    split = query.split if query.split in summary.splits else choose_split(snapshot, summary.splits)
    model = query.model if query.model in summary.models else summary.models[0]
    benchmark = query.benchmark if query.benchmark in summary.benchmarks else summary.benchmarks[0]
    status = describe_status(snapshot, split=split)
    questions = list_open_questions(session, snapshot, benchmark=benchmark, split=split) if status == "ready" else ()
    question_id = query.question_id if query.question_id in questions else next(iter(questions), "")
    shown = (
        find_question(session, snapshot, model=model, benchmark=benchmark, question_id=question_id)
        if question_id
        else None
    )
    chosen = [c for c in shown.curves if str(c.trajectory) == query.trajectory] if shown else []
    query = TrajectoryQuery(split, model, benchmark, question_id, query.trajectory if chosen else "")
    path = f"/snapshots/{name}/trajectories"
    rest = {"benchmark": benchmark, "question_id": question_id}
    analyses = list_analyses(session, snapshot, split=split, kinds=("examples",))
    return ExplorerPage(
        snapshot=summary,
        address=path,
        query=query,
        status=status,
        splits=tuple((known, split_title(known).capitalize()) for known in summary.splits),
        models=tuple((known, known) for known in summary.models),
        benchmarks=tuple((known, known) for known in summary.benchmarks),
        questions=tuple((known, known) for known in questions),
        trajectories=(("", "All"), *((str(c.trajectory), str(c.trajectory)) for c in shown.curves)) if shown else (),
        shown=shown,
        panels=draw_curves(summary, shown, chosen) if shown else (),
        positions=list_positions(chosen[0]) if chosen else (),
        sentence=describe_question(shown) if shown else "",
        rest_address=f"/api/v1/snapshots/{name}/trajectories?{urlencode(rest)}",
        examples=list_examples(analyses.get("examples"), path, split=split),
    )


def draw_curves(summary: SnapshotSummary, shown: ShownQuestion, chosen: list[CurveExample]) -> tuple[PanelView, ...]:
    """Draw one trajectory wide, or all of the question, each in its own panel on the same axes."""
    curves = [asdict(curve) for curve in chosen or shown.curves]
    titles = [f"Trajectory {curve['trajectory']}: {title_curve(curve)}" for curve in curves]
    place = f"{shown.model} on {shown.benchmark}, question {shown.question_id}"
    subtitle = describe_data(snapshot=summary.name, split=shown.split, place=place, n_questions=None, kind=summary.kind)
    return tuple(
        show_panel(
            panel.figure,
            name=f"trajectory-{curve['trajectory']}",
            caption=Caption(panel.title, subtitle),
            download_name=f"{summary.name}-{shown.question_id}-{curve['trajectory']}",
            sentence=describe_curve(curve),
            is_wide=bool(chosen),
        )
        for panel, curve in zip(panel_curves(curves, titles=titles), curves, strict=True)
    )


def describe_curve(curve: Mapping[str, Any]) -> str:
    """Return a trajectory's curve in words.

    Examples
    --------
    >>> describe_curve({"retained_tokens": [0, 10], "correct_probes": [1, 4], "probes_per_position": 4, "reference": 1})
    'The probes are right 1 of 4 times without thinking, 4 of 4 at position 1 of 1 first of all, and 4 of 4 at the end.'
    """
    correct, n_probes, best = curve["correct_probes"], curve["probes_per_position"], curve["reference"]
    return (
        f"The probes are right {correct[0]} of {n_probes} times without thinking, {correct[best]} of {n_probes} at "
        f"position {best} of {len(correct) - 1} first of all, and {correct[-1]} of {n_probes} at the end."
    )


def describe_question(shown: ShownQuestion) -> str:
    """Return in a sentence how a question's trajectories end and could have ended."""
    ends = [curve.correct_probes[-1] / curve.probes_per_position for curve in shown.curves]
    bests = [max(curve.correct_probes) / curve.probes_per_position for curve in shown.curves]
    n = len(shown.curves)
    kind = "trajectory" if n == 1 else "trajectories"
    return (
        f"{n} {kind}: at the end {100 * sum(ends) / n:.0f}\u00a0% of the probes are right, at each trajectory’s best "
        f"position {100 * sum(bests) / n:.0f}\u00a0%."
    )


def list_positions(curve: CurveExample) -> tuple[PositionRow, ...]:
    """Return every position of a trajectory."""
    total = max(1, curve.retained_tokens[-1])
    points = zip(curve.retained_tokens, curve.correct_probes, strict=True)
    return tuple(
        PositionRow(
            position=position,
            retained_tokens=tokens,
            share=tokens / total,
            correct_probes=correct,
            accuracy=correct / curve.probes_per_position,
            is_reference=position == curve.reference,
        )
        for position, (tokens, correct) in enumerate(points)
    )


def list_examples(examples: Mapping[str, Any] | None, path: str, *, split: str) -> tuple[ExampleGroup, ...]:
    """Return links to the stored examples of each shape, and to the question whose trajectories differ most."""
    if examples is None:
        return ()
    groups = [
        ExampleGroup(SHAPE_TITLES[shape["shape"]], shape["rule"], tuple(_link(c, path, split) for c in shape["curves"]))
        for shape in examples["shapes"]
    ]
    question = examples["question"]
    first = question["curves"][0]
    whole = ExampleLink(_name(first), _query(first, split).address(path, trajectory=""))
    return (*groups, ExampleGroup("Most diverse question", question["rule"], (whole,)))


def _link(curve: Mapping[str, Any], path: str, split: str) -> ExampleLink:
    return ExampleLink(f"{_name(curve)}, trajectory {curve['trajectory']}", _query(curve, split).address(path))


def _name(curve: Mapping[str, Any]) -> str:
    return f"{curve['model']}, {curve['benchmark']}, {curve['question_id']}"


def _query(curve: Mapping[str, Any], split: str) -> TrajectoryQuery:
    return TrajectoryQuery(split, curve["model"], curve["benchmark"], curve["question_id"], str(curve["trajectory"]))
