"""How figures, times and names read on pages: percent with one decimal, units always, a dash for what is undefined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from app.evaluator.strategies import Strategy
from app.plots.captions import STRATEGY_NOUNS, STRATEGY_TITLES, format_hundredths, format_percent
from app.web.panels import format_value

UNDEFINED = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"
SECONDS_PER_UNIT = (
    ("year", 365 * 86400),
    ("month", 30 * 86400),
    ("week", 7 * 86400),
    ("day", 86400),
    ("hour", 3600),
    ("minute", 60),
)
SECONDS_PER_MINUTE = 60
HOURS_OF_TWO_DAYS = 48
BYTES_PER_UNIT = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))

RANK_REASONS = {
    "control": "A control has no rank: it shows what a method has to beat.",
    "flagged": "No rank: an organiser flagged this entry.",
    "too_few_questions": "No rank: every cell of this board has fewer than 20 questions.",
    "no_potential": "No rank: the oracle does not exceed the uninformed reference on this board.",
    "too_coarse": "No rank: the labels are hidden, and this board has too few units to tell a realised potential.",
}
BOARD_REASONS = {
    "no_potential": "The oracle's area is not above the uninformed reference's, so there is no potential to realise.",
    "too_coarse": "The labels are hidden, and this board has too few units to tell a realised potential.",
    "held_back": "The file differs too little there from what has been told before.",
    "not_all_cells_covered": "The file does not cover every cell of the board.",
    "full_thinking_accuracy_never_reached": "The curve never reaches the accuracy of full thinking.",
    "no_setting_covers_all_cells": "No single setting covers all cells of the board.",
}
STATE_TITLES = {
    "received": "Waiting to be scored",
    "validating": "Being checked",
    "scoring": "Being scored",
    "scored": "Scored, not published",
    "withheld": "Withheld until the organiser releases it",
    "published": "Published",
    "rejected": "Rejected: the file has problems",
    "failed": "Failed on our side",
    "withdrawn": "Withdrawn",
}

RUN_STATE_TITLES = {
    "created": "Not started",
    "running": "Being measured",
    "paused": "Paused",
    "cancelled": "Cancelled",
    "finished": "Finished, not assembled",
    "assembled": "Assembled",
    "failed": "Stopped: questions failed",
}


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction as percent with its unit, a dash where it is undefined."""
    return UNDEFINED if fraction is None else format_percent(fraction, digits)


def hundredths(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction times a hundred, for columns whose head names the unit."""
    return UNDEFINED if fraction is None else format_hundredths(fraction, digits)


def points(fraction: float | None) -> str:
    """Return a difference of accuracies in points.

    Examples
    --------
    >>> points(0.019), points(0.01)
    ('1.9\\xa0points', '1.0\\xa0points')
    """
    return UNDEFINED if fraction is None else f"{format_hundredths(fraction)}{NO_BREAK}points"


def count(number: float | None) -> str:
    """Return a count with thousands separated by commas, rounded to whole ones.

    Examples
    --------
    >>> count(92448), count(6237.6), count(None)
    ('92,448', '6,238', '–')
    """
    return UNDEFINED if number is None else f"{round(number):,}"


def plural(number: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "setting"), plural(1200, "setting")
    ('1\\xa0setting', '1,200\\xa0settings')
    """
    return f"{number:,}{NO_BREAK}{noun}{'' if number == 1 else 's'}"


def places(rank: int | None, last_rank: int | None) -> str:
    """Return the places that a rank stands for: those of all methods that share it.

    Examples
    --------
    >>> places(2, 5), places(1, 1), places(None, None)
    ('2–5', '1', '–')
    """
    if rank is None:
        return UNDEFINED
    return str(rank) if last_rank in (None, rank) else f"{rank}–{last_rank}"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return how long ago a time was, in its largest whole unit.

    Examples
    --------
    >>> ago(datetime(2026, 7, 21, 10, tzinfo=UTC), datetime(2026, 7, 23, 9, tzinfo=UTC))
    '1\\xa0day ago'
    """
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for unit, length in SECONDS_PER_UNIT:
        if seconds >= length:
            return f"{plural(int(seconds // length), unit)} ago"
    return "just now"


def duration(seconds: float | None) -> str:
    """Return a length of time: seconds, minutes, hours and minutes, or from two days on days and hours.

    Examples
    --------
    >>> duration(59), duration(90), duration(39035.5), duration(200_000), duration(None)
    ('59\xa0s', '2\xa0min', '10\xa0h 51\xa0min', '2\xa0d 8\xa0h', '–')
    """
    if seconds is None:
        return UNDEFINED
    if round(seconds) < SECONDS_PER_MINUTE:
        return f"{round(seconds)}{NO_BREAK}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours == 0:
        return f"{minutes}{NO_BREAK}min"
    if hours < HOURS_OF_TWO_DAYS:
        return f"{hours}{NO_BREAK}h {minutes}{NO_BREAK}min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days}{NO_BREAK}d {hours}{NO_BREAK}h"


def exact(moment: datetime) -> str:
    """Return a time to the second, in UTC and saying so.

    Examples
    --------
    >>> exact(datetime(2026, 7, 21, 10, 5, tzinfo=UTC))
    '2026-07-21 10:05:00 UTC'
    """
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def size(n_bytes: int) -> str:
    """Return a file size in binary units, as limits are set.

    Examples
    --------
    >>> size(512 * 2**20), size(512)
    ('512.0\\xa0MiB', '512\\xa0bytes')
    """
    for unit, length in BYTES_PER_UNIT:
        if n_bytes >= length:
            return f"{n_bytes / length:.1f}{NO_BREAK}{unit}"
    return plural(n_bytes, "byte")


def problem_totals(problems: Iterable[Any]) -> list[tuple[str, int]]:
    """Return how often each code occurs in a whole file, the most frequent first, from examples that know their totals.

    Examples
    --------
    >>> problem_totals([{"code": "a", "count": 2}, {"code": "b", "count": 9}, {"code": "a", "count": 2}])
    [('b', 9), ('a', 2)]
    """
    totals: dict[str, int] = {}
    for problem in problems:
        code, total = (
            problem[key] if isinstance(problem, Mapping) else getattr(problem, key) for key in ("code", "count")
        )
        totals[code] = total
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))


def strategy_title(strategy: str) -> str:
    """Return a strategy's name as a heading."""
    return STRATEGY_TITLES[Strategy(strategy)]


def strategy_noun(strategy: str) -> str:
    """Return a strategy's name inside a sentence."""
    return STRATEGY_NOUNS[Strategy(strategy)]


def strategy_class(strategy: str) -> str:
    """Return the style sheet's class that carries a strategy's colour."""
    return f"strategy-{strategy.replace('_', '-')}"


def split_title(split: str) -> str:
    """Return a split's name inside a sentence."""
    return "all splits" if split == "all" else f"{split} split"


def heat_class(value: float | None) -> str:
    """Return the class that colours a cell of a heat map: ten steps from 0 to 1, one for what is below 0.

    Examples
    --------
    >>> heat_class(0.0), heat_class(0.55), heat_class(1.0), heat_class(-0.1), heat_class(None)
    ('heat-0', 'heat-5', 'heat-9', 'heat-below', 'heat-none')
    """
    if value is None:
        return "heat-none"
    return "heat-below" if value < 0 else f"heat-{min(9, int(10 * value))}"


FILTERS: dict[str, Any] = {
    "ago": ago,
    "board_reason": lambda reason: BOARD_REASONS.get(reason, reason),
    "count": count,
    "duration": duration,
    "exact": exact,
    "figure_value": format_value,
    "heat_class": heat_class,
    "hundredths": hundredths,
    "percent": percent,
    "places": places,
    "plural": plural,
    "points": points,
    "problem_totals": problem_totals,
    "rank_reason": lambda reason: RANK_REASONS.get(reason, reason),
    "run_state_title": lambda state: RUN_STATE_TITLES.get(state, state),
    "size": size,
    "split_title": split_title,
    "state_title": lambda state: STATE_TITLES.get(state, state),
    "strategy_class": strategy_class,
    "strategy_noun": strategy_noun,
    "strategy_title": strategy_title,
}
