"""One submission, its figures everywhere: the page, REST, the CSV files and the command print the same digits.

Elsewhere a score was a text in one interface and a number in another, and zeros stood for what was missing
(kaggle-api#509, #584; popcorn-cli#62).
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.files.snapshot import Snapshot, write_snapshot
from app.services.analyses import ANALYSES, run_slice
from app.services.snapshots import get_snapshot
from app.web.formatting import hundredths, percent, points

BOARD = "snapshot=small&split=test&strategy=dynamic_early_exit"
PARTS = ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone")
BOARD_FIGURES = (
    "realised_potential",
    "area",
    "uninformed_area",
    "oracle_area",
    "gap",
    "max_accuracy",
    "beta_match",
    "tokens_saved",
    "best_e3",
    "n_settings",
)


def _read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def _write(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs `otboard` and returns what it prints."""
    for name in ("OTBOARD_TOKEN", "OTBOARD_DATABASE_URL", "OTBOARD_DATA"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def invoke(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="otboard", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    yield invoke
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_submissions_figures_are_the_same_everywhere(
    site: Any, board_snapshot: Snapshot, tmp_path: Path, run: Any
) -> None:
    row = next(r for r in site.get_json(f"/leaderboard?{BOARD}")["rows"] if r["method"] == "patience")
    submission_id = row["submission_id"]
    score = site.get_json(f"/submissions/{submission_id}/score")
    summary = score["summary"]

    # The command, on the same bytes with no server; intervals are computed by jobs of the server alone.
    write_snapshot(board_snapshot, tmp_path / "small.zip")
    actions = site.get(f"/api/v1/submissions/{submission_id}/actions")
    (tmp_path / "actions.csv").write_bytes(actions.content)
    target = ("--strategy", "dynamic_early_exit", "--split", "test", "--format", "json")
    printed = json.loads(run("score", tmp_path / "small.zip", tmp_path / "actions.csv", *target))
    assert printed["settings"] == score["settings"]
    for board, same in zip(printed["boards"], score["boards"], strict=True):
        assert {**board, "intervals": None} == {**same, "intervals": None}

    # The board's JSON and CSV.
    shared = [name for name in BOARD_FIGURES if name in row]
    assert {name: row[name] for name in shared} == {name: summary[name] for name in shared}
    (listed,) = [
        r
        for r in _read_csv(site.get(f"/api/v1/leaderboard?{BOARD}&format=csv").text)
        if r["submission_id"] == submission_id
    ]
    assert {name: listed[name] for name in shared} == {name: _write(summary[name]) for name in shared}

    # The operating points' JSON and CSV.
    address = f"/submissions/{submission_id}/operating-points"
    operating = site.get_json(address)["rows"]
    assert [{n: r[n] for n in (*PARTS, "e3")} for r in operating] == [
        {n: s[n] for n in (*PARTS, "e3")} for s in score["settings"]
    ]
    table = _read_csv(site.get(f"/api/v1{address}?format=csv").text)
    assert [{n: r[n] for n in (*PARTS, "e3")} for r in table] == [
        {n: _write(s[n]) for n in (*PARTS, "e3")} for s in score["settings"]
    ]

    _check_comparison_and_badge(site, row, score)

    # The page: the figures at its head, every board, every setting.
    text = site.get(f"/submissions/{submission_id}").text
    head = text.split('class="figures"')[1].split("</dl>")[0]
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)(?:<span.*?)?</dd>", head))
    assert shown["Realised potential"] == percent(summary["realised_potential"])
    assert shown["Area"] == percent(summary["area"])
    assert shown["Gap to the oracle"] == points(summary["gap"])
    assert shown["β_match"] == percent(summary["beta_match"])
    assert shown["Tokens saved"] == percent(summary["tokens_saved"])
    assert shown["Best accuracy"] == percent(summary["max_accuracy"])
    assert shown["Best E³"] == ("–" if summary["best_e3"] is None else f"{summary['best_e3']:.3f}")
    heat = text.split('class="heat"')[1].split("</table>")[0]
    cells = re.findall(r'<td class="heat-[^>]*><a [^>]*>(.*?)</a><span class="second">(.*?)<', heat)
    assert sorted(cells) == sorted((hundredths(b["realised_potential"]), hundredths(b["gap"])) for b in score["boards"])
    settings = text.split('id="settings"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", part) for part in settings.split("</tr>")[:-1]]
    assert [cells[:7] for cells in rows] == [[hundredths(s[name]) for name in PARTS] for s in score["settings"]]
    for board in score["boards"]:
        if board["model"] and board["benchmark"]:
            _check_cell_page(site, submission_id, score, board)


def _check_comparison_and_badge(site: Any, row: Any, score: Any) -> None:
    """The same in a comparison, and on the badge, which has the board's figure and rank."""
    other = next(r["submission_id"] for r in site.get_json(f"/leaderboard?{BOARD}")["rows"] if r["method"] == "random")
    compared = site.get_json(f"/compare?submissions={row['submission_id']},{other}")
    assert [b["figures"][0] for b in compared["boards"]] == [
        next(b for b in score["boards"] if (b["model"], b["benchmark"]) == (c["model"], c["benchmark"]))
        for c in compared["boards"]
    ]
    badge = site.get(f"/api/v1/badges/{row['submission_id']}.svg").text
    assert f">{percent(score['summary']['realised_potential'])} of early exit realised, rank {row['rank']}" in badge


def _check_cell_page(site: Any, submission_id: str, score: Any, board: Any) -> None:
    """The same of one cell's page: its settings are the score's figures of that cell."""
    place = f"model={board['model']}&benchmark={board['benchmark']}"
    text = site.get(f"/submissions/{submission_id}?{place}").text
    settings = text.split('id="settings"')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", part)[:7] for part in settings.split("</tr>")[:-1]]
    recorded = [
        next(c for c in s["cells"] if (c["model"], c["benchmark"]) == (board["model"], board["benchmark"]))
        for s in score["settings"]
    ]
    assert rows == [[hundredths(cell[name]) for name in PARTS] for cell in recorded]


def test_a_snapshots_figures_are_the_same_everywhere(
    site: Any, board_snapshot: Snapshot, tmp_path: Path, run: Any
) -> None:
    with site.sessions.begin() as session:
        snapshot_id = get_snapshot(session, "small").id
    for _ in ANALYSES:
        run_slice(site.sessions, snapshot_id, split="test", config=site.config)
    write_snapshot(board_snapshot, tmp_path / "small.zip")
    run("analyse", tmp_path / "small.zip", "--split", "test", "-o", tmp_path / "all.json")
    written = json.loads((tmp_path / "all.json").read_text())
    text = site.get("/snapshots/small/analyses?split=test").text
    for kind in ("overthinking", "direct_answers", "local_changes", "diversity", "thinning", "traces"):
        sent = site.get_json(f"/snapshots/small/analyses/{kind}?split=test")
        assert sent == written[kind], kind
    table = _read_csv(site.get("/api/v1/snapshots/small/analyses/overthinking?split=test&format=csv").text)
    for listed, cell in zip(table, written["overthinking"]["cells"], strict=False):
        assert listed["overthinking_ratio"] == repr(cell["overthinking_ratio"])
        assert f"<td>{hundredths(cell['overthinking_ratio'])}</td>" in text
        assert f"<td>{hundredths(cell['accuracy_degradation'])}</td>" in text
