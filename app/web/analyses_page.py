"""A snapshot's analyses as a page: the sections that `otboard analyse` writes, out of what jobs have stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.strategies import Strategy
from app.plots.captions import Caption, describe_data
from app.report_html import mark_code, render_key
from app.report_sections import (
    PanelGroup,
    Section,
    show_baseline,
    show_direct_answers,
    show_diversity,
    show_efficiency,
    show_examples,
    show_frontiers,
    show_intervals,
    show_local_changes,
    show_overthinking,
    show_question,
    show_step_lengths,
    show_thinning,
    show_traces,
)
from app.report_values import Document
from app.services.analyses import AnalysisState, find_state, list_analyses
from app.services.frontiers import EVALUATOR_VERSION
from app.services.release import are_labels_told
from app.services.snapshot_summaries import SnapshotSummary, get_summary
from app.services.snapshots import get_snapshot
from app.web.board_page import choose_split
from app.web.formatting import split_title
from app.web.panels import PanelView, show_panel

# What each section of the page is made from, in the page's order, and whose table its CSV is.
SECTIONS: tuple[tuple[Callable[[Document], Section], tuple[str, ...]], ...] = (
    (show_overthinking, ("overthinking",)),
    (show_baseline, ("overthinking",)),
    (show_intervals, ("intervals", "overthinking")),
    (show_local_changes, ("local_changes",)),
    (show_frontiers, ("frontiers", "overthinking")),
    (show_direct_answers, ("direct_answers",)),
    (show_thinning, ("thinning", "overthinking")),
    (show_diversity, ("diversity",)),
    (show_examples, ("examples",)),
    (show_question, ("examples",)),
    (show_step_lengths, ("step_lengths",)),
    (show_traces, ("traces",)),
    (show_efficiency, ("efficiency", "frontiers")),
)


@dataclass(frozen=True)
class PanelsView:
    """Figures side by side with their key, HTML of this program's own making."""

    panels: tuple[PanelView, ...]
    key_html: str
    is_small: bool


@dataclass(frozen=True)
class SectionView:
    """A section of the page: paragraphs and tables are HTML of this program's own making, texts in it escaped."""

    anchor: str
    title: str
    counterpart: str | None
    paragraphs: tuple[str, ...]
    parts: tuple[str | PanelsView, ...]
    kind: str | None


@dataclass(frozen=True)
class AnalysesPage:
    """Everything the template of a snapshot's analyses shows; `status` says why there is nothing, where there is."""

    snapshot: SnapshotSummary
    address: str
    split: str
    splits: tuple[tuple[str, str], ...]
    status: str
    state: AnalysisState
    sections: tuple[SectionView, ...]


def load_analyses_page(session: Session, name: str, *, split: str | None) -> AnalysesPage:
    """Return the analyses of a split as far as they are stored; nothing is computed here."""
    summary = get_summary(session, name)
    snapshot = get_snapshot(session, name)
    split = split or choose_split(snapshot, summary.splits)
    stored = list_analyses(session, snapshot, split=split)
    document = assemble_document(session, snapshot, stored, split=split)
    return AnalysesPage(
        snapshot=summary,
        address=f"/snapshots/{name}/analyses",
        split=split,
        splits=tuple((known, split_title(known).capitalize()) for known in summary.splits),
        status=describe_status(snapshot, split=split),
        state=find_state(session, snapshot, split=split),
        sections=tuple(list_section_views(document)) if document else (),
    )


def describe_status(snapshot: models.Snapshot, *, split: str) -> str:
    """Return whether analyses of a split can be shown: ready, not_frozen or hidden."""
    if not snapshot.is_frozen:
        return "not_frozen"
    return "ready" if are_labels_told(snapshot, split) else "hidden"


def assemble_document(
    session: Session, snapshot: models.Snapshot, stored: Mapping[str, Document], *, split: str
) -> Document | None:
    """Return what `otboard analyse` writes for the split, as far as it is stored; None before its first part is."""
    if "overthinking" not in stored:
        return None
    cells = stored["overthinking"]["cells"]
    document: Document = {
        "snapshot": snapshot.name,
        "kind": snapshot.kind,
        "split": split,
        "title": snapshot.title,
        "models": list(dict.fromkeys(cell["model"] for cell in cells)),
        "benchmarks": list(dict.fromkeys(cell["benchmark"] for cell in cells)),
        "n_questions": {cell["benchmark"]: cell["questions"] for cell in cells},
        "intervals": None,
        **stored,
    }
    boards = [describe_board(row) for row in list_model_boards(session, snapshot, split=split)]
    whole = [board for board in boards if board["model"] is None]
    if len(whole) == len(Strategy):
        points = stored.get("efficiency", {}).get("points", [])
        document["frontiers"] = {"boards": boards, "macro": whole, "efficiency": points}
    return document


def list_model_boards(session: Session, snapshot: models.Snapshot, *, split: str) -> Sequence[models.BoardFrontier]:
    """Return the stored frontiers of the whole snapshot, then of each model over its benchmarks."""
    if not are_labels_told(snapshot, split):
        return []
    table = models.BoardFrontier
    query = select(table).where(
        table.snapshot_id == snapshot.id,
        table.split == split,
        table.benchmark.is_(None),
        table.evaluator_version == EVALUATOR_VERSION,
    )
    places = {None: -1} | {model["name"]: idx for idx, model in enumerate(snapshot.manifest["models"])}
    strategies = [str(strategy) for strategy in Strategy]
    rows = session.scalars(query).all()
    return sorted(rows, key=lambda row: (places[row.model], strategies.index(row.strategy)))


def describe_board(row: models.BoardFrontier) -> Document:
    """Return a stored frontier under the names that an analysis has."""
    figures = ("beta_match", "max_accuracy", "beta_sat", "area", "uninformed_area")
    return {
        "model": row.model,
        "strategy": row.strategy,
        "grid_intervals": len(row.grid_accuracy) - 1,
        "cells": row.n_cells,
        "endpoint_accuracy": row.full_accuracy,
        **{name: getattr(row, name) for name in figures},
        "accuracy": row.grid_accuracy,
        "uninformed_accuracy": row.uninformed_grid,
    }


def list_section_views(document: Document) -> list[SectionView]:
    """Return the sections whose figures are stored."""
    views = []
    for build, kinds in SECTIONS:
        if any(document.get(kind) is None for kind in kinds):
            continue
        kind = None if kinds[0] == "frontiers" else kinds[0]
        views.append(show_section(build(document), document, kind=kind))
    return views


def show_section(section: Section, document: Document, *, kind: str | None) -> SectionView:
    """Return a section as the page shows it."""
    parts: list[str | PanelsView] = []
    n_panels = 0
    for part in section.parts:
        if isinstance(part, PanelGroup):
            parts.append(show_group(part, section, document, first=n_panels))
            n_panels += len(part.panels)
        else:
            parts.append(part)
    return SectionView(
        anchor=section.anchor,
        title=section.title,
        counterpart=section.counterpart,
        paragraphs=tuple(mark_code(text) for text in section.text),
        parts=tuple(parts),
        kind=kind,
    )


def show_group(group: PanelGroup, section: Section, document: Document, *, first: int) -> PanelsView:
    """Return figures that stand side by side; their place in the section is part of their names."""
    split = document["split"]
    subtitle = describe_data(
        snapshot=document["snapshot"],
        split=split,
        place=section.title.lower(),
        n_questions=None,
        kind=document["kind"],
    )
    panels = [
        show_panel(
            panel.figure,
            name=f"{section.anchor}-figure-{number}",
            caption=Caption(panel.title, subtitle),
            download_name=f"{document['snapshot']}-{split}-{section.anchor}-{number}",
            is_wide=panel.is_wide,
        )
        for number, panel in enumerate(group.panels, start=first + 1)
    ]
    return PanelsView(tuple(panels), render_key(group.key), group.is_small)
