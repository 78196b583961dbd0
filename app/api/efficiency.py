"""Efficiency results as JSON and CSV."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment, wants_csv
from app.api.documentation import CURSOR, LIMIT, Responses, errors, multipart
from app.api.schemas import EXAMPLE_SHA256, Answer, Fraction01, Sha256
from app.files.efficiency_results import Paradigm
from app.services import efficiency_results as service
from app.services.efficiency_results import ResultFilter, ResultOrder, ResultSort
from app.services.efficiency_sets import add_set, list_sets, remove_set
from app.web.security import OrganiserDep, OrganiserFormDep, SessionDep

router = APIRouter(prefix="/efficiency-results", tags=["efficiency results"])

SOURCE_EXAMPLE: dict[str, JsonValue] = {
    "citation": "J. Huang et al.: EffiReason-Bench. arXiv:2511.10201, 2025.",
    "url": "https://arxiv.org/abs/2511.10201",
    "license_note": "Figures as printed, given with their source.",
}
RESULT_EXAMPLE: dict[str, JsonValue] = {
    "set": "effireason-bench",
    "benchmark": "GSM8K",
    "paradigm": "reasoning_blueprint",
    "method": "CoD",
    "backbone": "Qwen2.5-7B-Instruct",
    "accuracy": 0.6482,
    "tokens": 45.94,
    "base_accuracy": 0.906,
    "base_tokens": 292.86,
    "tokens_share": 0.1569,
    "e3": 0.2094,
    "e3_reason": None,
    "e3_printed": 0.21,
    "e3_digits": 2,
    "agrees": True,
    **SOURCE_EXAMPLE,
}


class EfficiencyResultOut(Answer):
    """A published result of a method that changes the generation itself, beside the reference of its source."""

    set: str
    benchmark: str
    paradigm: Paradigm
    method: str
    backbone: str
    accuracy: Fraction01
    tokens: float = Field(description="Mean output tokens of a question.")
    base_accuracy: Fraction01 = Field(description="Of the reference of the same set, benchmark and backbone.")
    base_tokens: float
    tokens_share: float | None = Field(description="`tokens` / `base_tokens`; null where the reference has none.")
    e3: float | None = Field(description="Computed with ρ = −1 and w = `base_accuracy`; null with `e3_reason`.")
    e3_reason: str | None
    e3_printed: float | None = Field(description="As the source prints it, to `e3_digits` decimals.")
    e3_digits: int | None
    agrees: bool | None = Field(description="Whether `e3` rounds to `e3_printed`; null where one is missing.")
    citation: str
    url: str | None
    license_note: str

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"example": RESULT_EXAMPLE})


class EfficiencyResultPageOut(BaseModel):
    """Some results, and how many there are in all."""

    items: list[EfficiencyResultOut]
    n_total: int
    next_cursor: str | None


class ResultSourceOut(Answer):
    """Where the figures of a set come from."""

    title: str
    citation: str
    url: str | None
    license_note: str


class EfficiencySetOut(Answer):
    """A set of results with one source; `added_by` is null for one that comes with the program."""

    name: str
    source: ResultSourceOut
    sha256: Sha256 = Field(examples=[EXAMPLE_SHA256])
    n_results: int
    is_shipped: bool
    added_by: str | None
    created_at: datetime


class EfficiencySetsOut(BaseModel):
    """Every set, by name."""

    items: list[EfficiencySetOut]


class EfficiencySetForm(BaseModel):
    """What a set is called, and where its figures come from."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9._-]{0,63}$")
    title: str = Field(max_length=200)
    citation: str = Field(max_length=1000)
    license_note: str = Field(max_length=500, description="On what terms the figures are repeated here.")
    url: str | None = Field(default=None, max_length=500)


EXISTING: Responses = {200: {"model": EfficiencySetOut, "description": "The same content is a set already: this one."}}
CREATED: Responses = {**EXISTING, **errors(400, 401, 403, 409, 413, 422)}
FILE = "CSV with the columns benchmark, paradigm, method, backbone, accuracy, tokens and, if wanted, e3."


def read_filter(
    set: Annotated[str | None, Query(description="The name of a set.")] = None,
    paradigm: Paradigm | None = None,
    method: str | None = None,
    backbone: str | None = None,
    benchmark: str | None = None,
) -> ResultFilter:
    """Return which results are asked for."""
    return ResultFilter(set, paradigm, method, backbone, benchmark)


def read_order(
    sort: Annotated[ResultSort, Query(description="Results without a value come last.")] = ResultSort.SOURCE,
    order: Literal["ascending", "descending"] = "ascending",
) -> ResultOrder:
    """Return how they are sorted."""
    return ResultOrder(sort, is_descending=order == "descending")


FilterDep = Annotated[ResultFilter, Depends(read_filter)]
OrderDep = Annotated[ResultOrder, Depends(read_order)]


@router.get(
    "",
    summary="List efficiency results",
    response_model=EfficiencyResultPageOut,
    responses=errors(422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def list_results(
    session: SessionDep,
    wanted: FilterDep,
    order: OrderDep,
    limit: LIMIT = 50,
    cursor: CURSOR = None,
    format: Annotated[Literal["json", "csv"] | None, Query(description="Else what `Accept` asks for.")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> EfficiencyResultPageOut | Response:
    """Return results of methods that change the generation itself and so have no actions to score.

    JSON is paged. CSV holds all that meet the filter, with the same columns in the same order.
    """
    if wants_csv(format, accept):
        content = service.format_results_csv(service.list_results(session, wanted, order=order, limit=None))
        return csv_attachment(content, filename="efficiency-results.csv", vary="Accept")
    page = service.list_results(session, wanted, order=order, limit=limit, cursor=cursor)
    return EfficiencyResultPageOut.model_validate(page, from_attributes=True)


@router.get("/sets", summary="List the sets of efficiency results")
def list_all_sets(session: SessionDep) -> EfficiencySetsOut:
    """Return every set by name: its source, its hash, who added it."""
    return EfficiencySetsOut(items=[EfficiencySetOut.model_validate(found) for found in list_sets(session)])


@router.post(
    "",
    status_code=201,
    summary="Add a set of efficiency results",
    openapi_extra=multipart(EfficiencySetForm, file_description=FILE),
    responses=CREATED,
)
def create_set(
    organiser: OrganiserDep, form: OrganiserFormDep, session: SessionDep, response: Response
) -> EfficiencySetOut:
    """Store a set of results with its source: all of the file or nothing. For organisers.

    The same content again answers 200 with the set that exists.
    """
    content = form.require_upload().path.read_bytes()
    added = add_set(session, form.fields, content, organiser=organiser)
    response.status_code = 201 if added.created else 200
    response.headers["Location"] = f"/api/v1/efficiency-results?set={added.set.name}"
    return EfficiencySetOut.model_validate(added.set)


@router.delete(
    "/sets/{name}", status_code=204, summary="Remove a set of efficiency results", responses=errors(401, 403, 404, 409)
)
def delete_set(name: str, organiser: OrganiserDep, session: SessionDep) -> None:
    """Remove a set that an organiser added, with its results. For organisers."""
    remove_set(session, name, organiser=organiser)
