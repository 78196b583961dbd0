"""The blocks that a snapshot's trajectories were cut into before merging, for steps of other lengths."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.segmentation import Partition
from app.files.columns import split_lists
from app.files.snapshot import Snapshot


def load_blocks(snapshot: Snapshot, split: str = ALL_SPLITS) -> dict[str, Partition] | None:
    """Return each model's blocks before merging, of the trajectories of a split.

    Parameters
    ----------
    split : one of the snapshot's splits, or all of them.

    Returns
    -------
    For each model of the manifest the blocks of its trajectories, by benchmark, question and trajectory, as
    `merge_partition` takes them; an empty trajectory has none. None unless every trajectory of the split has its
    `block_tokens` stored.

    Notes
    -----
    Appendix D.1. Labels are not needed. O(trajectories + blocks).
    """
    kept = _select(snapshot, split)
    if kept["block_tokens"].null_count:
        return None
    return {
        model: _as_partition(kept.filter(pc.equal(kept["model"], model))["block_tokens"])
        for model in snapshot.manifest.models
    }


def _select(snapshot: Snapshot, split: str) -> pa.Table:
    """Return the model and the blocks of the trajectories of a split, in the snapshot's order."""
    trajectories = snapshot.trajectories
    if split != ALL_SPLITS:
        questions = snapshot.questions.filter(pc.equal(snapshot.questions["split"], split))
        chosen = set(zip(questions["benchmark"].to_pylist(), questions["question_id"].to_pylist(), strict=True))
        units = zip(trajectories["benchmark"].to_pylist(), trajectories["question_id"].to_pylist(), strict=True)
        trajectories = trajectories.filter(pa.array([unit in chosen for unit in units], pa.bool_()))
    return trajectories.select(["model", "block_tokens"])


def _as_partition(column: pa.ChunkedArray) -> Partition:
    lists = split_lists(column)
    offsets = np.concatenate([[0], np.cumsum(lists.lengths)]).astype(np.int64)
    return Partition(offsets, lists.values.astype(np.int64))
