# %% [markdown]
# # Routing by difficulty
#
# Dynamic routing decides, question by question, whether the model thinks at all: action 1 or 0. This
# rule looks at the difficulty that comes with the question, and learns from the training split from
# which difficulty on thinking pays.
#
# Run it with the folder of a snapshot, its split and the file to write: `python routing.py snapshot
# validation actions.parquet`.

# %%
import sys
from pathlib import Path

import pandas as pd

folder, split, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
questions = pd.read_parquet(folder / "questions.parquet")
trajectories = pd.read_parquet(folder / "trajectories.parquet")
measured = trajectories.merge(
    questions[["benchmark", "question_id", "split", "difficulty"]], on=["benchmark", "question_id"]
)

# %% [markdown]
# Training labels may be used: what full thinking gains over none, by model, benchmark and difficulty.
# The first entry of `correct_probes` is without thinking, the last one after all of it.

# %%
training = measured[measured["split"] == "train"].copy()
training["gain"] = [counts[-1] - counts[0] for counts in training["correct_probes"]]
gain = training.groupby(["model", "benchmark", "difficulty"])["gain"].mean()

# %% [markdown]
# A question is thought about where the gain that was learned for its difficulty is at least the
# setting. A difficulty that no training question had is thought about: it costs tokens, not accuracy.

# %%
units = measured.loc[measured["split"] == split, ["model", "benchmark", "question_id", "difficulty"]]
units = units.drop_duplicates(["model", "benchmark", "question_id"])
keys = pd.MultiIndex.from_frame(units[["model", "benchmark", "difficulty"]])
expected = gain.reindex(keys).to_numpy()
parts = []
for least in (0, 1, 2, 4, 6, 8):
    part = units[["model", "benchmark", "question_id"]].copy()
    part["setting"] = str(least)
    part["action"] = [0 if value < least else 1 for value in expected]
    parts.append(part)
actions = pd.concat(parts)
actions.to_parquet(output, index=False)

# %%
thinking = actions.groupby("setting")["action"].mean().round(2)
print(f"{len(actions)} actions in {actions['setting'].nunique()} settings; share that thinks {thinking.to_dict()}")
