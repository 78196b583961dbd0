"""The page about action files says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.errors import Problem
from app.evaluator.measurements import Measurements, build_cell
from app.evaluator.strategies import Strategy
from app.files.action_layout import ALL_COLUMNS
from app.files.action_problems import PROBLEM_CODES
from app.files.action_writers import SUFFIXES, UnknownSuffixError
from app.files.actions import MAX_SETTINGS, ActionFileError, read_actions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "action-file-format.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example() -> Measurements:
    """The snapshot of the worked example."""
    steps = [[(0, 0), (256, 1), (512, 2), (700, 2)]] * 2
    splits = {"aime-01": "test", "aime-02": "test", "aime-03": "train"}
    cell = build_cell("tiny-8B", "AIME", [(name, split, steps) for name, split in splits.items()], 4)
    return Measurements("tiny", "0" * 64, "synthetic", "all", 4, 2, ("tiny-8B",), ("AIME",), (cell,))


def list_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_every_code_column_suffix_and_limit_is_on_the_page(page):
    codes = [*PROBLEM_CODES, "labels_hidden", "looks_like_routing", ActionFileError.code, UnknownSuffixError.code]
    for name in (*codes, *ALL_COLUMNS, *SUFFIXES, *Strategy, *Problem.__dataclass_fields__):
        assert f"`{name}`" in page
    assert f"At most {MAX_SETTINGS} settings" in page


def test_the_good_file_of_the_page_is_read(page, example, tmp_path):
    path = tmp_path / "good.csv"
    path.write_text(list_blocks(page, "csv")[0], encoding="utf-8")

    file = read_actions(path, example, strategy=Strategy.DYNAMIC_EARLY_EXIT, split="test")

    assert file.table.settings == ("0.5", "0.9")
    assert file.table.cells[0].actions.tolist() == [[1, 0, 3, 2], [3, 3, 3, 3]]


def test_the_bad_file_of_the_page_has_the_problems_that_it_prints(page, example, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(list_blocks(page, "csv")[1], encoding="utf-8")

    with pytest.raises(ActionFileError) as caught:
        read_actions(path, example, strategy=Strategy.DYNAMIC_EARLY_EXIT, split="test")

    assert [problem.as_dict() for problem in caught.value.problems] == json.loads(list_blocks(page, "json")[0])
