# %% [markdown]
# # A budget from the training questions
#
# A fixed budget gives each question a cap on its thinking tokens before anything is generated. This
# rule knows the model and the benchmark of a question, and learns from the training split how long
# the model thinks there. Its caps are shares of that length.
#
# Run it with the folder of a snapshot, its split and the file to write: `python fixed_budget.py
# snapshot validation actions.parquet`.

# %%
import sys
from pathlib import Path

import pandas as pd

folder, split, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
questions = pd.read_parquet(folder / "questions.parquet")
trajectories = pd.read_parquet(folder / "trajectories.parquet")
measured = trajectories.merge(questions[["benchmark", "question_id", "split"]], on=["benchmark", "question_id"])

# %% [markdown]
# Lengths of the *training* questions may be looked at. Those of the split that is scored are the
# future: the cap is set before the model thinks.

# %%
training = measured[measured["split"] == "train"]
usual = training.groupby(["model", "benchmark"])["thinking_tokens"].median()

# %% [markdown]
# The unit is a question, once for each model: the trajectories of a question share its cap.

# %%
units = measured.loc[measured["split"] == split, ["model", "benchmark", "question_id"]].drop_duplicates()
parts = []
for share in (0.1, 0.25, 0.5, 0.75, 1, 1.5):
    part = units.copy()
    part["setting"] = str(share)
    part["action"] = [
        int(share * usual[model, benchmark]) for model, benchmark in zip(part["model"], part["benchmark"], strict=True)
    ]
    parts.append(part)
actions = pd.concat(parts)
actions.to_parquet(output, index=False)

# %%
mean_cap = actions.groupby("setting")["action"].mean().round()
print(f"{len(actions)} actions in {actions['setting'].nunique()} settings; mean cap {mean_cap.to_dict()}")
