"""The page of efficiency results: which of them are asked for, their figure, and the table behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from app.files.efficiency_results import Paradigm
from app.plots.captions import Caption, format_percent
from app.plots.efficiency import (
    PARADIGM_TITLES,
    EfficiencyPoint,
    build_efficiency_figure,
    describe_shapes,
    has_one_reference,
)
from app.plots.frame import dump_figure
from app.services.efficiency_results import (
    ListedResult,
    ResultFilter,
    ResultOrder,
    ResultSort,
    list_choices,
    list_results,
)
from app.services.efficiency_sets import ListedSet, add_set, list_sets, remove_set
from app.web.formatting import NO_BREAK, plural
from app.web.security import OrganiserDep, OrganiserFormDep, ReaderDep, SessionDep
from app.web.templating import render_page

router = APIRouter(include_in_schema=False)

PATH = "/efficiency"
PAGE_RESULTS = 200
# More points than this would make neither a readable picture nor a light page.
MAX_DRAWN = 2000
DESCENDING_FIRST = frozenset({ResultSort.ACCURACY, ResultSort.E3, ResultSort.E3_PRINTED})
COLUMNS = (
    (ResultSort.METHOD, "Method", ""),
    (ResultSort.BENCHMARK, "Benchmark", ""),
    (ResultSort.BACKBONE, "Backbone", ""),
    (ResultSort.ACCURACY, "Accuracy", "%"),
    (ResultSort.TOKENS, "Tokens", "mean output"),
    (ResultSort.E3, "E³", "computed"),
    (ResultSort.E3_PRINTED, "E³", "printed"),
)


@dataclass(frozen=True)
class EfficiencyQuery:
    """The view an address asks for; None is all."""

    paradigm: Paradigm | None = None
    method: str | None = None
    backbone: str | None = None
    benchmark: str | None = None
    set: str | None = None
    sort: ResultSort = ResultSort.SOURCE
    order: Literal["ascending", "descending"] = "ascending"
    axis: Literal["linear", "log"] = "linear"
    cursor: str | None = None

    def address(self, path: str = PATH, **changes: str | None) -> str:
        """Return the address of this view, or of the one with these changes; another view begins at its first page."""
        shown = {**vars(self), "cursor": None, **changes}
        plain = {("sort", "source"), ("order", "ascending"), ("axis", "linear")}
        parameters = {name: str(value) for name, value in shown.items() if value and (name, str(value)) not in plain}
        return f"{path}?{urlencode(parameters)}" if parameters else path


@dataclass(frozen=True)
class EfficiencyFigure:
    """The figure as the page shows it: its JSON, title, key and the same in a sentence.

    `csv`, `shape`, `source` and `legend` are what every figure of the pages may have.
    """

    name: str
    download_name: str
    caption: Caption
    key: str
    sentence: str
    json: str
    csv: str
    shape: str = ""
    source: str = ""
    legend: tuple[()] = ()


@dataclass(frozen=True)
class SortLink:
    """A column's head: the address that sorts by it, and how it is sorted now."""

    title: str
    unit: str
    address: str
    state: str | None
    is_number: bool


@dataclass(frozen=True)
class EfficiencyPage:
    """Everything the template shows. `example` is a view with one reference, where this one has several."""

    query: EfficiencyQuery
    results: tuple[ListedResult, ...]
    n_total: int
    figure: EfficiencyFigure | None
    heads: tuple[SortLink, ...]
    pickers: tuple[tuple[str, str, tuple[tuple[str, str], ...], str | None], ...]
    sets: tuple[ListedSet, ...]
    n_printed: int
    differing: tuple[ListedResult, ...]
    example: tuple[str, str] | None
    csv_address: str
    json_address: str
    axis_address: str
    next_address: str | None


def read_query(
    paradigm: str = "",
    method: str = "",
    backbone: str = "",
    benchmark: str = "",
    set: str = "",
    sort: ResultSort = ResultSort.SOURCE,
    order: Literal["ascending", "descending"] = "ascending",
    axis: Literal["linear", "log"] = "linear",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> EfficiencyQuery:
    """Return the view an address asks for; a form that was sent as it stands has empty fields, which mean all."""
    known = Paradigm(paradigm) if paradigm in list(Paradigm) else None
    return EfficiencyQuery(
        known, method or None, backbone or None, benchmark or None, set or None, sort, order, axis, cursor
    )


@router.get(PATH)
def show_efficiency(
    request: Request, reader: ReaderDep, session: SessionDep, query: Annotated[EfficiencyQuery, Depends(read_query)]
) -> Response:
    """Show efficiency results."""
    return render_page(request, "efficiency.html", reader=reader, page=load_efficiency_page(session, query))


@router.get("/console/efficiency-results")
def show_sets(request: Request, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Show the sets of results to organisers, and the form that adds one."""
    return render_page(request, "efficiency_sets.html", reader=organiser, sets=list_sets(session))


@router.post("/console/efficiency-results")
def add(organiser: OrganiserDep, form: OrganiserFormDep, session: SessionDep) -> Response:
    """Add a set and show it."""
    added = add_set(session, form.fields, form.require_upload().path.read_bytes(), organiser=organiser)
    return RedirectResponse(EfficiencyQuery(set=added.set.name).address(), status_code=303)


@router.post("/console/efficiency-results/{name}/remove")
def remove(name: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Remove a set that an organiser added."""
    remove_set(session, name, organiser=organiser)
    return RedirectResponse("/console/efficiency-results", status_code=303)


def load_efficiency_page(session: Session, query: EfficiencyQuery) -> EfficiencyPage:
    """Return the page of the results that `query` asks for: six queries, however many there are."""
    wanted = ResultFilter(query.set, query.paradigm, query.method, query.backbone, query.benchmark)
    order = ResultOrder(query.sort, is_descending=query.order == "descending")
    shown = list_results(session, wanted, order=order, limit=PAGE_RESULTS, cursor=query.cursor)
    everything = list_results(session, wanted, limit=MAX_DRAWN)
    choices = list_choices(session)
    sets = list_sets(session)
    printed = [result for result in everything.items if result.agrees is not None]
    has_example = choices.benchmarks and choices.backbones and len({_place(r) for r in everything.items}) > 1
    return EfficiencyPage(
        query=query,
        results=shown.items,
        n_total=shown.n_total,
        figure=_draw(everything.items, query) if everything.items else None,
        heads=tuple(_head(query, *column) for column in COLUMNS),
        pickers=(
            _picker("benchmark", "Benchmark", "All benchmarks", choices.benchmarks, query.benchmark),
            _picker("backbone", "Backbone", "All backbones", choices.backbones, query.backbone),
            ("paradigm", "Paradigm", _name_paradigms(choices.paradigms), query.paradigm),
            _picker("method", "Method", "All methods", choices.methods, query.method),
            _picker("set", "Source", "All sources", tuple(found.name for found in sets), query.set),
        ),
        sets=sets,
        n_printed=len(printed),
        differing=tuple(result for result in printed if not result.agrees),
        example=_find_example(query, everything.items) if has_example else None,
        csv_address=query.address("/api/v1/efficiency-results", axis=None, format="csv"),
        json_address=query.address("/api/v1/efficiency-results", axis=None),
        axis_address=query.address(axis="linear" if query.axis == "log" else "log"),
        next_address=query.address(cursor=shown.next_cursor) if shown.next_cursor else None,
    )


def _picker(
    name: str, label: str, everything: str, values: Sequence[str], chosen: str | None
) -> tuple[str, str, tuple[tuple[str, str], ...], str | None]:
    return name, label, (("", everything), *((value, value) for value in values)), chosen


def _name_paradigms(paradigms: Sequence[Paradigm]) -> tuple[tuple[str, str], ...]:
    return ("", "All paradigms"), *((str(paradigm), PARADIGM_TITLES[paradigm]) for paradigm in paradigms)


def _head(query: EfficiencyQuery, sort: ResultSort, title: str, unit: str) -> SortLink:
    is_current = query.sort is sort
    first = "descending" if sort in DESCENDING_FIRST else "ascending"
    other = "ascending" if query.order == "descending" else "descending"
    address = query.address(sort=sort.value, order=other if is_current else first)
    is_number = sort in (*DESCENDING_FIRST, ResultSort.TOKENS)
    return SortLink(title, unit, address, query.order if is_current else None, is_number)


def _find_example(query: EfficiencyQuery, results: Sequence[ListedResult]) -> tuple[str, str]:
    """Return the words and the address of a view with one reference: the first result's benchmark and backbone."""
    first = results[0]
    address = query.address(
        benchmark=first.benchmark, backbone=first.backbone, set=first.set, method=None, paradigm=None
    )
    return f"{first.benchmark} with {first.backbone}", address


def _place(result: ListedResult) -> tuple[str, str, str]:
    return result.set, result.benchmark, result.backbone


def _draw(results: Sequence[ListedResult], query: EfficiencyQuery) -> EfficiencyFigure:
    points = [
        EfficiencyPoint(
            method=result.method,
            place=f"{result.benchmark}, {result.backbone}",
            paradigm=result.paradigm.value,
            accuracy=result.accuracy,
            tokens=result.tokens,
            base_accuracy=result.base_accuracy,
            base_tokens=result.base_tokens,
            e3=result.e3,
        )
        for result in results
    ]
    caption = Caption(_say_title(points), _say_data(results))
    return EfficiencyFigure(
        name="efficiency-figure",
        download_name="efficiency-results",
        caption=caption,
        key=_say_key(points),
        sentence=_say_figure(points),
        json=dump_figure(build_efficiency_figure(points, caption=caption, is_log=query.axis == "log")),
        csv=query.address("/api/v1/efficiency-results", axis=None, format="csv"),
    )


def _say_title(points: Sequence[EfficiencyPoint]) -> str:
    others = [point for point in points if point.paradigm != Paradigm.REFERENCE and point.e3 is not None]
    if not others:
        return "Only references, which others are compared with"
    if has_one_reference(points):
        best = max(others, key=lambda point: point.e3 or 0.0)
        return f"{best.method} has the highest E³ on {best.place}: {best.e3:.2f}"
    above = sum(1 for point in others if point.e3 is not None and point.e3 > 1)
    return f"{above} of {plural(len(others), 'result')} do better than their reference by E³"


def _say_data(results: Sequence[ListedResult]) -> str:
    sets = ", ".join(dict.fromkeys(result.set for result in results))
    cells = len({_place(result) for result in results})
    return f"{sets}, {plural(len(results), 'result')}, {plural(cells, 'reference')}."


def _say_key(points: Sequence[EfficiencyPoint]) -> str:
    shapes = describe_shapes(points)
    shapes = shapes[0].upper() + shapes[1:]
    if has_one_reference(points):
        return f"{shapes} Dotted lines join equal E³; the one through the reference is E³ 1."
    return f"{shapes} The dotted lines are the references: their accuracy, and all of their tokens."


def _say_figure(points: Sequence[EfficiencyPoint]) -> str:
    listed = [
        f"{point.method} {format_percent(point.accuracy)} at {point.tokens:,.0f}{NO_BREAK}tokens" for point in points
    ]
    if has_one_reference(points):
        return f"Accuracy against mean output tokens on {points[0].place}: {'; '.join(listed)}."
    saving = [point for point in points if point.tokens < point.base_tokens]
    keeping = sum(1 for point in saving if point.accuracy >= point.base_accuracy)
    return (
        "Change of accuracy against the share of the reference’s tokens. "
        f"{len(saving):,} of {plural(len(points), 'result')} use fewer tokens than their reference, "
        f"{keeping:,} of these without losing accuracy."
    )
