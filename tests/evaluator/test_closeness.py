"""What a file is too close to: every way around the rule that could be thought of, and that honest files pass."""

from __future__ import annotations

import numpy as np
import pytest

from app.evaluator.closeness import MIN_PAIRS, Closeness, FileStops, Verdict, find_close
from app.evaluator.measurements import Measurements, build_cell
from app.evaluator.resampled_settings import Stops
from app.evaluator.strategies import Strategy, select_positions

R = 3
SIZES = {"tiny": 5, "large": 500}
WHOLE, TINY, LARGE = (None, None), ("m", "tiny"), ("m", "large")
Setting = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def measurements() -> Measurements:
    """Two cells of 5 and 500 questions; every trajectory has two steps."""
    curve = [(0, 1), (10, 2), (30, 3)]
    cells = [
        build_cell("m", name, [(f"q{i:03}", "test", [curve] * R) for i in range(n)], 4) for name, n in SIZES.items()
    ]
    return Measurements("s", "0" * 64, "measured", "test", 4, R, ("m",), tuple(SIZES), tuple(cells))


def draw(rng: np.random.Generator, *, share: float = 0.5) -> Setting:
    """Draw which questions think."""
    return {name: (rng.random(n) < share).astype(np.int64) for name, n in SIZES.items()}


def change(setting: Setting, name: str, *questions: int) -> Setting:
    """Return a setting with other routes for some questions."""
    changed = {key: value.copy() for key, value in setting.items()}
    changed[name][list(questions)] ^= 1
    return changed


def route(*settings: Setting) -> FileStops:
    """Return a routing file."""
    cells = [
        Stops(
            np.ones(len(settings), dtype=np.bool_),
            np.repeat(np.stack([2 * s[name] for s in settings]), R, axis=1).astype(np.uint8),
        )
        for name in SIZES
    ]
    return FileStops(tuple(cells), by_trajectory=False)


def as_exit(file: FileStops, *changes: tuple[int, int]) -> FileStops:
    """Return the same policy as an early-exit file, with other positions for some trajectories of the large cell."""
    cells = [Stops(stops.covered, stops.positions.copy()) for stops in file.cells]
    for setting, trajectory in changes:
        cells[1].positions[setting, trajectory] = 1
    return FileStops(tuple(cells), by_trajectory=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_the_same_policies_and_far_ones_are_not_close(measurements: Measurements, rng: np.random.Generator) -> None:
    a, b, c = (draw(rng) for _ in range(3))
    assert not find_close(measurements, route(a, b), [route(a, b)]).is_close
    assert not find_close(measurements, route(b, a, a), [route(a, b)]).is_close
    assert not find_close(measurements, route(a), [route(b), route(c)]).is_close
    assert find_close(measurements, route(a), []) == Verdict(False, frozenset({TINY, (None, "tiny")}))


@pytest.mark.parametrize("n_changed", [1, MIN_PAIRS - 1])
def test_fewer_differing_pairs_than_the_threshold_are_close(
    measurements: Measurements, rng: np.random.Generator, n_changed: int
) -> None:
    a, b = draw(rng), draw(rng)
    near = change(a, "large", *range(n_changed))
    for file, earlier in (
        (route(near), route(a)),
        # Permuted, repeated, and with settings left out or put in beside it.
        (route(b, near), route(a, b)),
        (route(near, near), route(a)),
        (route(near), route(a, b)),
        (route(near, b), route(a)),
    ):
        assert find_close(measurements, file, [earlier]).is_close
        assert find_close(measurements, file, [route(draw(rng)), earlier, route(draw(rng))]).is_close
    assert not find_close(measurements, route(change(a, "large", *range(MIN_PAIRS))), [route(a)]).is_close


def test_one_percent_of_many_pairs_is_the_threshold(measurements: Measurements, rng: np.random.Generator) -> None:
    """32 settings of 505 questions are 16,160 pairs, of which 161 are too few; each setting differs by 5 or more."""
    settings = [draw(rng) for _ in range(32)]
    ten_each = [change(s, "large", *range(10 * i, 10 * i + 10)) for i, s in enumerate(settings)]
    assert find_close(measurements, route(*ten_each[:16], *settings[16:]), [route(*settings)]).is_close
    assert not find_close(measurements, route(*ten_each[:17], *settings[17:]), [route(*settings)]).is_close


def test_a_setting_left_out_is_a_difference_too(measurements: Measurements, rng: np.random.Generator) -> None:
    """The first file shows the better of two policies that differ in one question, the second only one of them."""
    a, far = draw(rng), draw(rng)
    both = route(a, change(a, "large", 3))
    assert find_close(measurements, route(a), [both]).is_close
    assert find_close(measurements, route(a, far), [both]).is_close
    assert find_close(measurements, route(a), [route(a, change(a, "large", 3), far)]).is_close


def test_settings_of_several_files_that_recombine_are_close(
    measurements: Measurements, rng: np.random.Generator
) -> None:
    """No two files are close: each of the near settings stands beside one that is far from everything."""
    a, b = draw(rng), draw(rng)
    first, second = route(a, draw(rng)), route(b, draw(rng))
    mixed = route(change(a, "large", 1), change(b, "large", 2))
    assert find_close(measurements, mixed, [first, second]).is_close
    decoyed = route(change(a, "large", 1), draw(rng))
    assert find_close(measurements, decoyed, [first]).is_close


def test_one_policy_in_three_strategies_is_one_policy(measurements: Measurements, rng: np.random.Generator) -> None:
    routed = route(draw(rng))
    exits = as_exit(routed)
    assert not find_close(measurements, exits, [routed]).is_close
    for changed in (as_exit(routed, (0, 0)), as_exit(routed, *((0, t) for t in range(4 * R)))):
        assert find_close(measurements, changed, [routed]).is_close
        assert find_close(measurements, routed, [changed]).is_close
    # A cap of 0 or without end stops where a route does.
    cell = measurements.cells[1]
    routes = routed.cells[1].positions[0, ::R] // 2
    caps = np.where(routes == 1, 10**9, 0)
    assert (
        select_positions(cell, Strategy.FIXED_BUDGET, caps).tolist()
        == select_positions(cell, Strategy.DYNAMIC_ROUTING, routes.astype(np.int64)).tolist()
    )


def test_the_trajectories_of_few_questions_are_few_units(measurements: Measurements, rng: np.random.Generator) -> None:
    """Nine trajectories pass a threshold of 8, but they are three questions."""
    exits = as_exit(route(draw(rng)))
    assert find_close(measurements, as_exit(exits, *((0, t) for t in range(3 * R))), [exits]).is_close
    spread = as_exit(exits, *((0, t) for t in range(0, 40 * R, R)))
    assert not find_close(measurements, spread, [exits]).is_close


def test_a_decoy_in_another_cell_holds_back_the_board(measurements: Measurements, rng: np.random.Generator) -> None:
    """The whole file differs enough; on the small cell's board one question would be told."""
    a = {"tiny": np.array([0, 1, 0, 1, 1]), "large": draw(rng)["large"]}
    decoyed = change(change(a, "tiny", 0), "large", *range(100))
    found = find_close(measurements, decoyed_file := route(decoyed), [route(a)])
    assert not found.is_close
    assert TINY in found.close_boards
    assert LARGE not in found.close_boards
    # On the large cell's board, too, where the decoys are in the small one.
    few = change(change(a, "tiny", 0, 1, 2, 3, 4), "large", 1, 2, 3)
    assert LARGE in find_close(measurements, route(few), [decoyed_file, route(a)]).close_boards


def test_what_everybody_knows_is_an_earlier_file(measurements: Measurements) -> None:
    """Zero and full thinking are told of every cell, so the first file may not be nearly one of them."""
    nothing = {name: np.zeros(n, dtype=np.int64) for name, n in SIZES.items()}
    everything = {name: np.ones(n, dtype=np.int64) for name, n in SIZES.items()}
    assert not find_close(measurements, route(nothing, everything), []).is_close
    assert find_close(measurements, route(change(nothing, "large", 7)), []).is_close
    assert find_close(measurements, route(nothing, change(everything, "tiny", 2)), []).is_close


def test_settings_that_leave_a_cell_out_are_far_there(measurements: Measurements, rng: np.random.Generator) -> None:
    a = draw(rng)
    whole = route(a)
    partial = FileStops((Stops(np.array([False]), whole.cells[0].positions[:0]), whole.cells[1]), by_trajectory=False)
    # Five questions of the small cell are fewer than eight: leaving them out tells of them.
    assert find_close(measurements, partial, [whole]).is_close
    assert find_close(measurements, partial, [partial]) == Verdict(False, frozenset())


def test_the_order_of_the_earlier_files_does_not_matter(measurements: Measurements, rng: np.random.Generator) -> None:
    a, b, c = (draw(rng) for _ in range(3))
    file, earlier = route(change(a, "large", *range(9)), b), [route(a), route(b, c), route(c)]
    verdicts = []
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        closeness = Closeness(measurements, file)
        for idx in order:
            closeness.compare(earlier[idx])
        verdicts.append(closeness.conclude())
    assert verdicts[0] == verdicts[1] == verdicts[2]
