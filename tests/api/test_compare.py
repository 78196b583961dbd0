"""Submissions side by side over REST: figures, paired differences, errors; and badges."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import select, text

from app.db import models
from app.evaluator.strategies import Strategy
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.ranks import rank_boards
from app.services.snapshots import get_snapshot

Caps = Callable[[int], bytes]
BOARD = "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget"


def _resample(board: Any, submission_ids: list[str]) -> None:
    """Do what the jobs do once something is scored and published."""
    config = replace(board.config, bootstrap_replicates=100)
    with board.sessions.begin() as session:
        snapshot = get_snapshot(session, "small")
        begin_bootstrap(session, snapshot, split="test", config=config)
    run_slice(board.sessions, snapshot.id, split="test", config=config)
    for submission_id in submission_ids:
        resample_submission(board.sessions, submission_id, config=config)
    with board.sessions.begin() as session:
        session.execute(text("DELETE FROM procrastinate_jobs"))
    rank_boards(board.sessions, snapshot.id, split="test", strategy=Strategy.FIXED_BUDGET)


def _load_replicates(board: Any, submission_id: str, model: str | None, benchmark: str | None) -> Any:
    interval, score, of = models.BoardInterval, models.Score, models.BoardScore
    query = (
        select(interval.replicates)
        .join(of, of.id == interval.board_score_id)
        .join(score, score.id == of.score_id)
        .where(
            score.submission_id == submission_id,
            of.model.is_not_distinct_from(model),
            of.benchmark.is_not_distinct_from(benchmark),
        )
    )
    with board.sessions.begin() as session:
        return np.frombuffer(session.scalars(query).one(), dtype="<f8")


def test_a_comparison_has_the_documents_figures_and_the_replicates_differences(board: Any, make_caps: Caps) -> None:
    ids = [board.publish(make_caps(cap), method=f"cap {cap}") for cap in (1, 300, 400)]
    path = f"/api/v1/compare?submissions={','.join(ids)}"
    before = board.reader.get(path).json()
    assert {one["better"] for one in before["boards"][0]["differences"]} == {"undecided"}
    _resample(board, ids)
    shown = board.reader.get(path).json()
    assert [one["id"] for one in shown["submissions"]] == ids
    documents = [board.reader.get(f"/api/v1/submissions/{one}/score").json() for one in ids]
    assert shown["settings"] == [document["settings"] for document in documents]
    assert [(b["model"], b["benchmark"]) for b in shown["boards"][:3]] == [
        (None, None),
        ("alpha", None),
        ("beta", None),
    ]
    assert len(shown["boards"]) == 9
    n_decided = 0
    for found in shown["boards"]:
        key = (found["model"], found["benchmark"])
        figures = [next(b for b in d["boards"] if (b["model"], b["benchmark"]) == key) for d in documents]
        assert found["figures"] == figures
        pairs = [(one["first"], one["second"]) for one in found["differences"]]
        assert pairs == [(ids[0], ids[1]), (ids[0], ids[2]), (ids[1], ids[2])]
        for one in found["differences"]:
            first, second = (figures[ids.index(one[side])] for side in ("first", "second"))
            assert one["difference"] == first["realised_potential"] - second["realised_potential"]
            if key[1] == "logic":  # three questions
                assert (one["low"], one["high"], one["better"]) == (None, None, "undecided")
                continue
            drawn = _load_replicates(board, one["first"], *key) - _load_replicates(board, one["second"], *key)
            assert [one["low"], one["high"]] == np.nanpercentile(drawn, (2.5, 97.5)).tolist()
            expected = "first" if one["low"] > 0 else "second" if one["high"] < 0 else "undecided"
            assert one["better"] == expected
            n_decided += expected != "undecided"
    assert n_decided > 0
    wins = shown["wins"][0]
    assert wins["n_cells"] == wins["n_first_better"] + wins["n_second_better"] + wins["n_undecided"] == 4
    assert wins["n_first_ahead"] + wins["n_second_ahead"] <= 4


def test_the_csv_of_a_comparison_has_the_same_digits(board: Any, make_caps: Caps) -> None:
    ids = [board.publish(make_caps(cap), method=method) for cap, method in ((1, "=one"), (300, "b"))]
    path = f"/api/v1/compare?submissions={','.join(ids)}"
    shown = board.reader.get(path).json()
    answer = board.reader.get(path, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text == board.reader.get(f"{path}&format=csv").text
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(lines) == 9
    for line, found in zip(lines, shown["boards"], strict=True):
        (one,) = found["differences"]
        assert (line["model"], line["benchmark"]) == (found["model"] or "", found["benchmark"] or "")
        assert line["difference"] == repr(one["difference"])
        assert line["first_realised_potential"] == repr(found["figures"][0]["realised_potential"])
        assert (line["first_method"], line["second_method"], line["better"]) == ("'=one", "b", "undecided")


def test_what_cannot_be_compared(board: Any, make_caps: Caps) -> None:
    one = board.publish(make_caps(300))
    routing = board.publish(board.write(strategy=Strategy.DYNAMIC_ROUTING), strategy="dynamic_routing", method="coin")
    mine = board.submit(make_caps(7), method="not scored")
    for named, status, code in (
        ("", 422, "invalid_comparison"),
        (one, 422, "invalid_comparison"),
        (f"{one},{one}", 422, "invalid_comparison"),
        (",".join([one] * 7), 422, "invalid_comparison"),
        (f"{one},nowhere", 404, "unknown_submission"),
        (f"{one},{mine}", 404, "unknown_submission"),
        (f"{one},{routing}", 422, "different_targets"),
        ("x" * 201, 422, "invalid_request"),
    ):
        answer = board.reader.get(f"/api/v1/compare?submissions={named}")
        assert (answer.status_code, answer.json()["code"]) == (status, code), named
    told = board.reader.get(f"/api/v1/compare?submissions={one},{routing}").json()
    assert [problem["unit"] for problem in told["problems"]] == [one, routing]
    assert "'nowhere', 'elsewhere'" in board.reader.get(f"/api/v1/compare?submissions={one},nowhere,elsewhere").text
    # Its own team sees what is not published, once it is scored.
    assert board.me.get(f"/api/v1/compare?submissions={one},{mine}").json()["code"] == "not_scored"
    board.score(mine)
    assert board.me.get(f"/api/v1/compare?submissions={one},{mine}").status_code == 200
    assert board.reader.get(f"/api/v1/compare?submissions={one},{mine}").status_code == 404


def _read_badge(answer: Any) -> tuple[str, ...]:
    root = ElementTree.fromstring(answer.text)
    space = "{http://www.w3.org/2000/svg}"
    return (*(element.text or "" for element in root.iter(f"{space}text")), root.findtext(f"{space}title") or "")


def test_a_badge_has_the_boards_figure_and_rank(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(300), method='<b> & "quoted"')
    path = f"/api/v1/badges/{submission_id}.svg"
    answer = board.reader.get(path)
    assert answer.headers["content-type"].startswith("image/svg+xml")
    (row,) = board.reader.get(BOARD).json()["rows"]
    said = f"{100 * row['realised_potential']:.1f}".replace("-", "−")
    label, message, title = _read_badge(answer)
    assert (label, message) == ("OTBoard", f"{said}\u00a0% of fixed budgets realised, rank 1")
    assert title.startswith('<b> & "quoted" on small, test split: ')
    assert title.endswith("Synthetic measurements.")
    again = board.reader.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "public, max-age=300")


def test_a_badge_says_what_became_of_its_submission(board: Any, make_caps: Caps) -> None:
    waiting = board.submit(make_caps(1), method="waits")
    first = board.publish(make_caps(300))
    board.publish(make_caps(400))
    assert _read_badge(board.reader.get(f"/api/v1/badges/{first}.svg"))[1] == "replaced by a later one"
    assert board.me.post(f"/api/v1/submissions/{first}/withdraw").status_code == 200
    assert _read_badge(board.reader.get(f"/api/v1/badges/{first}.svg"))[1] == "withdrawn"
    # What was never published has no badge, not even for its own team.
    board.score(waiting)
    for client in (board.reader, board.me):
        answer = client.get(f"/api/v1/badges/{waiting}.svg")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_submission")
    board.me.post(f"/api/v1/submissions/{waiting}/withdraw")
    assert board.reader.get(f"/api/v1/badges/{waiting}.svg").status_code == 404
