"""The rows of the board's page: their bars on one scale, their line styles, and what they mean in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.plots.palette import CONTROL_STYLE, METHOD_STYLES, LineStyle, pick_method_style
from app.services.leaderboard import BoardRow, Leaderboard
from app.web.formatting import RANK_REASONS, hundredths, percent, points


@dataclass(frozen=True)
class SwatchStyle:
    """How a method's line is drawn in its row: the style sheet's class for the colour, dashes in pixels."""

    css_class: str
    dash: str | None


@dataclass(frozen=True)
class Bar:
    """A realised potential on the board's common scale, in hundredths of the bar's length.

    The interval's ends are None until there is one.
    """

    start: float
    width: float
    zero: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SubBoard:
    """Where a row stands on a narrower board: its name there, None where it does not stand on it, and its address."""

    name: str
    row: BoardRow | None
    bar: Bar | None
    address: str


@dataclass(frozen=True)
class BoardItem:
    """A row with its line's style and its bar (None without a realised potential).

    One that is open has its figures in words, its narrower boards, the address that closes it and its link that stays.
    """

    row: BoardRow
    style: SwatchStyle
    bar: Bar | None
    is_pinned: bool
    is_open: bool
    sentences: tuple[str, ...]
    sub_boards: tuple[SubBoard, ...]
    close_address: str
    link: str


def pick_styles(rows: Sequence[BoardRow], pins: Collection[str]) -> dict[str, LineStyle]:
    """Return the line style of each row by submission.

    Pinned rows take the styles first, then methods that are no control in the rows' order; all others are pale.
    """
    first = [row for row in rows if row.submission_id in pins]
    others = [row for row in rows if not row.is_control and row.submission_id not in pins]
    styles = {row.submission_id: CONTROL_STYLE for row in rows}
    return styles | {row.submission_id: pick_method_style(idx) for idx, row in enumerate([*first, *others])}


def list_vivid(rows: Sequence[BoardRow], styles: Mapping[str, LineStyle]) -> list[BoardRow]:
    """Return the rows that are drawn in a style of their own, in the order of the styles."""
    vivid = [row for row in rows if styles[row.submission_id] is not CONTROL_STYLE]
    return sorted(vivid, key=lambda row: METHOD_STYLES.index(styles[row.submission_id]))


def show_swatch(style: LineStyle) -> SwatchStyle:
    """Return how a line style is drawn in a row."""
    dash = None if style.dash == "solid" else style.dash.replace("px", "").replace(",", " ")
    idx = METHOD_STYLES.index(style) if style in METHOD_STYLES else None
    return SwatchStyle("method-pale" if idx is None else f"method-{idx}", dash)


def scale_start(rows: Sequence[BoardRow]) -> float:
    """Return where the bars' common scale begins: at the lowest bar's or interval's end, or at 0 if none is below."""
    ends = [end for row in rows for end in (row.realised_potential, row.realised_potential_low)]
    return min([0.0, *(end for end in ends if end is not None)])


def describe_scale(rows: Sequence[BoardRow]) -> str:
    """Return the bars' scale in words."""
    return f"bar from {hundredths(scale_start(rows), 0)} to 100"


def scale_bar(row: BoardRow, start: float) -> Bar | None:
    """Return the bar from 0 to a realised potential with its interval, on a scale from `start` to 1."""
    if row.realised_potential is None:
        return None
    zero, end = (100 * (value - start) / (1 - start) for value in (0.0, row.realised_potential))
    low, high = (
        None if value is None else round(100 * (value - start) / (1 - start), 2)
        for value in (row.realised_potential_low, row.realised_potential_high)
    )
    return Bar(
        start=round(min(zero, end), 2),
        width=round(max(abs(end - zero), 0.6), 2),
        zero=round(zero, 2),
        low=low,
        high=high,
    )


def describe_ranks(board: Leaderboard) -> str:
    """Return in a sentence or two what the ranks of a board are."""
    if all(row.rank is None for row in board.rows):
        return "Nobody has a rank here."
    if board.ranks_are_provisional:
        return "Provisional rank, by point estimate: intervals are being computed."
    return (
        "Methods whose difference the data cannot tell from zero share a rank. "
        "The line across a bar is the 95\N{NO-BREAK SPACE}% interval."
    )


def describe_row(row: BoardRow) -> tuple[str, ...]:
    """Return a row's figures as sentences."""
    above = row.area - row.uninformed_area
    side = "above" if above >= 0 else "below"
    sentences = [
        *describe_interval(row),
        f"Over all budgets its accuracy lies {points(row.gap)} below the oracle’s and {points(abs(above))} {side} the "
        f"best mix of constant policies.",
        describe_matching(row),
        f"At a quarter, half and three quarters of the tokens it is right {percent(row.accuracy_25)}, "
        f"{percent(row.accuracy_50)} and {percent(row.accuracy_75)} of the time, at best {percent(row.max_accuracy)}.",
    ]
    if row.best_e3 is not None:
        sentences.append(f"Its best efficiency score E³ is {row.best_e3:.3f} (full thinking has 1).")
    if row.rank_reason is not None:
        sentences.append(RANK_REASONS.get(row.rank_reason, row.rank_reason))
    return tuple(sentences)


def describe_interval(row: BoardRow) -> tuple[str, ...]:
    """Return the interval of a row's realised potential as a sentence, or nothing until there is one."""
    if row.realised_potential_low is None or row.realised_potential_high is None:
        return ()
    low, high = percent(row.realised_potential_low), percent(row.realised_potential_high)
    return (f"Its realised potential has a 95\N{NO-BREAK SPACE}% interval from {low} to {high}.",)


def describe_matching(row: BoardRow) -> str:
    """Return at which share of the tokens the method matches full thinking, in words."""
    if row.beta_match is None:
        return "It never reaches full-thinking accuracy."
    return (
        f"It reaches full-thinking accuracy with {percent(row.beta_match)} of the tokens and so saves "
        f"{percent(row.tokens_saved)} of them."
    )
