"""What an interval job has done so far, kept in the data folder until the intervals are stored."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.resampled_settings import Stops
from app.evaluator.scorers import current_scorer_version
from app.files.atomic import replaced_file
from app.services.frontiers import EVALUATOR_VERSION

Result = TypeVar("Result")
RESAMPLED_STATES = ("scored", "published")
_FOLDER = "intervals"
_STOPS = "stops.npz"


def parts_folder(data_dir: Path, submission_id: str) -> Path:
    """Return where the parts of a submission's intervals lie; those of another version lie elsewhere."""
    return data_dir / _FOLDER / f"{submission_id}.{current_scorer_version()}.{EVALUATOR_VERSION}"


def save_stops(folder: Path, stops: tuple[Stops, ...]) -> None:
    """Keep where a submission stops, so that the next slice need not read its file again."""
    arrays: dict[str, NDArray[Any]] = {"covered": np.stack([of_cell.covered for of_cell in stops])}
    arrays |= {f"positions-{at}": of_cell.positions for at, of_cell in enumerate(stops)}
    _write(folder / _STOPS, lambda stream: np.savez(stream, allow_pickle=False, **arrays))


def find_kept_stops(folder: Path) -> tuple[Stops, ...] | None:
    """Return where a submission stops, or None where that is not kept."""
    return _read(folder / _STOPS, _parse_stops)


def _parse_stops(arrays: Any) -> tuple[Stops, ...]:
    return tuple(Stops(covered, arrays[f"positions-{at}"]) for at, covered in enumerate(arrays["covered"]))


def save_part(folder: Path, rows: range, values: NDArray[np.float64]) -> None:
    """Keep a submission's figures over some rows of the replicates."""
    _write(folder / _name_part(rows), lambda stream: np.save(stream, values, allow_pickle=False))


def find_part(folder: Path, rows: range) -> NDArray[np.float64] | None:
    """Return a submission's figures over some rows of the replicates, or None where they are not kept."""
    return _read(folder / _name_part(rows), _parse_part)


def _parse_part(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values


def remove_parts(data_dir: Path, submission_id: str) -> None:
    """Remove what was kept of a submission's intervals."""
    shutil.rmtree(parts_folder(data_dir, submission_id), ignore_errors=True)


def sweep_parts(session: Session, *, data_dir: Path) -> int:
    """Remove what no interval job will go on from and return of how many submissions that was.

    That is what a job left that was killed after it had stored the intervals, and what belongs to a submission that
    was withdrawn, or to another version.
    """
    folders = {path.name: path for path in (data_dir / _FOLDER).glob("*")}
    submission, score, board, interval = models.Submission, models.Score, models.BoardScore, models.BoardInterval
    has_intervals = (
        select(interval.id)
        .join(board, board.id == interval.board_score_id)
        .join(score, score.id == board.score_id)
        .where(
            score.submission_id == submission.id,
            score.scorer_version == current_scorer_version(),
            interval.version == INTERVAL_VERSION,
        )
        .exists()
    )
    wanted = select(submission.id).where(
        submission.id.in_([name.split(".")[0] for name in folders]),
        submission.state.in_(RESAMPLED_STATES),
        ~has_intervals,
    )
    kept = (
        {parts_folder(data_dir, submission_id).name for submission_id in session.scalars(wanted)} if folders else set()
    )
    for name in folders.keys() - kept:
        shutil.rmtree(folders[name], ignore_errors=True)
    return len(folders.keys() - kept)


def _name_part(rows: range) -> str:
    return f"{rows.start:08d}-{rows.stop:08d}.npy"


def _read(path: Path, parse: Callable[[Any], Result]) -> Result | None:
    """Return what a file holds, or None where it is missing or not whole, as after a loss of power."""
    try:
        with path.open("rb") as stream:
            return parse(np.load(stream, allow_pickle=False))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: Path, save: Callable[[Any], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as temporary, temporary.open("wb") as stream:
        save(stream)
