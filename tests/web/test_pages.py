"""Pages as documents: what they say, which headers they carry, how they answer errors and forms."""

from __future__ import annotations

import csv
import io
import re
from importlib.resources import files
from typing import Any

import httpx
import pytest
import zstandard

from app.baselines import build_baseline
from app.db import models
from app.evaluator.strategies import Strategy
from app.plots.captions import SYNTHETIC_NOTICE
from app.services.bootstrap import BootstrapProgress
from app.services.demo_progress import PROGRESS_FILE
from app.services.frontiers import get_references
from app.services.snapshots import get_snapshot
from app.services.submissions import SYSTEM, SubmissionState, find_locked, transition, withdraw_submission
from app.web.formatting import hundredths, percent
from app.web.security import CONTENT_SECURITY_POLICY
from app.web.snapshot_page import describe_bootstrap
from app.web.vendor import PLOTLY_PATH
from tests.signing_in import form_token, session_cookie

BOARD = "/?snapshot=small&split=test&strategy=dynamic_early_exit"
PATHS = [
    "/",
    f"{BOARD}&model=alpha&benchmark=math&axis=log",
    "/?strategy=dynamic_routing&split=validation",
    "/snapshots",
    "/snapshots/small",
    "/snapshots/small?model=beta&benchmark=logic&axis=log",
    "/snapshots/hidden?split=test",
    "/snapshots/unfrozen",
    "/submit",
    "/sign-in",
    "/about",
    "/methods/patience",
    "/nothing/here",
]


def _find_id(site: Any, method: str) -> str:
    board = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")
    found: str = next(row["submission_id"] for row in board["rows"] if row["method"] == method)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_no_page_has_script_or_style_inside(site: Any, path: str) -> None:
    answer = site.get(path)
    assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", answer.text)
    for attributes in re.findall(r"<script([^>]*)>", answer.text):
        assert 'type="application/json"' in attributes or re.search(r'src="/static/', attributes)
    for address in re.findall(r'(?:src|href|action)="([^"]*)"', answer.text):
        assert address.startswith(("/", "#")), address


@pytest.mark.parametrize("path", ["/", "/snapshots/small", "/submissions/{id}"])
def test_a_synthetic_snapshot_says_so_on_its_pages_and_in_its_plots(site: Any, path: str) -> None:
    text = site.get(path.format(id=_find_id(site, "patience"))).text
    banner, rest = text.split("<main", 1)
    assert SYNTHETIC_NOTICE in banner
    assert SYNTHETIC_NOTICE in rest.split("</figcaption>")[0]
    assert SYNTHETIC_NOTICE not in site.get("/snapshots/hidden").text


def test_the_board_titles_what_the_best_method_realises(site: Any) -> None:
    board = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")
    best = next(row for row in board["rows"] if not row["is_control"])
    share = f"{100 * best['realised_potential']:.0f}\u00a0%"
    title = re.search(r"<figcaption>\s*<h2>(.*?)</h2>", site.get(BOARD).text)
    assert title
    assert title[1] == f"Half &lt;oracle&gt; &amp; co realises {share} of what early exit could"


def test_the_board_keeps_the_whole_view_in_its_address(site: Any) -> None:
    text = site.get(f"{BOARD}&model=alpha&benchmark=math").text
    for choice in ("small", "test", "alpha", "math"):
        assert re.search(rf'<option value="{choice}" selected>', text)
    assert 'href="/?snapshot=small&amp;split=test&amp;strategy=fixed_budget&amp;model=alpha&amp;benchmark=math"' in text
    view = "snapshot=small&amp;split=test&amp;strategy=dynamic_early_exit&amp;model=alpha&amp;benchmark=math"
    assert f'href="/api/v1/leaderboard?{view}&amp;format=csv"' in text
    assert f'href="/api/v1/leaderboard?{view}"' in text
    assert f'href="/?{view}&amp;axis=log#board-figure"' in text


def test_operating_points_are_drawn_on_boards_of_one_cell_only(site: Any) -> None:
    figure = BOARD.replace("/?", "/figures/board?")
    cell = site.get(f"{figure}&model=alpha&benchmark=math").text
    assert '"text":["1","2","3"]' in cell
    for whole in (figure, f"{figure}&model=alpha", f"{figure}&benchmark=math"):
        assert '"text":["1","2","3"]' not in site.get(whole).text


def test_a_view_that_there_is_not_is_told_in_words(site: Any) -> None:
    answer = site.get(f"{BOARD}&sort=luck&since=yesterday")
    assert answer.status_code == 422
    assert "is not one of rank" in answer.text
    assert "is not a day, as in 2026-07-21" in answer.text
    assert site.get(f"{BOARD}&model=gamma").status_code == 404


def test_order_filters_and_pins_change_the_rows_and_no_rank(site: Any) -> None:
    rows = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    ranks = {row["submission_id"]: _shown_rank(row) for row in rows}

    def read(view: str) -> list[tuple[str, str]]:
        text = site.get(BOARD + view).text
        return re.findall(r'id="row-(\w+)">\s*<td class="rank">(?:<span[^>]*>)?([^<]+)', text)

    assert read("") == list(ranks.items())
    by_area = sorted(rows, key=lambda row: -row["area"])
    assert [one for one, _ in read("&sort=area")] == [row["submission_id"] for row in by_area]
    assert [one for one, _ in read("&sort=-area")] == [row["submission_id"] for row in by_area][::-1]
    methods = [row["submission_id"] for row in rows if not row["is_control"]]
    assert [one for one, _ in read("&baselines=hidden")] == methods
    patience = _find_id(site, "patience")
    assert [one for one, _ in read("&q=PATIENCE")] == [patience]
    assert read(f"&pin={patience}")[0] == (patience, ranks[patience])
    assert read(f"&pin={patience}&q=oracle")[0] == (patience, ranks[patience])
    for view in ("&sort=area", "&baselines=hidden", "&q=patience", f"&pin={patience}"):
        assert all(ranks[one] == rank for one, rank in read(view)), view
        rest = site.get_json(f"/leaderboard?{BOARD[2:]}{'' if 'pin' in view else view}")["rows"]
        assert {row["submission_id"] for row in rest} == {one for one, _ in read(view)}
    assert "None of the board’s rows is like that" in site.get(f"{BOARD}&q=nobody").text


def _shown_rank(row: Any) -> str:
    if row["rank"] is None:
        return "–"
    return str(row["rank"]) if row["rank"] == row["last_rank"] else f"{row['rank']}–{row['last_rank']}"


def test_the_figure_draws_what_the_view_shows(site: Any) -> None:
    rows = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    figure = BOARD.replace("/?", "/figures/board?")

    def draw(view: str) -> Any:
        return site.get(figure + view).json()

    def list_rows(drawn: Any) -> set[str]:
        return {trace["meta"]["row"] for trace in drawn["data"] if trace.get("meta")}

    assert list_rows(draw("")) == {row["submission_id"] for row in rows}
    patience = _find_id(site, "patience")
    assert list_rows(draw("&q=patience")) == {patience}
    assert list_rows(draw("&lines=frontier")) <= {row["submission_id"] for row in rows if not row["is_control"]}
    assert draw("&axis=log")["layout"]["xaxis"]["type"] == "log"
    panels = draw("&by=model")
    assert [a["text"] for a in panels["layout"]["annotations"] if a["name"] == "panel-title"] == ["alpha", "beta"]
    whiskers = [t for t in draw("&intervals=1")["data"] if "interval" in str(t.get("text"))]
    assert len(whiskers) == 2
    assert site.get(f"{figure}&split=all&strategy=dynamic_routing").status_code in (200, 404)


def test_the_curves_over_rest_are_those_that_are_drawn(site: Any) -> None:
    path = f"/leaderboard/curves?{BOARD[2:]}"
    shown = site.get_json(path)["curves"]
    assert [curve["line"] for curve in shown[:3]] == ["oracle", "uninformed", "method"]
    drawn = site.get(BOARD.replace("/?", "/figures/board?")).json()
    patience = _find_id(site, "patience")
    (curve,) = (one for one in shown if one["submission_id"] == patience)
    (line,) = (t for t in drawn["data"] if t.get("meta") == {"row": patience})
    assert line["y"][0] == round(100 * curve["accuracy"][0], 3)
    assert line["y"][-1] == round(100 * curve["accuracy"][-1], 3)
    text = httpx.get(f"{site.url}/api/v1{path}&by=model&format=csv").text
    lines = list(csv.DictReader(io.StringIO(text)))
    assert {line["model"] for line in lines} == {"alpha", "beta"}
    by_model = site.get_json(f"{path}&by=model")["curves"]
    assert [line["accuracy"] for line in lines] == [repr(a) for one in by_model for a in one["accuracy"]]


def test_an_opened_row_has_its_narrower_boards(site: Any) -> None:
    patience = _find_id(site, "patience")
    text = site.get(f"/board-rows/{patience}{BOARD[1:]}").text
    for model in ("alpha", "beta"):
        board = site.get_json(f"/leaderboard?{BOARD[2:]}&model={model}")["rows"]
        (row,) = (row for row in board if row["submission_id"] == patience)
        assert re.search(rf">{model}</a></th><td class=\"number\">{_shown_rank(row)}</td>", text)
    link = f"/?snapshot=small&amp;split=test&amp;strategy=dynamic_early_exit&amp;open={patience}#row-{patience}"
    assert f'href="{link}"' in text
    assert site.get(f"/board-rows/{patience}?snapshot=hidden&split=train").status_code == 404


def test_submissions_side_by_side(site: Any) -> None:
    ids = [_find_id(site, method) for method in ("patience", "oracle")]
    sent = site.get(f"/compare?snapshot=small&pin={ids[0]}&pin={ids[1]}")
    assert (sent.status_code, sent.headers["location"]) == (303, f"/compare?submissions={','.join(ids)}")
    text = site.get(sent.headers["location"]).text
    shown = site.get_json(f"/compare?submissions={','.join(ids)}")
    assert "2 submissions side by side" in text
    for board in shown["boards"]:
        (one,) = board["differences"]
        if one["low"] is not None:
            assert f"{hundredths(one['low'])} to {hundredths(one['high'])}" in text
    assert "oracle is better" in text
    for named, status in ((ids[0], 422), (f"{ids[0]},nowhere", 404), ("", 422)):
        assert site.get(f"/compare?submissions={named}").status_code == status


def test_a_submissions_page_leads_to_the_board_with_it_pinned(site: Any) -> None:
    patience = _find_id(site, "patience")
    (address,) = re.findall(
        r'<a href="([^"]+)">Pick others to compare it with', site.get(f"/submissions/{patience}").text
    )
    board = site.get(address.replace("&amp;", "&")).text
    assert f'name="pin" value="{patience}" checked' in board


def test_a_cell_with_few_questions_has_figures_and_no_rank(site: Any) -> None:
    text = site.get(f"{BOARD}&model=alpha&benchmark=logic").text
    assert "fewer than 20 questions" in text
    assert not re.search(r'<td class="rank">\d', text)


def test_the_board_shows_ranks_and_intervals_of_the_rest_board(site: Any) -> None:
    board = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")
    text = site.get(BOARD).text
    assert not board["ranks_are_provisional"]
    assert "rovisional" not in text
    assert text.count('<rect class="interval"') == len(board["rows"])
    # What a row says in words is there once it is open; six may be.
    text = site.get(f"{BOARD}&open={','.join(row['submission_id'] for row in board['rows'])}").text
    for row in board["rows"]:
        low, high = (percent(row[f"realised_potential_{end}"]) for end in ("low", "high"))
        assert f"interval from {low} to {high}." in text
    shown = re.findall(r'<td class="rank">([^<]+)</td>', text)
    assert shown == [
        str(row["rank"]) if row["rank"] == row["last_rank"] else f"{row['rank']}–{row['last_rank']}"
        for row in board["rows"]
        if row["rank"] is not None
    ]


def test_a_board_without_intervals_says_that_its_ranks_are_provisional(site: Any) -> None:
    caps = build_baseline("uninformed", site.measurements, strategy=Strategy.FIXED_BUDGET, split="test")
    submission_id = site.submit(caps, method="constants", strategy=Strategy.FIXED_BUDGET)
    site.score(submission_id)
    site.publish(submission_id)
    assert "Provisional rank, by point estimate" in site.get("/?snapshot=small&split=test&strategy=fixed_budget").text
    with site.sessions.begin() as session:
        withdraw_submission(session, submission_id, account=site.author)


def test_a_submission_has_the_intervals_of_its_score(site: Any) -> None:
    (row, *_) = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    score = site.get_json(f"/submissions/{row['submission_id']}/score")
    low, high = score["summary"]["intervals"]["realised_potential"]
    assert (low, high) == (row["realised_potential_low"], row["realised_potential_high"])
    text = site.get(f"/submissions/{row['submission_id']}").text
    assert f'<span class="interval">{hundredths(low)} to {hundredths(high)}</span>' in text


def test_a_snapshot_tells_how_far_its_intervals_are(site: Any) -> None:
    assert "from 100 bootstrap replicates" in site.get("/snapshots/small?split=test").text
    assert "<dd>not computed</dd>" in site.get("/snapshots/small?split=all").text


def test_progress_of_a_bootstrap_in_words() -> None:
    for progress, words in (
        (None, "not computed"),
        (BootstrapProgress(300, 2000, None), "being computed: 300 of 2,000 bootstrap replicates are done"),
        (BootstrapProgress(2000, 2000, None), "from 2,000 bootstrap replicates"),
        (BootstrapProgress(0, 10, "the disk is full"), "not computed, because the bootstrap failed: the disk is full"),
    ):
        assert describe_bootstrap(progress) == words


def test_an_empty_board_says_what_to_do(site: Any) -> None:
    text = site.get("/?snapshot=small&split=all&strategy=fixed_budget").text
    assert f"otboard submit actions.parquet --server {site.url} --snapshot small" in text
    assert "With fixed budgets, the oracle keeps full-thinking accuracy on" in text


def test_frontiers_that_are_not_computed_yet_are_announced(site: Any) -> None:
    assert "The frontiers of this split are being computed." in site.get("/?snapshot=small&split=validation").text
    assert "of this split are being computed" in site.get("/snapshots/small?split=validation").text


def test_a_hidden_split_shows_nothing_that_rests_on_its_labels(site: Any) -> None:
    text = site.get("/snapshots/hidden?split=all").text
    assert "The labels of this split are hidden" in text
    assert "OR" not in text.split("<main")[1].split("Splits</h2>")[0]
    assert "plotly" not in text


def test_a_snapshot_that_is_not_frozen_says_how_to_freeze_it(site: Any) -> None:
    assert "otboard snapshot freeze unfrozen" in site.get("/snapshots/unfrozen").text


def test_the_snapshots_table_is_the_overthinking_document(site: Any) -> None:
    document = site.get_json("/snapshots/small/overthinking?split=test")
    text = site.get("/snapshots/small").text
    cell = next(c for c in document["cells"] if (c["model"], c["benchmark"]) == ("alpha", "logic"))
    names = ("overthinking_ratio", "accuracy_degradation")
    table = text.split("<caption>Overthinking</caption>")[1].split("</table>")[0]
    row = table.split('<th scope="row">alpha</th>')[1].split("</tr>")[0]
    assert re.findall(r"<td[^>]*>(.*?)(?:<span.*?)?</td>", row)[2:4] == [f"{100 * cell[name]:.1f}" for name in names]
    means = re.findall(r"<td[^>]*>(.*?)(?:<span.*?)?</td>", table.split('<th scope="row">Mean</th>')[1])
    assert means[-2:] == [f"{100 * document['macro'][name]:.1f}" for name in names]
    assert f"{100 * document['macro']['overthinking_ratio']:.1f}\u00a0% of the thinking" in text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nothing/here", 404, "There is nothing at this address."),
        ("/snapshots/none", 404, "There is no snapshot &#39;none&#39;."),
        ("/?snapshot=small&model=gamma", 404, "no model &#39;gamma&#39;"),
        ("/?snapshot=small&split=dev", 404, "no question in a split &#39;dev&#39;"),
        ("/?strategy=guessing", 422, "strategy"),
        ("/submissions/AAAAAAAAAAAA", 404, "There is no submission"),
        ("/methods/none", 404, "There is no method"),
        ("/submissions", 401, "Sign in first"),
        ("/snapshots?cursor=x", 422, "cursor"),
        ("/static/none.css", 404, "There is nothing at this address."),
    ],
)
def test_an_error_is_a_page_that_says_what_happened(site: Any, path: str, status: int, words: str) -> None:
    answer = site.get(path)
    assert answer.status_code == status
    assert words in answer.text
    assert "<h1>" in answer.text


def test_an_error_to_a_program_is_problem_json(site: Any) -> None:
    answer = httpx.get(f"{site.url}/snapshots/none", headers={"Accept": "application/json"})
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, zstd", "zstd"), ("gzip", "gzip"), ("identity", None)])
def test_plotly_comes_compressed_and_is_kept_for_good(site: Any, accepted: str, encoding: str | None) -> None:
    script = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    with httpx.stream("GET", site.url + PLOTLY_PATH, headers={"Accept-Encoding": accepted}) as answer:
        sent = b"".join(answer.iter_raw())
    assert answer.headers.get("Content-Encoding") == encoding
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert "Accept-Encoding" in answer.headers["Vary"]
    if encoding:
        assert len(sent) < len(script) / 3
    if encoding == "zstd":
        sent = zstandard.ZstdDecompressor().stream_reader(sent).read()
    assert encoding == "gzip" or sent == script


def test_an_asset_is_kept_for_good_under_its_version_only(site: Any) -> None:
    address = re.search(r'href="(/static/otboard\.css\?v=[0-9a-f]+)"', site.get("/about").text)
    assert address
    assert "immutable" in site.get(address[1]).headers["Cache-Control"]
    assert site.get("/static/otboard.css?v=old").headers["Cache-Control"] == "no-cache"
    assert site.get("/static/..%2fpyproject.toml").status_code == 404


def test_what_a_method_is_called_cannot_become_markup(site: Any) -> None:
    named = site.get_json("/methods/Half%20%3Coracle%3E%20%26%20co")["submissions"]
    text = site.get(f"{BOARD}&open={named[0]['id']}").text
    assert "<oracle>" not in text
    assert "/methods/Half%20%3Coracle%3E%20%26%20co" in text
    assert "Half &lt;oracle&gt; &amp; co" in site.get("/methods/Half%20%3Coracle%3E%20%26%20co").text


def _cookies(site: Any) -> dict[str, str]:
    return session_cookie(site.sessions, site.config)


BAD_FILE = b"model,benchmark,question_id,trajectory,action\nalpha,math,math-test-00,0,999\nalpha,math,nowhere,0,1\n"


def test_a_rejected_submission_lists_every_problem_with_its_place(site: Any) -> None:
    submission_id = site.submit(BAD_FILE, method="bad")
    site.score(submission_id)
    text = site.get(f"/submissions/{submission_id}", cookies=_cookies(site)).text
    problems = site.get_json(f"/submissions/{submission_id}", headers={"Authorization": f"Bearer {site.token}"})
    codes = {problem["code"] for problem in problems["problems"]}
    assert {"action_out_of_range", "unknown_question", "incomplete_cell"} <= codes
    rows = [
        [re.sub("<.*?>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", text.split('class="problems"')[1].split("</table>")[0], re.DOTALL)[1:]
    ]
    assert ["action_out_of_range", "2", "action"] in [row[:3] for row in rows]
    assert ["unknown_question", "3", "question_id"] in [row[:3] for row in rows]
    assert len(rows) == len(problems["problems"])


def test_a_submission_of_others_is_not_there_until_it_is_published(site: Any) -> None:
    submission_id = site.submit(BAD_FILE + b"\n", method="private")
    assert site.get(f"/submissions/{submission_id}").status_code == 404
    assert site.get(f"/submissions/{submission_id}", cookies=_cookies(site)).status_code == 200


def test_a_waiting_submission_shows_its_place_and_whether_a_worker_lives(site: Any) -> None:
    submission_id = site.submit(BAD_FILE + b"\n\n", method="waiting")
    text = site.get(f"/submissions/{submission_id}", cookies=_cookies(site)).text
    assert re.search(r"Next to be scored|Number \d+ in the queue", text)
    assert "No worker has shown a sign of life" in text
    assert '<noscript><meta http-equiv="refresh"' in text


def test_a_failure_of_ours_says_so_and_can_be_tried_again(site: Any) -> None:
    submission_id = site.submit(BAD_FILE + b"\n\n\n", method="failing")
    with site.sessions.begin() as session:
        row = find_locked(session, submission_id)
        assert row is not None
        row.failure_reason = "the worker ran out of memory"
        transition(session, row, SubmissionState.FAILED, actor=SYSTEM, reason="out of attempts")
    page = site.get(f"/submissions/{submission_id}", cookies=_cookies(site)).text
    assert "Scoring failed on our side, not because of the file: the worker ran out of memory." in page
    answer = _post(site, f"/submissions/{submission_id}/retry")
    assert answer.status_code == 303
    with site.sessions.begin() as session:
        assert session.get_one(models.Submission, submission_id).state == SubmissionState.RECEIVED


def _post(site: Any, path: str, **options: Any) -> httpx.Response:
    """Send a form as a signed-in browser does from one of the site's own pages."""
    headers = {"Accept": "text/html", "Origin": site.url} | options.pop("headers", {})
    cookies = _cookies(site)
    data = {"csrf": form_token(site.config, cookies)} | options.pop("data", {})
    return httpx.post(site.url + path, headers=headers, cookies=cookies, data=data, **options)


@pytest.mark.parametrize("headers", [{"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "same-site"}])
def test_a_form_of_another_site_changes_nothing(site: Any, headers: dict[str, str]) -> None:
    answer = _post(site, f"/submissions/{_find_id(site, 'patience')}/withdraw", headers=headers)
    assert answer.status_code == 403
    assert "comes from another site" in answer.text
    assert _find_id(site, "patience")


def test_the_form_refuses_what_is_missing_and_names_it(site: Any) -> None:
    answer = _post(site, "/submit", data={"snapshot": "small"}, files={"file": ("a.csv", BAD_FILE)})
    assert answer.status_code == 422
    assert "strategy" in answer.text
    assert "method" in answer.text
    without = _post(site, "/submit", data={"snapshot": "small"}, files={})
    assert without.status_code in (400, 422)


def test_checking_lists_problems_and_stores_nothing(site: Any) -> None:
    target = {"snapshot": "small", "split": "test", "strategy": "dynamic_early_exit"}
    answer = _post(site, "/check", data=target, files={"file": ("a.csv", BAD_FILE)})
    assert answer.status_code == 422
    assert "action_out_of_range" in answer.text
    caps = _write_caps(site)
    sound = _post(site, "/check", data=target | {"strategy": "fixed_budget"}, files={"file": ("caps.csv", caps)})
    assert sound.status_code == 200
    assert "The file is sound" in sound.text
    assert "4 of 4" in sound.text


def _write_caps(site: Any, cap: int = 100) -> bytes:
    rows = [
        f"{cell.model},{cell.benchmark},{question},{cap}"
        for cell in site.measurements.select("test").cells
        for question in cell.question_ids
    ]
    return "\n".join(["model,benchmark,question_id,action", *rows]).encode()


def test_a_submission_by_form_is_scored_published_and_withdrawn(site: Any) -> None:
    fields = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "caps", "description": ""}
    answer = _post(site, "/submit", data=fields, files={"file": ("caps.csv", _write_caps(site, 150))})
    assert answer.status_code == 303
    address = answer.headers["Location"]
    submission_id = address.rpartition("/")[2]
    site.score(submission_id)
    scored = site.get(address, cookies=_cookies(site)).text
    assert "Publish on the board" in scored
    assert _post(site, f"{address}/publish").status_code == 303
    board = site.get("/?snapshot=small&split=test&strategy=fixed_budget").text
    assert f'href="{address}">caps</a>' in board
    assert "Let it stand for the method" in site.get(address, cookies=_cookies(site)).text
    assert "Let it stand for the method" not in site.get(address).text
    assert _post(site, f"{address}/make-current").status_code == 303
    chosen = site.get(address, cookies=_cookies(site)).text
    assert "It stands for the method on the board" in chosen
    assert "Let it stand for the method" not in chosen
    assert _post(site, f"{address}/withdraw").status_code == 303
    tombstone = site.get(address)
    assert tombstone.status_code == 200
    assert "Its team took this submission off the board for good" in tombstone.text
    assert 'class="figures"' not in tombstone.text
    assert 'class="figures"' in site.get(address, cookies=_cookies(site)).text
    assert f'href="{address}">caps</a>' not in site.get("/?snapshot=small&split=test&strategy=fixed_budget").text
    assert "Withdrawn" in site.get("/submissions", cookies=_cookies(site)).text


def test_a_scored_page_has_the_figures_of_the_score_document(site: Any) -> None:
    submission_id = _find_id(site, "patience")
    score = site.get_json(f"/submissions/{submission_id}/score")
    text = site.get(f"/submissions/{submission_id}").text
    figures = text.split('class="figures"')[1].split("</dl>")[0]
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)(?:<span.*?)?</dd>", figures))
    board = score["summary"]
    assert shown["Realised potential"] == f"{100 * board['realised_potential']:.1f}\u00a0%".replace("-", "−")
    assert shown["Area"] == f"{100 * board['area']:.1f}\u00a0%"
    assert shown["Gap to the oracle"] == f"{100 * board['gap']:.1f}\u00a0points"
    assert shown["Settings"] == "3"
    settings = text.split("<h2>Settings</h2>")[1].split("</table>")[0]
    first = re.findall(r"<td[^>]*>(.*?)</td>", settings)[:7]
    names = ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone")
    assert first == [f"{100 * score['settings'][0][name]:.1f}" for name in names]


def test_a_submission_shows_the_board_that_is_asked_for(site: Any) -> None:
    address = f"/submissions/{_find_id(site, 'patience')}"
    text = site.get(f"{address}?model=alpha&benchmark=math").text
    assert "On alpha on math:" in text
    assert '"text":["1","2","3"]' in text
    # A board on which the submission does not stand is not an error of the reader's.
    assert "On the whole snapshot:" in site.get(f"{address}?model=gamma").text


def test_many_settings_are_cut_and_the_rest_is_linked(site: Any) -> None:
    text = site.get(f"/submissions/{_find_id(site, 'random')}").text
    assert "The first 50 of 256." in text
    assert text.split("<h2>Settings</h2>")[1].split("</table>")[0].count('<th scope="row">') == 50


def test_without_a_snapshot_the_board_says_how_to_get_one(empty_site: Any) -> None:
    text = empty_site.get("/").text
    assert "No board yet" in text
    assert "otboard snapshot freeze" in text
    assert "There is no snapshot yet." in empty_site.get("/snapshots").text
    assert "There is no frozen snapshot yet" in empty_site.get("/submit").text


def test_while_frontiers_are_being_stored_the_snapshots_page_says_so(site: Any) -> None:
    """With the first strategy's stored it once said that the split had no question of that model and benchmark."""
    with site.sessions.begin() as session:
        snapshot = get_snapshot(session, "small")
        get_references(
            session,
            snapshot,
            split="train",
            strategy=Strategy.DYNAMIC_ROUTING,
            data_dir=site.config.data_dir,
        )
    text = site.get("/snapshots/small?split=train").text
    assert "Frontiers and averages of this split are being computed" in text
    assert "no question of that model" not in text


def test_while_the_demo_is_being_made_the_board_says_how_far_it_is(empty_site: Any) -> None:
    progress = '{"step": 2, "n_steps": 9, "message": "storing them in the database", "state": "running"}'
    (empty_site.config.data_dir / PROGRESS_FILE).write_text(progress)
    text = empty_site.get("/").text
    assert "The demo’s data is being prepared" in text
    assert "Step 2 of 9: storing them in the database." in text
    assert 'http-equiv="refresh"' in text


def test_every_strategy_has_a_tab_with_its_colour(site: Any) -> None:
    text = site.get("/").text
    for strategy in Strategy:
        assert f'<li class="strategy-{strategy.value.replace("_", "-")}">' in text
