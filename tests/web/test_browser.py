"""Pages in a real browser: what they look like, and what their scripts do."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from app.plots.captions import SYNTHETIC_NOTICE
from app.web.formatting import hundredths
from tests.signing_in import sign_in_link

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
BOARD = "/?snapshot=small&split=test&strategy=dynamic_early_exit"
REST_BOARD = BOARD.replace("/?", "/leaderboard?")
PAGES = {
    "board": BOARD,
    "cell": f"{BOARD}&model=alpha&benchmark=math",
    "by-model": f"{BOARD}&by=model&intervals=1",
    "frontier-log": f"{BOARD}&lines=frontier&axis=log&intervals=1&open={{id}}",
    "compare": "/compare?submissions={id},{other}",
    "empty-board": "/?snapshot=small&split=all&strategy=fixed_budget",
    "snapshot": "/snapshots/small",
    "submission": "/submissions/{id}",
    "submit": "/submit",
    "about": "/about",
    "efficiency": "/efficiency",
    "docs": "/docs",
    "docs-metrics": "/docs/metrics",
    "docs-search": "/docs/search?q=frontier+cell",
    "efficiency-cell": "/efficiency?benchmark=GSM8K&backbone=Qwen2.5-7B-Instruct",
}
Open = Callable[..., Any]


def _find_id(site: Any, method: str = "patience") -> str:
    found: str = next(row["submission_id"] for row in site.get_json(REST_BOARD)["rows"] if row["method"] == method)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_drawn_without_fault_inside_the_window(site: Any, visit: Open, width: int, scheme: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    visited = visit("/about", width=width, scheme=scheme)
    for name, path in PAGES.items():
        visited.page.goto(site.url + path.format(id=_find_id(site), other=_find_id(site, "oracle")))
        expect(visited.page.locator("h1")).to_have_count(1)
        if visited.page.locator(".plot").count():
            visited.page.wait_for_selector(".plot .main-svg")
        assert visited.page.evaluate("document.documentElement.scrollWidth") <= width, name
        visited.page.screenshot(path=ARTEFACTS / f"{name}-{width}-{scheme}.png", full_page=True)
    assert visited.faults == []
    assert visited.hosts == {site.url.removeprefix("http://")}


def test_the_boards_table_is_the_rest_board_to_the_digit(site: Any, visit: Open) -> None:
    rows = site.get_json(REST_BOARD)["rows"]
    shown = visit(BOARD).page.evaluate(
        """() => [...document.querySelectorAll("tr.row")].map((row) =>
             [...row.children].map((cell) => cell.querySelector(".second") ? cell.firstChild.textContent
               : (cell.querySelector(".value, .name-line a") ?? cell).innerText.trim()))"""
    )
    assert [row[1] for row in shown] == [row["method"] for row in rows]
    for cells, row in zip(shown, rows, strict=True):
        shared = f"{row['rank']}–{row['last_rank']}"
        alone = "–" if row["rank"] is None else str(row["rank"])
        assert cells[0] == (alone if row["rank"] == row["last_rank"] else shared)
        names = ("realised_potential", "area", "gap", "beta_match", "max_accuracy")
        assert cells[2:7] == [hundredths(row[name]) for name in names]
        assert cells[7] == str(row["n_settings"])


def test_the_plot_has_a_line_for_every_method_and_no_toolbar(site: Any, visit: Open) -> None:
    page = visit(BOARD).page
    drawn = page.evaluate("document.querySelector('.plot').data.map((trace) => trace.name)")
    methods = {row["method"] for row in site.get_json(REST_BOARD)["rows"]}
    assert {name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for name in drawn} >= methods
    assert {"Oracle", "Uninformed reference", "Full thinking", "β_match", "β_sat"} <= set(drawn)
    assert page.locator(".modebar").count() == 0


def test_the_plot_takes_the_colours_of_the_scheme(visit: Open) -> None:
    visited = visit(BOARD)
    drawn = visited.page.locator(".plot .main-svg").first
    expect(drawn).to_have_css("background-color", "rgb(255, 255, 255)")
    visited.page.emulate_media(color_scheme="dark")
    expect(drawn).to_have_css("background-color", "rgb(20, 23, 26)")
    assert visited.faults == []


def test_nothing_moves_when_the_plot_is_drawn(visit: Open) -> None:
    page = visit(BOARD).page
    shift = page.evaluate(
        """() => new Promise((resolve) => {
             let sum = 0;
             new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
               .observe({ type: "layout-shift", buffered: true });
             requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
           })"""
    )
    assert shift < 0.01


def test_a_phone_has_ranked_rows_with_a_bar_and_two_figures(visit: Open) -> None:
    page = visit(BOARD, width=390).page
    row = page.locator("tr.row").nth(1)
    visible = [cell for cell in row.locator(":scope > *").all() if cell.is_visible()]
    # Rank, method, realised potential with its bar, area, best accuracy.
    assert len(visible) == 5
    assert row.locator("svg.bar").is_visible()
    assert page.locator(".board thead").is_hidden()
    # Labels at line ends have no room; the rows' swatches are the key.
    assert page.locator(".plot .annotation", has_text="patience").count() == 0
    assert row.locator("svg.swatch").is_visible()


def test_a_wide_table_scrolls_in_its_own_frame_on_a_phone(visit: Open) -> None:
    page = visit("/snapshots/small", width=390).page
    widths = page.evaluate(
        "[...document.querySelectorAll('.frame')].map((frame) => [frame.scrollWidth > frame.clientWidth, "
        "frame.clientWidth <= 390])"
    )
    assert [True, True] in widths
    assert all(fits for _, fits in widths)


def test_choosing_applies_at_once_and_stands_in_the_address(visit: Open) -> None:
    visited = visit(BOARD)
    visited.page.get_by_label("Model").select_option("alpha")
    visited.page.wait_for_url("**/?strategy=dynamic_early_exit&snapshot=small&split=test&model=alpha")
    visited.page.get_by_label("Model").select_option("")
    visited.page.wait_for_url("**/?strategy=dynamic_early_exit&snapshot=small&split=test")
    # Another snapshot has its own splits, models and benchmarks.
    visited.page.get_by_label("Snapshot").select_option("hidden")
    visited.page.wait_for_url("**/?strategy=dynamic_early_exit&snapshot=hidden")
    assert visited.faults == []


def test_a_row_opens_in_place(visit: Open) -> None:
    visited = visit(BOARD)
    page = visited.page
    link = page.get_by_role("link", name="in words").nth(1)
    row = page.locator("tr.row").nth(1)
    detail = page.locator("tr.detail")
    assert detail.count() == 0
    link.click()
    expect(detail).to_be_visible()
    expect(link).to_have_attribute("aria-expanded", "true")
    expect(detail).to_contain_text("below the oracle’s")
    assert row.evaluate("row => row.nextElementSibling.classList.contains('detail')")
    link.click()
    expect(detail).to_be_hidden()
    assert visited.faults == []


def test_a_row_and_its_line_light_up_together(visit: Open) -> None:
    page = visit(BOARD).page
    row = page.locator("tr.row", has_text="patience")
    row.hover()
    expect(page.locator(".plot.linking .scatterlayer .trace.linked")).to_have_count(1)
    page.locator("h1").hover()
    expect(page.locator(".plot.linking")).to_have_count(0)


def test_rows_are_picked_and_compared_without_scripts(site: Any, visit: Open) -> None:
    page = visit(BOARD, has_scripts=False).page
    for method in ("patience", "oracle"):
        page.locator("tr.row", has_text=method).last.get_by_label("pick").check()
    page.get_by_role("button", name="Pin those picked to the top").click()
    assert page.locator("tr.pinned").count() == 2
    page.get_by_role("button", name="Compare those picked").click()
    expect(page.locator("h1")).to_have_text("2 submissions side by side")
    page.go_back()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Gap to the oracle").uncheck()
    page.get_by_role("button", name="Use these columns").click()
    expect(page.locator(".board thead")).not_to_contain_text("Gap")
    page.locator(".board thead").get_by_role("link", name="Area").click()
    assert "sort=area" in page.url


def test_the_plot_is_downloaded_with_its_captions(visit: Open, tmp_path: Path) -> None:
    visited = visit(BOARD, scheme="dark")
    with visited.page.expect_download() as download:
        visited.page.get_by_role("button", name="Download as SVG").click()
    download.value.save_as(tmp_path / "plot.svg")
    assert download.value.suggested_filename == "small-test-dynamic_early_exit.svg"
    picture = (tmp_path / "plot.svg").read_text()
    assert picture.startswith("<svg")
    assert "of what early exit could" in picture
    assert SYNTHETIC_NOTICE.split(",")[0] in picture
    # A picture stands on white, whatever the scheme.
    assert "rgb(255, 255, 255)" in picture
    assert visited.faults == []


def test_the_numbers_of_a_plot_are_downloaded_whole(site: Any, visit: Open, tmp_path: Path) -> None:
    visited = visit(f"/submissions/{_find_id(site, 'Half <oracle> & co')}")
    for name, figure in (("curve", "#board-figure"), ("regret", "#regret-figure")):
        with visited.page.expect_download() as download:
            visited.page.locator(f"{figure} button[data-numbers]").click()
        download.value.save_as(tmp_path / f"{name}.csv")
        assert download.value.suggested_filename.endswith(".csv")
    curve = list(csv.reader((tmp_path / "curve.csv").read_text().splitlines()))
    assert curve[0] == ["Line", "Share of full-thinking tokens (%)", "Accuracy (%)"]
    assert {"Oracle", "Uninformed reference", "Half <oracle> & co"} <= {row[0] for row in curve[1:]}
    drawn = visited.page.evaluate("document.querySelector('#board-figure .plot').data.map((t) => t.name && t.x.length)")
    assert len(curve) == 1 + sum(filter(None, drawn))
    regret = list(csv.reader((tmp_path / "regret.csv").read_text().splitlines()))
    settings = site.get_json(f"/submissions/{_find_id(site, 'Half <oracle> & co')}/score")["settings"]
    assert [row[:2] for row in regret[1:]] == [
        [part, setting["setting"]] for part in ("Stopped early", "Stopped late") for setting in settings
    ]
    assert [float(row[2]) for row in regret[1:9]] == [round(100 * s["early_loss"], 4) for s in settings]
    assert visited.faults == []


def test_everything_but_the_plot_works_without_scripts(visit: Open) -> None:
    page = visit(BOARD, has_scripts=False).page
    assert page.get_by_text("The plot is drawn by a script.").is_visible()
    page.get_by_role("link", name="in words").first.click()
    assert page.locator("tr.detail").first.is_visible()
    assert page.get_by_role("button", name="Download as SVG").count() == 0
    page.get_by_text("The figure in words and numbers").click()
    assert page.locator(".figure table").is_visible()
    page.get_by_label("Model").select_option("beta")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("figcaption p")).to_contain_text("beta, 2 cells")


def test_a_logarithmic_axis_is_one_link_away(visit: Open) -> None:
    visited = visit(BOARD)
    visited.page.get_by_role("link", name="Logarithmic axis").click()
    visited.page.wait_for_selector(".plot .main-svg")
    assert visited.page.evaluate("document.querySelector('.plot').layout.xaxis.type") == "log"
    visited.page.get_by_role("link", name="Linear axis").wait_for()
    assert visited.faults == []


def test_signing_in_with_the_printed_address_and_submitting_a_file(site: Any, visit: Open, tmp_path: Path) -> None:
    cells = site.measurements.select("test").cells
    rows = [f"{c.model},{c.benchmark},{q},120" for c in cells for q in c.question_ids]
    file = tmp_path / "caps.csv"
    file.write_text("\n".join(["model,benchmark,question_id,action", *rows]))
    link = sign_in_link(site.sessions, "/submit")
    visited = visit(link, is_own=True)
    page = visited.page
    assert "#" not in page.url
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/submit")
    page.get_by_label("Strategy").select_option("fixed_budget")
    page.get_by_label("Split").select_option("test")
    page.get_by_label("Method").fill("one cap")
    page.get_by_label("Action file").set_input_files(file)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    expect(page.locator("h1")).to_have_text("one cap")
    # The page follows by itself: scored by another process, shown without a load of the page.
    page.evaluate("window.isStillTheSame = true")
    site.score(page.url.rpartition("/")[2])
    expect(page.get_by_role("button", name="Publish on the board")).to_be_visible()
    page.wait_for_selector(".plot .main-svg")
    assert page.evaluate("window.isStillTheSame")
    expect(page.locator(".state")).to_have_text("Scored, not published")
    page.get_by_role("button", name="Withdraw for good").click()
    expect(page.locator(".state")).to_have_text("Withdrawn")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in").wait_for()
    assert visited.faults == []
