"""The columns of the board's table: what they are called, their units, and the addresses that sort by them."""

from __future__ import annotations

from dataclasses import dataclass

from app.services.board_views import DEFAULT_SORT
from app.web.board_query import COLUMNS, BoardQuery


@dataclass(frozen=True)
class Column:
    """A column's title, its unit where all of it has one, and what it means."""

    title: str
    unit: str
    meaning: str


TITLES = {
    "area": Column("Area", "%", "Mean accuracy over all budgets from no thinking to full thinking."),
    "gap": Column("Gap to the oracle", "points", "How far the area lies below the oracle’s."),
    "beta_match": Column(
        "β_match, saved", "% of tokens", "Least share of the tokens that reaches full-thinking accuracy, and the rest."
    ),
    "tokens_saved": Column("Tokens saved", "%", "At full-thinking accuracy: 100 % − β_match."),
    "max_accuracy": Column("Best accuracy", "%", "The highest accuracy on the method’s curve."),
    "accuracy_25": Column("At a quarter", "%", "Accuracy with a quarter of the full-thinking tokens."),
    "accuracy_50": Column("At half", "%", "Accuracy with half of the full-thinking tokens."),
    "accuracy_75": Column("At three quarters", "%", "Accuracy with three quarters of the full-thinking tokens."),
    "best_e3": Column("Best E³", "", "The best efficiency score of a setting; full thinking has 1."),
    "n_settings": Column("Settings", "", "How many operating points the file brought."),
    "published_at": Column("Published", "", "When the submission was published."),
}


@dataclass(frozen=True)
class ColumnHead:
    """The head of a chosen column; `order` is `ascending` or `descending` where the rows are sorted by it.

    `css_class` says whether a phone shows the column: as its first or second figure, or not.
    """

    name: str
    column: Column | None
    address: str
    order: str
    css_class: str


def list_heads(query: BoardQuery) -> tuple[ColumnHead, ...]:
    """Return the heads of the table: rank, method and realised potential always, then the chosen columns."""
    on_phone: list[str] = [name for name in ("area", "max_accuracy") if name in query.columns]
    on_phone += [name for name in query.columns if name not in on_phone]
    classes: dict[str, str] = dict(zip(on_phone, ("phone-first", "phone-second"), strict=False))
    names = ("rank", "method", "realised_potential", *query.columns)
    return tuple(_build_head(query, name, classes.get(name, "extra")) for name in names)


def _build_head(query: BoardQuery, name: str, css_class: str) -> ColumnHead:
    is_sorted = query.sort.removeprefix("-") == name
    turned = f"-{name}" if query.sort == name else name
    order = "" if not is_sorted or name == DEFAULT_SORT else ("reversed" if query.sort.startswith("-") else "sorted")
    return ColumnHead(name, TITLES.get(name), query.address(sort=turned, page=1, open=()), order, css_class)


def list_choices(query: BoardQuery) -> tuple[tuple[str, str, bool], ...]:
    """Return every column that can be chosen, its title, and whether it is."""
    return tuple((name, TITLES[name].title, name in query.columns) for name in COLUMNS)
