"""That something changed which boards show."""

from __future__ import annotations

from sqlalchemy.orm import Mapped

from app.db.models.declarative import Base, primary_key


class ShownChange(Base):
    """One statement that changed what boards show; triggers write it, and remove old ones."""

    __tablename__ = "shown_changes"

    id: Mapped[int] = primary_key()
