"""What the client returns: frozen objects that are read from a server's JSON by their own fields."""

from __future__ import annotations

import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class UnexpectedAnswerError(ValueError):
    """An answer lacks what every server of this kind sends."""


@dataclass(frozen=True)
class Account:
    """Whose token it is."""

    name: str
    team: str


@dataclass(frozen=True)
class Meter:
    """One limit and how much of it is used; `limit` and `left` are None where there is none.

    `next_at` is when one more fits, None where one does now, or where waiting does not help.
    """

    limit: int | None
    used: int
    left: int | None
    next_at: datetime | None


@dataclass(frozen=True)
class Allowance:
    """What a team may still submit on a snapshot, in 24 hours and in all.

    Attributes
    ----------
    hidden_splits : the splits that `hidden_day` and `hidden_total` are about.
    open_day : submissions on the other splits. rejected_day : files with problems, on splits with a limit.
    """

    snapshot: str
    hidden_splits: tuple[str, ...]
    hidden_day: Meter
    hidden_total: Meter
    open_day: Meter
    rejected_day: Meter


@dataclass(frozen=True)
class Snapshot:
    """A frozen set of measurements; `hidden_splits` are those whose labels are not public."""

    name: str
    title: str
    kind: str
    sha256: str
    state: str
    probes_per_position: int
    trajectories_per_question: int
    n_questions: int
    n_trajectories: int
    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    splits: tuple[str, ...]
    hidden_splits: tuple[str, ...]
    superseded_by: str | None = None


@dataclass(frozen=True)
class Submission:
    """A submission as lists show it."""

    id: str
    method: str
    team: str
    snapshot: str
    split: str
    strategy: str
    state: str
    actions_sha256: str
    n_settings: int | None
    created_at: datetime
    scored_at: datetime | None
    published_at: datetime | None


@dataclass(frozen=True)
class BoardRow:
    """A method on a board: accuracies, areas and budgets are fractions; None is a figure that does not exist.

    `rank` goes up to `last_rank` where methods share it; `rank_reason` says why there is none.
    """

    rank: int | None
    last_rank: int | None
    rank_reason: str | None
    submission_id: str
    method: str
    team: str
    is_control: bool
    n_settings: int
    realised_potential: float | None
    realised_potential_low: float | None
    realised_potential_high: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    gap: float
    max_accuracy: float
    beta_match: float | None
    tokens_saved: float | None
    accuracy_25: float
    accuracy_50: float
    accuracy_75: float
    best_e3: float | None
    reason: str | None
    published_at: datetime


@dataclass(frozen=True)
class Leaderboard:
    """A board, best method first."""

    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: str
    model: str | None
    benchmark: str | None
    scorer_version: str
    ranks_are_provisional: bool
    rows: tuple[BoardRow, ...]


@dataclass(frozen=True)
class Board:
    """A submission on one board; `model` and `benchmark` are None where the board has all of them."""

    model: str | None
    benchmark: str | None
    n_settings: int
    realised_potential: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    max_accuracy: float
    beta_match: float | None
    accuracy_at: dict[str, float]
    best_e3: float | None
    reason: str | None
    intervals: dict[str, Any] | None = None


@dataclass(frozen=True)
class Setting:
    """One setting over all cells of the split; None unless it covers them all."""

    setting: str
    beta: float | None
    accuracy: float | None
    gap: float | None
    early_loss: float | None
    late_loss: float | None
    wasted: float | None
    forgone: float | None
    e3: float | None


@dataclass(frozen=True)
class Score:
    """A score: the summary over the whole snapshot (None where some cell is not covered), every board, every setting.

    On a hidden split the server tells no settings, and `settings` is empty.
    """

    snapshot: str
    split: str
    strategy: str
    scorer_version: str
    actions_sha256: str
    summary: Board | None
    boards: tuple[Board, ...]
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class CellOverthinking:
    """How much one model overthinks on one benchmark; all but the counts and tokens are fractions."""

    model: str
    benchmark: str
    questions: int
    trajectories: int
    mean_thinking_tokens: float
    full_thinking_accuracy: float | None
    zero_step_accuracy: float
    endpoint_accuracy: float
    overthinking_ratio: float
    accuracy_degradation: float


@dataclass(frozen=True)
class Overthinking:
    """The overthinking figures of a split; `macro` holds the same over all cells by name, or is None."""

    snapshot: str
    split: str
    cells: tuple[CellOverthinking, ...]
    macro: dict[str, Any] | None


@dataclass(frozen=True)
class CellFrontier:
    """The oracle frontier of one cell: exact pairs of tokens (`cost`) and right probes (`correct`), both increasing.

    The pairs are left out where the labels are hidden.
    """

    model: str
    benchmark: str
    strategy: str
    total_thinking_tokens: int
    total_probes: int
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float
    cost: tuple[int, ...] = ()
    correct: tuple[int, ...] = ()


@dataclass(frozen=True)
class MacroFrontier:
    """A strategy's frontier over all cells: `accuracy` at the relative budgets in `grid`."""

    strategy: str
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float
    grid: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True)
class Frontiers:
    """The frontiers of a split."""

    snapshot: str
    split: str
    cells: tuple[CellFrontier, ...]
    macro: tuple[MacroFrontier, ...]


@dataclass(frozen=True)
class EfficiencyResult:
    """A published result of a method that changes the generation itself, beside its reference, with its source."""

    set: str
    benchmark: str
    paradigm: str
    method: str
    backbone: str
    accuracy: float
    tokens: float
    base_accuracy: float
    base_tokens: float
    e3: float | None
    e3_reason: str | None
    e3_printed: float | None
    agrees: bool | None
    citation: str
    url: str | None
    license_note: str


def read_result(kind: type[T], body: Any, *, place: str = "the answer") -> T:
    """Build an object of a frozen dataclass from decoded JSON; further keys of the JSON are left aside.

    Raises
    ------
    UnexpectedAnswerError : a field is missing or of another type, with its place.

    Examples
    --------
    >>> read_result(Account, {"name": "ada", "team": "engines", "role": "member"})
    Account(name='ada', team='engines')
    >>> read_result(Account, {"name": "ada"})
    Traceback (most recent call last):
    app.client_results.UnexpectedAnswerError: the answer has no 'team'
    """
    if not isinstance(body, Mapping):
        raise UnexpectedAnswerError(f"{place} is no object")
    values = {}
    for name, (hint, is_required) in _list_fields(cast("Hashable", kind)).items():
        if name in body:
            values[name] = _convert(hint, body[name], f"{place}.{name}")
        elif is_required:
            raise UnexpectedAnswerError(f"{place} has no {name!r}")
    return kind(**values)


@cache
def _list_fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    hints = get_type_hints(kind)
    return {field.name: (hints[field.name], field.default is MISSING) for field in fields(kind)}


def _convert(hint: Any, value: Any, place: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _convert(next(p for p in parts if p is not type(None)), value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise UnexpectedAnswerError(f"{place} is no list")
        return tuple(_convert(parts[0], item, f"{place}[{idx}]") for idx, item in enumerate(value))
    if is_dataclass(hint):
        return read_result(cast("type[Any]", hint), value, place=place)
    if hint is datetime:
        return _read_time(value, place)
    expected = origin or hint
    wanted = (int, float) if expected is float else expected
    if not isinstance(value, wanted) or (isinstance(value, bool) and expected is not bool):
        raise UnexpectedAnswerError(f"{place} is {value!r}, not {expected.__name__}")
    return float(value) if expected is float else value


def _read_time(value: Any, place: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError) as exc:
        raise UnexpectedAnswerError(f"{place} is no time") from exc
