"""The page of efficiency results: its figures are REST's, the address holds the view."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
import pytest

from tests.signing_in import cookie_header, form_token, session_cookie

CELL = "benchmark=GSM8K&backbone=Qwen2.5-7B-Instruct"


def read_rows(text: str) -> list[list[str]]:
    body = text.split('<table class="results">')[1].split("<tbody>")[1].split("</tbody>")[0]
    rows = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    return [
        [
            " ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split())
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def test_the_table_is_rest_to_the_digit(site: Any) -> None:
    items = site.get_json("/efficiency-results?limit=200")["items"]
    rows = read_rows(site.get("/efficiency").text)
    assert len(rows) == len(items) == 160
    for row, item in zip(rows, items, strict=True):
        assert row[0].startswith(item["method"])
        assert row[1:3] == [item["benchmark"], item["backbone"]]
        assert row[3] == f"{100 * item['accuracy']:.2f}"
        assert row[4] == f"{item['tokens']:,.2f}"
        assert row[5] == f"{item['e3']:.3f}"
        assert row[6].split()[0] == ("–" if item["e3_printed"] is None else f"{item['e3_printed']:.2f}")


def test_the_misprint_is_told(site: Any) -> None:
    text = site.get("/efficiency").text
    assert "135 of 136 printed scores are what the formula gives" in text
    assert "SoT on CommonsenseQA with LLaMA-70B-Instruct is not: 1.14 is printed where its figures give 0.955" in text
    assert text.count('class="differs"') == 1
    assert "misprint" not in site.get(f"/efficiency?{CELL}").text


def test_the_address_holds_the_view(site: Any) -> None:
    text = site.get(f"/efficiency?{CELL}&sort=e3&order=descending&axis=log").text
    assert [row[0].split()[0] for row in read_rows(text)][:2] == ["Soft", "CoT"]
    assert '<option value="GSM8K" selected>' in text
    assert 'aria-sort="descending"' in text
    assert "&amp;sort=e3&amp;axis=log#results" in text  # the same column once more: ascending, the default
    assert "Linear axis" in text
    assert (
        "/api/v1/efficiency-results?backbone=Qwen2.5-7B-Instruct&amp;benchmark=GSM8K&amp;sort=e3&amp;order=descending&amp;format=csv"
        in text
    )


def test_links_of_the_page_lead_to_the_same_results(site: Any) -> None:
    text = site.get(f"/efficiency?{CELL}").text
    address = html.unescape(re.search(r'href="(/api/v1/efficiency-results[^"]*format=csv)"', text)[1])  # type: ignore[index]
    assert len(site.get(address).text.splitlines()) == 1 + len(read_rows(text))


@pytest.mark.parametrize("query", ["method=nothing", "paradigm=other", "set=nowhere"])
def test_nothing_found_says_what_to_do(site: Any, query: str) -> None:
    text = site.get(f"/efficiency?{query}").text
    assert "No result meets all of these choices" in text
    assert "Show all" in text


def test_an_unknown_order_is_an_error_for_people(site: Any) -> None:
    answer = site.get("/efficiency?sort=colour")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert site.get("/efficiency?cursor=x").status_code == 422


def test_a_page_without_results(empty_site: Any) -> None:
    assert "No results are stored yet" in empty_site.get("/efficiency").text


def test_the_page_is_light(site: Any) -> None:
    assert len(site.get("/efficiency").content) < 200_000


def test_organisers_add_and_remove_sets_on_a_page(site: Any) -> None:
    cookies = session_cookie(site.sessions, site.config)
    token = {"csrf": form_token(site.config, cookies)}
    own = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
    path = "/console/efficiency-results"
    assert site.get(path).status_code == 401
    assert "Add a set" in site.get(path, headers=cookie_header(cookies)).text
    fields = token | {
        "name": "by-hand",
        "title": "By hand",
        "citation": "Us, 2026.",
        "license_note": "Ours.",
        "url": "",
    }
    content = b"benchmark,paradigm,method,backbone,accuracy,tokens\nsums,reference,CoT,tiny,0.5,100\n"

    def send(content: bytes) -> httpx.Response:
        files = {"file": ("results.csv", content)}
        return httpx.post(site.url + path, data=token | fields, files=files, headers=own, cookies=cookies, timeout=60)

    refused = send(content.replace(b"0.5", b"50"))
    assert (refused.status_code, "90.6 % is 0.906" in refused.text) == (422, True)
    added = send(content)
    assert (added.status_code, added.headers["location"]) == (303, "/efficiency?set=by-hand")
    shown = site.get("/efficiency?set=by-hand").text
    assert "added by local" in shown
    assert "Only references" in shown
    removed = httpx.post(f"{site.url}{path}/by-hand/remove", data=token, headers=own, cookies=cookies, timeout=60)
    assert (removed.status_code, removed.headers["location"]) == (303, path)
    assert "by-hand" not in site.get("/efficiency").text
