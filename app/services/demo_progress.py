"""How far the demo's data is, for the pages: apart from what makes the data, which takes long to load."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.files.atomic import replaced_file

PROGRESS_FILE = "demo-progress.json"


@dataclass(frozen=True)
class DemoProgress:
    """How far the demo's data is: `step` of `n_steps`, being `message`; `state` is running, done or failed."""

    step: int
    n_steps: int
    message: str
    state: str


def find_demo_progress(data_dir: Path) -> DemoProgress | None:
    """Return how far the demo's data is, or None where no demo was ever started here."""
    with suppress(FileNotFoundError):
        return DemoProgress(**json.loads((data_dir / PROGRESS_FILE).read_text(encoding="utf-8")))
    return None


def write_demo_progress(data_dir: Path, progress: DemoProgress) -> None:
    """Note how far the demo's data is."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with replaced_file(data_dir / PROGRESS_FILE) as draft:
        draft.write_text(json.dumps(asdict(progress)), encoding="utf-8")
