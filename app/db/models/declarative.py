"""What every table is declared with: the base with its naming rule, keys, and the checks that tables share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Double, ForeignKey, Identity, Integer, MetaData, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

STRATEGY_NAMES = ("dynamic_routing", "fixed_budget", "dynamic_early_exit")
SPLIT_NAMES = ("train", "validation", "test")
SLUG_PATTERN = "^[a-z0-9][a-z0-9._-]*$"


def one_of(column: str, values: tuple[str, ...], *, name: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=name)


def is_split_or_all() -> CheckConstraint:
    return one_of("split", ("all", *SPLIT_NAMES), name="split")


def is_strategy() -> CheckConstraint:
    return one_of("strategy", STRATEGY_NAMES, name="strategy")


def is_fraction(column: str) -> CheckConstraint:
    """NaN sorts above every number in PostgreSQL, so the upper bound refuses it too."""
    return CheckConstraint(f"{column} >= 0 AND {column} <= 1", name=column)


def is_sha256(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} ~ '^[0-9a-f]{{64}}$'", name=column)


def is_web_address(column: str) -> CheckConstraint:
    """A link that pages show: nothing that a browser would run."""
    return CheckConstraint(f"{column} ~ '^https?://[^[:space:]]+$' AND length({column}) <= 500", name=column)


class Base(DeclarativeBase):
    """Declarative base with a name for every constraint."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy reads it from the class)
        int: Integer,
        str: Text,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
        list[int]: ARRAY(BigInteger),
        list[float]: ARRAY(Double),
    }


def primary_key() -> Mapped[int]:
    return mapped_column(BigInteger, Identity(always=True), primary_key=True)


def reference(target: str, *, on_delete: str | None = None) -> Mapped[int]:
    return mapped_column(BigInteger, ForeignKey(target, ondelete=on_delete))
