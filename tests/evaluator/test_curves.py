"""Curves and their means: by hand, and against slow oracles in Python's fractions on random curves full of ties."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from app.evaluator.curves import (
    AnyCurve,
    Curve,
    HullCurve,
    build_curve,
    find_beta_match,
    find_beta_sat,
    find_nondominated,
    max_accuracy,
    mean_accuracy_at,
    mean_accuracy_at_grid,
    mean_area,
    mean_steps,
    upper_hull,
)

Point = tuple[int, int]


def curve_of(points: list[Point], total: int, probes: int) -> Curve:
    costs, rewards = np.array(points, dtype=np.int64).T
    return Curve(costs, rewards, total, probes)


def hull_of(points: list[Point], total: int, probes: int) -> HullCurve:
    costs, rewards = np.array(points, dtype=np.int64).reshape(-1, 2).T
    return upper_hull(costs, rewards, total_thinking_tokens=total, total_probes=probes)


def draw_curve(rng: np.random.Generator, *, probes: int) -> Curve:
    """A random step curve; totals share factors, so that budgets of different curves are often equal."""
    total = int(rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 24]))
    n_points = int(rng.integers(1, min(total, probes) + 2))
    costs = np.concatenate([[0], np.sort(rng.permutation(np.arange(1, total + 1))[: n_points - 1])])
    rewards = np.sort(rng.permutation(probes + 1)[:n_points])
    return Curve(costs.astype(np.int64), rewards.astype(np.int64), total, probes)


# Slow oracles: the definitions, in fractions.


def beta_of(curve: Curve, cost: int) -> Fraction:
    return Fraction(cost, curve.total_thinking_tokens) if curve.total_thinking_tokens else Fraction(0)


def accuracy_slowly(curve: Curve, beta: Fraction) -> Fraction:
    points = zip(curve.cost.tolist(), curve.correct.tolist(), strict=True)
    return max(Fraction(r, curve.total_probes) for c, r in points if beta_of(curve, c) <= beta)


def mean_slowly(curves: list[Curve], beta: Fraction) -> Fraction:
    return sum((accuracy_slowly(c, beta) for c in curves), start=Fraction(0)) / len(curves)


def breakpoints_slowly(curves: list[Curve]) -> list[Fraction]:
    return sorted({beta_of(curve, cost) for curve in curves for cost in curve.cost.tolist()})


def area_slowly(curves: list[Curve]) -> Fraction:
    betas = [*breakpoints_slowly(curves), Fraction(1)]
    steps = pairwise(betas)
    return sum(((right - left) * mean_slowly(curves, left) for left, right in steps), start=Fraction(0))


def test_step_curve_by_hand() -> None:
    curve = curve_of([(0, 2), (40, 5), (80, 6)], 100, 8)
    # 40 of 100 tokens is 2/5: just below it the first point counts, at it the second.
    assert curve.accuracy_at(Fraction(0)) == Fraction(2, 8)
    assert curve.accuracy_at(Fraction(2, 5) - Fraction(1, 10**30)) == Fraction(2, 8)
    assert curve.accuracy_at(Fraction(2, 5)) == Fraction(5, 8)
    assert curve.accuracy_at(Fraction(1)) == Fraction(6, 8)
    # (2 * 40 + 5 * 40 + 6 * 20) / (100 * 8) = 400 / 800.
    assert curve.area() == Fraction(1, 2)
    assert curve.correct_at_grid(5).tolist() == [2, 2, 5, 5, 6, 6]
    assert curve.accuracy_at_grid(5).tolist() == [0.25, 0.25, 0.625, 0.625, 0.75, 0.75]
    assert find_beta_match([curve], Fraction(3, 8)) == Fraction(2, 5)
    assert find_beta_sat([curve]) == Fraction(4, 5)
    assert max_accuracy([curve]) == Fraction(3, 4)


def test_budget_of_one_admits_everything() -> None:
    # For every total and cost the budget cost/total admits that cost; 1/3 of 3, 7/49 and the like fail in floats.
    for total in range(1, 60):
        for cost in range(1, total + 1):
            curve = curve_of([(0, 0), (cost, 1)], total, 1)
            assert curve.accuracy_at(Fraction(cost, total)) == 1
            assert curve.correct_at_grid(total)[cost - 1 : cost + 1].tolist() == [0, 1]
            assert find_beta_match([curve], Fraction(1)) == Fraction(cost, total)
        full = curve_of([(0, 0), (total, 1)], total, 1)
        assert full.accuracy_at(Fraction(1)) == 1
        assert full.area() == 0
        assert mean_accuracy_at_grid([full], 1000)[-2:].tolist() == [0.0, 1.0]


def test_float_budgets_would_lose_a_point() -> None:
    # 0.29 * 100 is 28.999999999999996 in floats; the grid's 29th hundredth must still admit 29 tokens.
    assert int(0.29 * 100) == 28
    assert curve_of([(0, 0), (29, 1)], 100, 1).correct_at_grid(100)[28:30].tolist() == [0, 1]


def test_grid_equals_fractions() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        curve = draw_curve(rng, probes=int(rng.integers(1, 12)))
        n = int(rng.integers(1, 40))
        expected = [accuracy_slowly(curve, Fraction(i, n)) for i in range(n + 1)]
        assert [Fraction(int(r), curve.total_probes) for r in curve.correct_at_grid(n)] == expected
        assert curve.accuracy_at_grid(n).tolist() == [float(a) for a in expected]
        assert [curve.accuracy_at(Fraction(i, n)) for i in range(n + 1)] == expected
        assert curve.area() == area_slowly([curve])


def test_curve_without_tokens_is_constant() -> None:
    curve = curve_of([(0, 3)], 0, 4)
    hull = hull_of([(0, 3), (0, 2)], 0, 4)
    for constant in (curve, hull):
        assert constant.area() == Fraction(3, 4)
        assert constant.accuracy_at(Fraction(0)) == constant.accuracy_at(Fraction(1)) == Fraction(3, 4)
        assert constant.accuracy_at_grid(4).tolist() == [0.75] * 5
    assert find_beta_sat([curve]) == 0
    assert find_beta_match([curve], Fraction(3, 4)) == 0
    assert find_beta_match([curve], Fraction(7, 8)) is None


@pytest.mark.parametrize("kind", [Curve, HullCurve])
@pytest.mark.parametrize(
    ("cost", "correct", "total", "probes"),
    [
        ([], [], 10, 4),
        ([0, 5], [1], 10, 4),
        ([1, 5], [1, 2], 10, 4),
        ([0, 5, 5], [1, 2, 3], 10, 4),
        ([0, 5], [2, 2], 10, 4),
        ([0, 5], [3, 2], 10, 4),
        ([0, 11], [1, 2], 10, 4),
        ([0, 5], [1, 5], 10, 4),
        ([0, 5], [-1, 2], 10, 4),
        ([0], [0], 10, 0),
    ],
)
def test_points_that_are_no_curve(
    kind: type[AnyCurve], cost: list[int], correct: list[int], total: int, probes: int
) -> None:
    with pytest.raises(ValueError, match=r"curve|costs|rewards"):
        kind(np.array(cost, dtype=np.int64), np.array(correct, dtype=np.int64), total, probes)


def test_points_that_are_not_integers() -> None:
    with pytest.raises(ValueError, match="int64"):
        Curve(np.array([0.0, 1.0]), np.array([0, 1]), 2, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="int64"):
        Curve(np.array([0, 1]), np.array([0, 1], dtype=np.int32), 2, 4)  # type: ignore[arg-type]


def test_questions_out_of_range() -> None:
    curve = curve_of([(0, 0), (5, 2)], 10, 4)
    hull = hull_of([(0, 0), (5, 2)], 10, 4)
    for beta in (Fraction(-1, 9), Fraction(10, 9)):
        for either in (curve, hull):
            with pytest.raises(ValueError, match="relative budget"):
                either.accuracy_at(beta)
    with pytest.raises(ValueError, match="never negative"):
        curve.correct_at_cost(np.array([3, -1]))
    for either in (curve, hull):
        with pytest.raises(ValueError, match="at least one interval"):
            either.accuracy_at_grid(0)


def test_nondominated_points() -> None:
    rng = np.random.default_rng(2)
    for _ in range(400):
        n = int(rng.integers(0, 12))
        costs, rewards = rng.integers(0, 6, n), rng.integers(0, 6, n)
        points = list(zip(costs.tolist(), rewards.tolist(), strict=True))

        def is_beaten(i: int, points: list[Point] = points) -> bool:
            (c, r) = points[i]
            # Equal cost: the better. Equal accuracy: the cheaper. Equal in both: the first.
            return any(
                (cost <= c and reward >= r) and ((cost, reward) != (c, r) or j < i)
                for j, (cost, reward) in enumerate(points)
                if j != i
            )

        expected = sorted((i for i in range(n) if not is_beaten(i)), key=lambda i: points[i])
        assert find_nondominated(costs, rewards).tolist() == expected


def test_curve_through_any_points() -> None:
    costs, rewards = np.array([40, 0, 40, 0, 90, 60]), np.array([3, 2, 5, 1, 5, 4])
    curve = build_curve(costs, rewards, total_thinking_tokens=100, total_probes=8)
    assert (curve.cost.tolist(), curve.correct.tolist()) == ([0, 40], [2, 5])
    with pytest.raises(ValueError, match="begin at 0"):
        build_curve(np.array([1]), np.array([1]), total_thinking_tokens=9, total_probes=8)


def test_hull_by_hand() -> None:
    # (20, 3) lies below the line from (0, 2) to (40, 6), (60, 7) exactly on the one from (40, 6) to (80, 8), and
    # (100, 8) is no higher than (80, 8).
    hull = hull_of([(0, 2), (20, 3), (40, 6), (60, 7), (80, 8), (100, 8)], 100, 10)
    assert (hull.cost.tolist(), hull.correct.tolist()) == ([0, 40, 80], [2, 6, 8])
    assert hull.accuracy_at(Fraction(1, 5)) == Fraction(4, 10)
    assert hull.accuracy_at(Fraction(3, 5)) == Fraction(7, 10)
    assert hull.accuracy_at(Fraction(9, 10)) == Fraction(8, 10)
    # Trapezoids 40 * (2 + 6) / 2 + 40 * (6 + 8) / 2 and a rectangle 20 * 8: 160 + 280 + 160 = 600 of 1000.
    assert hull.area() == Fraction(3, 5)
    assert hull.accuracy_at_grid(5).tolist() == [0.2, 0.4, 0.6, 0.7, 0.8, 0.8]


def mix_slowly(points: list[Point], budget: Fraction) -> Fraction:
    """The best reward of any mix of two points whose mean cost is within the budget."""
    best = max(Fraction(r) for c, r in points if c <= budget)
    for (c1, r1), (c2, r2) in combinations(points, 2):
        low, high = sorted([(c1, r1), (c2, r2)])
        if low[0] <= budget < high[0]:
            share = (budget - low[0]) / (high[0] - low[0])
            best = max(best, low[1] + share * (high[1] - low[1]))
    return best


def test_hull_is_the_best_mix_of_its_points() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        total, probes, n = int(rng.integers(1, 30)), int(rng.integers(1, 20)), int(rng.integers(0, 8))
        points = [(0, int(rng.integers(0, probes + 1)))]
        points += [(int(rng.integers(0, total + 1)), int(rng.integers(0, probes + 1))) for _ in range(n)]
        hull = hull_of(points, total, probes)
        # Twice the total: every vertex, and the middle of everything.
        expected = [mix_slowly(points, Fraction(i, 2)) / probes for i in range(2 * total + 1)]
        assert [hull.accuracy_at(Fraction(i, 2 * total)) for i in range(2 * total + 1)] == expected
        assert hull.accuracy_at_grid(2 * total).tolist() == pytest.approx([float(a) for a in expected], rel=1e-15)
        # Linear between integer costs, so the trapezoid sum over them is the integral.
        whole = expected[::2]
        assert hull.area() == sum((a + b) / 2 for a, b in pairwise(whole)) / total


def test_hull_refuses_points_that_are_not_concave() -> None:
    with pytest.raises(ValueError, match="slopes of a hull"):
        HullCurve(np.array([0, 1, 2]), np.array([0, 1, 2]), 10, 4)
    with pytest.raises(ValueError, match="slopes of a hull"):
        HullCurve(np.array([0, 2, 3]), np.array([0, 1, 2]), 10, 4)


def test_macro_figures_equal_fractions() -> None:
    rng = np.random.default_rng(4)
    n_tied = 0
    for _ in range(200):
        curves = [draw_curve(rng, probes=int(rng.integers(1, 9))) for _ in range(int(rng.integers(1, 6)))]
        betas = breakpoints_slowly(curves)
        n_tied += len(betas) < sum(len(c.cost) - 1 for c in curves) + 1
        values = [mean_slowly(curves, beta) for beta in betas]
        steps = mean_steps(curves)
        assert steps.beta.tolist() == [float(beta) for beta in betas]
        assert steps.accuracy.tolist() == [float(value) for value in values]
        assert max_accuracy(curves) == values[-1] == mean_slowly(curves, Fraction(1))
        assert find_beta_sat(curves) == min(b for b, v in zip(betas, values, strict=True) if v == values[-1])
        assert mean_area(curves) == area_slowly(curves)
        targets = [*values, *(v - Fraction(1, 10**6) for v in values), *(v + Fraction(1, 10**6) for v in values)]
        for target in targets:
            reached = [b for b, v in zip(betas, values, strict=True) if v >= target]
            assert find_beta_match(curves, target) == (reached[0] if reached else None)
        assert mean_accuracy_at(curves, betas[-1]) == values[-1]
        assert mean_accuracy_at_grid(curves, 12).tolist() == [
            float(mean_slowly(curves, Fraction(i, 12))) for i in range(13)
        ]
    assert n_tied > 50


def test_large_totals_and_probes_change_nothing() -> None:
    # The same curves with totals past 2**31 (budgets are then ordered as fractions) and with so many probes that the
    # common denominator leaves int64 (accuracies are then added as Python integers).
    rng = np.random.default_rng(5)
    for _ in range(60):
        curves = [draw_curve(rng, probes=int(rng.integers(2, 9))) for _ in range(int(rng.integers(1, 5)))]
        factors = [2**33 * int(rng.integers(1, 4)) for _ in curves]
        long = [
            Curve(c.cost * f, c.correct, c.total_thinking_tokens * f, c.total_probes)
            for c, f in zip(curves, factors, strict=True)
        ]
        wide = [
            Curve(c.cost, c.correct * p, c.total_thinking_tokens, c.total_probes * p)
            for c, p in zip(curves, (10**17 + 3, 10**17 + 13, 10**17 + 19, 10**17 + 21), strict=False)
        ]
        expected = mean_steps(curves)
        middle = (max_accuracy(curves) + mean_accuracy_at(curves, Fraction(0))) / 2
        for other in (long, wide):
            steps = mean_steps(other)
            assert steps.beta.tolist() == expected.beta.tolist()
            assert steps.accuracy.tolist() == pytest.approx(expected.accuracy.tolist(), rel=1e-15)
            assert mean_accuracy_at_grid(other, 7).tolist() == pytest.approx(mean_accuracy_at_grid(curves, 7).tolist())
            assert mean_area(other) == mean_area(curves)
            assert find_beta_sat(other) == find_beta_sat(curves)
            for target in (middle, max_accuracy(curves), max_accuracy(curves) + Fraction(1, 10**6)):
                assert find_beta_match(other, target) == find_beta_match(curves, target)


def test_hull_with_large_totals_and_probes() -> None:
    small = hull_of([(0, 1), (3, 4), (8, 6)], 9, 8)
    large = HullCurve(small.cost * 10**12, small.correct * 10**9, 9 * 10**12, 8 * 10**9)
    assert large.accuracy_at_grid(50).tolist() == pytest.approx(small.accuracy_at_grid(50).tolist(), rel=1e-15)
    assert large.area() == small.area()


@pytest.mark.parametrize("total", [2**31 - 1, 2**31, 2**40])
def test_budgets_that_floats_cannot_tell_apart_stay_in_order(total: int) -> None:
    # (total - 2) / (total - 1) < (total - 1) / total, by 1 / (total * (total - 1)): less than float64 resolves.
    early = curve_of([(0, 0), (total - 2, 1)], total - 1, 2)
    late = curve_of([(0, 0), (total - 1, 1)], total, 2)
    for curves in ([early, late], [late, early]):
        assert find_beta_match(curves, Fraction(1, 4)) == Fraction(total - 2, total - 1)
        assert find_beta_match(curves, Fraction(1, 2)) == Fraction(total - 1, total) == find_beta_sat(curves)
        assert mean_steps(curves).accuracy.tolist() == [0.0, 0.25, 0.5]


def test_budgets_of_one_half_in_different_cells_are_one_step() -> None:
    curves = [curve_of([(0, 0), (t // 2, 1)], t, 1) for t in (2, 2**31 - 2, 10**6, 2 * 3**15)]
    assert mean_steps(curves).beta.tolist() == [0.0, 0.5]
    assert mean_steps(curves).accuracy.tolist() == [0.0, 1.0]


def test_mean_of_steps_and_hulls() -> None:
    # At one half: (3/4 + (2 + 6) / 2 / 8) / 2 = (3/4 + 1/2) / 2 = 5/8.
    mixed: list[AnyCurve] = [curve_of([(0, 1), (5, 3)], 10, 4), hull_of([(0, 2), (80, 6)], 80, 8)]
    assert mean_accuracy_at(mixed, Fraction(1, 2)) == Fraction(5, 8)
    assert mean_accuracy_at_grid(mixed, 2).tolist() == [0.25, 0.625, 0.75]
    # Areas (1 + 3) / 2 / 4 = 1/2 and (2 + 6) / 2 / 8 = 1/2.
    assert mean_area(mixed) == Fraction(1, 2)
    assert max_accuracy(mixed) == Fraction(3, 4)


def test_cells_weigh_the_same_whatever_their_size() -> None:
    # 1 of 1 probe and 0 of 1000 probes: one half.
    curves = [curve_of([(0, 1)], 5, 1), curve_of([(0, 0)], 5000, 1000)]
    assert max_accuracy(curves) == Fraction(1, 2)
    assert mean_area(curves) == Fraction(1, 2)
    assert mean_steps(curves).accuracy.tolist() == [0.5]
    assert mean_accuracy_at_grid(curves, 1).tolist() == [0.5, 0.5]


def test_snapshot_twice_over_has_the_same_means() -> None:
    rng = np.random.default_rng(6)
    for _ in range(50):
        curves = [draw_curve(rng, probes=6) for _ in range(3)]
        twice = [*curves, *reversed(curves)]
        assert mean_area(twice) == mean_area(curves)
        assert find_beta_sat(twice) == find_beta_sat(curves)
        assert mean_steps(twice).beta.tolist() == mean_steps(curves).beta.tolist()
        assert mean_steps(twice).accuracy.tolist() == mean_steps(curves).accuracy.tolist()
        target = max_accuracy(curves)
        assert find_beta_match(twice, target) == find_beta_match(curves, target) == find_beta_sat(curves)


def test_no_cell_has_no_mean() -> None:
    for function in (mean_area, max_accuracy, mean_steps, find_beta_sat):
        with pytest.raises(ValueError, match="no cell"):
            function([])
    with pytest.raises(ValueError, match="no cell"):
        mean_accuracy_at([], Fraction(1))
    with pytest.raises(ValueError, match="no cell"):
        mean_accuracy_at_grid([], 10)
    with pytest.raises(ValueError, match="no cell"):
        find_beta_match([], Fraction(1))
