"""Published results of methods that change the generation itself, in sets that each have one source."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, SmallInteger, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models.declarative import SLUG_PATTERN, Base, is_fraction, is_sha256, one_of, primary_key, reference

PARADIGM_NAMES = ("reference", "reasoning_blueprint", "dynamic_execution", "post_hoc_refinement", "other")


class EfficiencySet(Base):
    """Results that were published together: one source, one file."""

    __tablename__ = "efficiency_sets"
    __table_args__ = (
        UniqueConstraint("name"),
        UniqueConstraint("sha256"),
        is_sha256("sha256"),
        CheckConstraint(f"name ~ '{SLUG_PATTERN}' AND char_length(name) <= 64", name="name"),
        CheckConstraint("title <> '' AND citation <> '' AND license_note <> ''", name="source"),
        CheckConstraint("url ~ '^https?://'", name="url"),
        CheckConstraint("n_results >= 1", name="n_results"),
        CheckConstraint("is_shipped = (account_id IS NULL)", name="account"),
    )

    id: Mapped[int] = primary_key()
    name: Mapped[str]
    title: Mapped[str]
    citation: Mapped[str]
    url: Mapped[str | None]
    license_note: Mapped[str]
    sha256: Mapped[str]
    n_results: Mapped[int]
    is_shipped: Mapped[bool]
    account_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class EfficiencyResult(Base):
    """One method on one benchmark with one backbone, beside the reference of its set that E3 compares it with."""

    __tablename__ = "efficiency_results"
    __table_args__ = (
        UniqueConstraint("set_id", "benchmark", "backbone", "method", name="uq_efficiency_results_method"),
        UniqueConstraint("set_id", "idx", name="uq_efficiency_results_idx"),
        one_of("paradigm", PARADIGM_NAMES, name="paradigm"),
        CheckConstraint("benchmark <> '' AND method <> '' AND backbone <> ''", name="names"),
        CheckConstraint("idx >= 0", name="idx"),
        is_fraction("accuracy"),
        is_fraction("base_accuracy"),
        CheckConstraint("tokens >= 0 AND tokens < 'Infinity'", name="tokens"),
        CheckConstraint("base_tokens >= 0 AND base_tokens < 'Infinity'", name="base_tokens"),
        CheckConstraint("e3 >= 0 AND e3 < 'Infinity'", name="e3"),
        CheckConstraint("(e3 IS NULL) = (e3_reason IS NOT NULL)", name="e3_reason"),
        CheckConstraint("e3_printed >= 0 AND e3_printed < 'Infinity' AND e3_digits >= 0", name="e3_printed"),
        CheckConstraint("(e3_printed IS NULL) = (e3_digits IS NULL)", name="e3_digits"),
        CheckConstraint("(agrees IS NULL) = (e3 IS NULL OR e3_printed IS NULL)", name="agrees"),
        Index("ix_efficiency_results_place", "benchmark", "backbone"),
    )

    id: Mapped[int] = primary_key()
    set_id: Mapped[int] = reference("efficiency_sets.id", on_delete="CASCADE")
    idx: Mapped[int]
    benchmark: Mapped[str]
    paradigm: Mapped[str]
    method: Mapped[str]
    backbone: Mapped[str]
    accuracy: Mapped[float]
    tokens: Mapped[float]
    base_accuracy: Mapped[float]
    base_tokens: Mapped[float]
    e3: Mapped[float | None]
    e3_reason: Mapped[str | None]
    e3_printed: Mapped[float | None]
    e3_digits: Mapped[int | None] = mapped_column(SmallInteger)
    agrees: Mapped[bool | None]
