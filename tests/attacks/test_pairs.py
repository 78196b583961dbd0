"""Nobody learns one unit's label from two files that differ in fewer units than the threshold, by whatever way.

Two worlds differ in one question's labels a cell. The same two near files are sent to both. What any address answers
about the second one has to be the same in both worlds, and whatever it answers about anything else has to be the same
before and after it. The addresses are those of the application: a new one without a line here fails.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from fastapi.routing import iter_route_contexts

from app.evaluator.strategies import Strategy
from tests.api.conftest import Board
from tests.attacks.conftest import CELLS, MODEL, WORLDS, R

# What to ask at each address that is about a snapshot or a submission; `{…}` is filled in.
PROBES: dict[str, tuple[str, ...]] = {
    "/": (
        "?snapshot={name}&split=test&strategy={strategy}&axis=log",
        "?snapshot={name}&split=test&strategy={strategy}{cell}",
    ),
    "/snapshots": ("",),
    "/snapshots/{name}": ("?split=test", "?split=test{cell}", "?split=test&axis=log"),
    "/snapshots/{name}/analyses": ("?split=test", "?split=all"),
    "/snapshots/{name}/trajectories": ("?split=test", "?benchmark={benchmark}&question={benchmark}-000"),
    "/submissions": ("",),
    "/submissions/{submission_id}": ("", "?axis=log", "?x=1{cell}"),
    "/submit": ("?snapshot={name}&split=test",),
    "/methods/{name:path}": ("",),
    "/api/v1/snapshots": ("",),
    "/api/v1/snapshots/{name}": ("",),
    "/api/v1/snapshots/{name}/overthinking": ("?split=test", ""),
    "/api/v1/snapshots/{name}/frontiers": ("?split=test&strategy={strategy}", "?split=test{cell}", ""),
    "/api/v1/snapshots/{name}/trajectories": ("?benchmark={benchmark}&question_id={benchmark}-000",),
    "/api/v1/snapshots/{name}/analyses": ("?split=test", "?split=all"),
    "/api/v1/snapshots/{name}/analyses/{kind}": ("?split=test", "?split=all"),
    "/api/v1/snapshots/{name}/download": ("",),
    "/api/v1/submissions": ("",),
    "/api/v1/submissions/{submission_id}": ("",),
    "/api/v1/submissions/{submission_id}/score": ("",),
    "/api/v1/submissions/{submission_id}/events": ("",),
    "/api/v1/submissions/{submission_id}/actions": ("",),
    "/api/v1/submissions/{submission_id}/identical-uploads": ("",),
    "/api/v1/submissions/{submission_id}/losses": ("", "?setting=default{cell}"),
    "/api/v1/submissions/{submission_id}/operating-points": ("", "?x=1{cell}", "?format=csv"),
    "/api/v1/submissions/{submission_id}/receipt": ("",),
    "/api/v1/leaderboard": tuple(
        f"?snapshot={{name}}&split=test&strategy={{strategy}}{rest}"
        for rest in ("", "{cell}", "&format=csv", "{cell}&format=csv")
    ),
    "/api/v1/leaderboard/curves": tuple(
        f"?snapshot={{name}}&split=test&strategy={{strategy}}{rest}" for rest in ("", "{cell}", "&by=model&format=csv")
    ),
    "/figures/board": tuple(
        f"?snapshot={{name}}&split=test&strategy={{strategy}}{rest}"
        for rest in ("", "{cell}", "&axis=log", "&by=model&intervals=1", "&lines=frontier")
    ),
    "/board-rows/{submission_id}": ("?snapshot={name}&split=test&strategy={strategy}",),
    "/compare": ("?submissions={submission_id},{other}",),
    "/api/v1/methods/{name:path}": ("",),
    "/api/v1/compare": ("?submissions={submission_id},{other}", "?submissions={submission_id},{other}&format=csv"),
    "/api/v1/badges/{submission_id}.svg": ("",),
    "/api/v1/me": ("",),
    "/api/v1/me/allowance": ("?snapshot={name}",),
}
# What has nothing to do with scores of submissions; the metrics count submissions by state.
ELSEWHERE = re.compile(
    r"/(healthz|readyz|metrics|static/.*|favicon\.ico|vendor/.*|plotly.*|about|sign-in.*|sign-.*|sign_.*|account.*|teams.*|tokens.*"
    r"|people.*|docs.*|tutorial.*|console.*|probe-runs.*|models.*|efficiency.*|audit.*|check|reset.*|confirm-email|forgot-password|join-team|oidc.*|invitations.*)|/api/docs"
    r"|/api/v1/(openapi\.json|receipt-keys|models.*|probe-runs.*|efficiency.*|console/.*|me/.*|teams.*|accounts.*|audit.*|workers.*)"
)


def list_addresses(board: Board) -> set[str]:
    return {
        route.path
        for route in iter_route_contexts(board.app.routes)
        if "GET" in (getattr(route, "methods", None) or ())
    }


def test_every_address_that_answers_about_scores_is_probed(worlds: Board) -> None:
    addresses = list_addresses(worlds)
    assert len(addresses) > 20
    unknown = [path for path in sorted(addresses) if path not in PROBES and not ELSEWHERE.fullmatch(path)]
    assert unknown == [], "say in PROBES what to ask there, or in ELSEWHERE that it tells nothing of a score"
    assert PROBES.keys() <= addresses


# Addresses that are about one submission though its id is not part of the path.
ABOUT_ONE = ("/methods/{name:path}", "/api/v1/methods/{name:path}", "/api/v1/compare", "/compare")
FULL = {Strategy.DYNAMIC_ROUTING: 1, Strategy.FIXED_BUDGET: 600, Strategy.DYNAMIC_EARLY_EXIT: 3}


def draw(rng: np.random.Generator, strategy: Strategy, n_units: int) -> np.ndarray:
    top = {Strategy.DYNAMIC_ROUTING: 2, Strategy.FIXED_BUDGET: 600, Strategy.DYNAMIC_EARLY_EXIT: 4}[strategy]
    return rng.integers(0, top, n_units)


def write(actions: dict[str, np.ndarray], strategy: Strategy) -> bytes:
    by_trajectory = strategy.unit_is_trajectory
    lines = [f"model,benchmark,question_id,{'trajectory,' if by_trajectory else ''}action"]
    for benchmark, units in actions.items():
        for unit, action in enumerate(units.tolist()):
            question, trajectory = divmod(unit, R) if by_trajectory else (unit, None)
            place = f"{trajectory}," if by_trajectory else ""
            lines.append(f"{MODEL},{benchmark},{benchmark}-{question:03d},{place}{action}")
    return "\n".join(lines).encode()


# What an answer says besides its text; when it was made and who asked are not about labels.
HEADERS = ("ETag", "Content-Type", "Content-Length", "Location", "Retry-After", "Cache-Control")
Case = tuple[Strategy, str]
Answers = dict[str, tuple[int, dict[str, str], str]]


def observe(
    client: httpx.Client,
    known: dict[str, Any],
    *,
    world: str,
    strategy: Strategy,
    benchmark: str,
    submission: str,
    other: str = "x",
) -> Answers:
    """Return what all addresses answer, by the address without names; of `other`, what is about the submission only.

    What is `known`, by the address with names, is not asked again: much does not depend on the strategy or the cell.
    """
    found: Answers = {}
    about = [path for path in PROBES if other == "x" or "{submission_id}" in path or path in ABOUT_ONE]
    for path, queries in ((path, PROBES[path]) for path in about):
        for query in queries:
            for method in ("near", "far") if path.endswith("{name:path}") else ("",):
                place = path.replace("{name:path}", f"{method}-{world}-{strategy}-{benchmark}").replace("{name}", world)
                asked = (place + query).format(
                    name=world,
                    submission_id=submission,
                    strategy=strategy,
                    benchmark=benchmark,
                    kind="traces",
                    other=other,
                    cell=f"&model={MODEL}&benchmark={benchmark}",
                )
                name = asked.replace(world, "W").replace(submission, "S")
                if asked not in known:
                    # A page with a form leaves a cookie, and whoever has one is answered without an ETag.
                    client.cookies.clear()
                    known[asked] = read(client.get(asked), is_cut=other != "x")
                found[name] = known[asked]
    return found


def read(answer: httpx.Response, *, is_cut: bool) -> tuple[int, dict[str, str], str]:
    """Return what one is told: status, headers and text; lengths only where names of the same length are in it.

    Without what differs from one look to the next, and the tag of such a text, which may be compressed.
    """
    assert answer.status_code < 500, answer.text
    is_zip = answer.headers.get("Content-Type") == "application/zip"
    # How long ago something was changes while one looks.
    text = "" if is_zip else re.sub(r"\d+\s(second|minute|hour)s? ago|just now|a moment ago", "ago", answer.text)
    text, n_tokens = re.subn(r'(name="csrf" value=)"[0-9a-f]{64}"', r"\1", text)
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    differs = "ago" in text or n_tokens > 0
    if is_cut or differs:
        headers.pop("Content-Length", None)
    if differs:
        headers.pop("ETag", None)
    return answer.status_code, headers, text


def mask(text: str, *, world: str, ids: list[str]) -> str:
    """Take out what tells worlds and moments apart whatever the labels are."""
    for known in (world, *ids):
        text = text.replace(known, "X")
    text = re.sub(r"\b[0-9a-f]{64}\b", "H", text)
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?", "D", text)


CASES = [(strategy, benchmark) for strategy in Strategy for benchmark in CELLS]


def make_files(strategy: Strategy, benchmark: str) -> tuple[bytes, bytes]:
    """Return a file, and one near it that was made to find the label of the benchmark's first question."""
    rng = np.random.default_rng([list(Strategy).index(strategy), CELLS[benchmark]])
    per = R if strategy.unit_is_trajectory else 1
    actions = {name: draw(rng, strategy, n * per) for name, n in CELLS.items()}
    # The target is left without thinking in one file and thinks in the other: in one world it is right, in one wrong.
    actions[benchmark][:per] = 0
    near = {name: units.copy() for name, units in actions.items()}
    near[benchmark][:per] = FULL[strategy]
    # And with up to six more units, too few for the threshold.
    others = slice(10 * per, 16 * per, per)
    near["large"][others] = actions["large"][others] == 0
    return write(actions, strategy), write(near, strategy)


@dataclass
class Attack:
    """What was to be seen in one world.

    `before` and `after` are what anybody saw of everything else, `about` what everybody saw of each near file.
    """

    before: dict[Case, Answers] = field(default_factory=dict)
    after: dict[Case, Answers] = field(default_factory=dict)
    about: dict[Case, Answers] = field(default_factory=dict)
    states: dict[Case, tuple[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def attacks(worlds: Board) -> list[Attack]:
    """All nine attacks in both worlds, looked at once before the near files were sent and once after."""
    return [attack(worlds, world) for world in WORLDS]


def attack(worlds: Board, world: str) -> Attack:
    seen = Attack()
    first: dict[Case, str] = {}
    for case in CASES:
        strategy, benchmark = case
        form = {"snapshot": world, "strategy": strategy.value, "method": f"far-{world}-{strategy}-{benchmark}"}
        first[case] = worlds.submit(make_files(*case)[0], **form)
        worlds.score(first[case])
        assert worlds.me.post(f"/api/v1/submissions/{first[case]}/publish").status_code == 200
    seen.before = observe_rest(worlds, world, first)
    for case in CASES:
        strategy, benchmark = case
        scope: dict[str, Any] = {"world": world, "strategy": strategy, "benchmark": benchmark}
        form = {"snapshot": world, "strategy": strategy.value, "method": f"near-{world}-{strategy}-{benchmark}"}
        second = worlds.submit(make_files(*case)[1], **form)
        worlds.score(second)
        states = [worlds.me.get(f"/api/v1/submissions/{one}").json()["state"] for one in (first[case], second)]
        seen.states[case] = (states[0], states[1])
        about = {
            f"{who} {address}": answer
            for who, client in (("team", worlds.me), ("stranger", worlds.stranger), ("anybody", worlds.reader))
            for address, answer in observe(client, {}, **scope, submission=second, other=first[case]).items()
            if "/methods/far" not in address
        }
        ids = [first[case], second]
        seen.about[case] = {
            mask(key, world=world, ids=ids[:1]): (
                status,
                {name: mask(value, world=world, ids=ids) for name, value in headers.items()},
                mask(text, world=world, ids=ids),
            )
            for key, (status, headers, text) in about.items()
        }
    seen.after = observe_rest(worlds, world, first)
    return seen


def observe_rest(worlds: Board, world: str, first: dict[Case, str]) -> dict[Case, Answers]:
    """Return what anybody is told of everything, the published files among it, by the attack that would ask it."""
    known: dict[str, Any] = {}
    return {
        case: observe(worlds.reader, known, world=world, strategy=case[0], benchmark=case[1], submission=first[case])
        for case in CASES
    }


@pytest.mark.parametrize(("strategy", "benchmark"), CASES)
def test_a_near_file_tells_nothing_of_the_label_it_was_made_to_find(
    attacks: list[Attack], strategy: Strategy, benchmark: str
) -> None:
    case = (strategy, benchmark)
    for seen in attacks:
        assert seen.states[case] == ("published", "withheld")
        assert seen.after[case] == seen.before[case]
        about = seen.about[case]
        for address in ("score", "receipt"):
            assert about[f"team /api/v1/submissions/S/{address}"][0] == 409
        assert about["team /api/v1/compare?submissions=S,X"][0] == 409
    right, wrong = (seen.about[case] for seen in attacks)
    assert right.keys() == wrong.keys()
    for key, answer in right.items():
        assert answer == wrong[key], key


def test_the_public_snapshots_of_both_worlds_hold_the_same(worlds: Board) -> None:
    """The download names the whole snapshot by its hash and holds nothing else that rests on labels."""
    held = []
    for world in WORLDS:
        archive = zipfile.ZipFile(io.BytesIO(worlds.reader.get(f"/api/v1/snapshots/{world}/download").content))
        tables = {
            name: pq.read_table(io.BytesIO(archive.read(name))) for name in archive.namelist() if "parquet" in name
        }
        held.append({name: table.to_pylist() for name, table in tables.items()})
        assert all(row.get("correct_probes") is None for row in held[-1]["trajectories.parquet"])
    assert held[0] == held[1]
