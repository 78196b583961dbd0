# %% [markdown]
# # Early exit by the end margin
#
# Dynamic early exit decides, in each trajectory, after which step to stop. This rule stops at the
# first position at which the model is close to ending its thinking by itself: `end_margin` is the
# log-probability of the likeliest token that goes on thinking minus that of the token that ends it,
# so a small margin means "nearly done".
#
# Run it with the folder of a snapshot, its split and the file to write: `python early_exit.py
# snapshot validation actions.parquet`. It needs pandas and pyarrow and looks at no label.

# %%
import sys
from pathlib import Path

import pandas as pd

folder, split, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
questions = pd.read_parquet(folder / "questions.parquet")
trajectories = pd.read_parquet(folder / "trajectories.parquet")

# %% [markdown]
# The file addresses the units of one split: here every trajectory of its questions.

# %%
units = questions.loc[questions["split"] == split, ["benchmark", "question_id"]]
chosen = trajectories.merge(units, on=["benchmark", "question_id"])


# %% [markdown]
# The rule sees the margins from the first position on, one after the other, and stops at the first
# one below its threshold. Where none is below it, the model ends by itself. It never uses the number
# of steps to come.


# %%
def find_stop(margins: list[float], threshold: float) -> int:
    """Return the first position whose margin is below the threshold, else the last one."""
    for position, margin in enumerate(margins):
        if margin < threshold:
            return position
    return len(margins) - 1


# %% [markdown]
# One setting for each threshold. A handful is enough: they trace a curve from cheap to accurate.

# %%
keys = ["model", "benchmark", "question_id", "trajectory"]
parts = []
for threshold in (-2, -1, 0, 0.5, 1, 2, 3, 4):
    part = chosen[keys].copy()
    part["setting"] = str(threshold)
    part["action"] = [find_stop(list(margins), threshold) for margins in chosen["end_margin"]]
    parts.append(part)
actions = pd.concat(parts)
actions.to_parquet(output, index=False)

# %%
mean_stop = actions.groupby("setting")["action"].mean().round(1)
print(f"{len(actions)} actions in {actions['setting'].nunique()} settings; mean position {mean_stop.to_dict()}")
