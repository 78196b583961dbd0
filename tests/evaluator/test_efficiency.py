"""E3 and AES: hand-computed values, the published tables, limits and reasons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from app.evaluator.efficiency import AesWeights, aes, e3, measure_efficiency

BASE = {"base_accuracy": 0.5, "base_tokens": 100.0}


def formula(a: float, t: float, a0: float, t0: float) -> float:
    """The default E3 as section 6 prints it."""
    return 1 / (a0 * ((1 - a) / a) * (a0 / (1 - a0)) + (1 - a0) * t / t0)


def test_e3_by_hand() -> None:
    # Same point as the baseline: 1 / (0.5 + 0.5) = 1.
    assert e3(0.5, 100.0, **BASE) == 1.0
    # Odds 0.75 / 0.25 = 3 against odds 1: 1 / (0.5 / 3 + 0.5 * 1) = 1 / (2/3) = 1.5.
    assert e3(0.75, 100.0, **BASE) == pytest.approx(1.5, rel=1e-15)
    # The same odds at a quarter of the tokens: 1 / (1/6 + 1/8) = 24/7.
    assert e3(0.75, 25.0, **BASE) == pytest.approx(24 / 7, rel=1e-15)
    # A0 = 0.8 (odds 4), A = 0.6 (odds 1.5), half the tokens: 1 / (0.8 * 4 / 1.5 + 0.2 / 2) = 30/67.
    assert e3(0.6, 50.0, base_accuracy=0.8, base_tokens=100.0) == pytest.approx(30 / 67, rel=1e-14)


def test_e3_other_means_by_hand() -> None:
    # a = 3, b = 4, w = 1/2. rho = 1: 3.5. rho = 2: sqrt(12.5). rho = 0: sqrt(12).
    assert e3(0.75, 25.0, **BASE, rho=1.0) == pytest.approx(3.5, rel=1e-15)
    assert e3(0.75, 25.0, **BASE, rho=2.0) == pytest.approx(math.sqrt(12.5), rel=1e-15)
    assert e3(0.75, 25.0, **BASE, rho=0.0) == pytest.approx(math.sqrt(12.0), rel=1e-15)
    # w = 1/4: 1 / (1/12 + 3/16) = 48/13.
    assert e3(0.75, 25.0, **BASE, weight=0.25) == pytest.approx(48 / 13, rel=1e-15)


@pytest.mark.parametrize("rho", [-1e-13, 1e-13])
def test_e3_is_continuous_at_rho_zero(rho: float) -> None:
    # Forming the mean of powers directly loses all digits here: x ** 1e-13 differs from 1 in its last digits only.
    assert e3(0.75, 25.0, **BASE, rho=rho) == pytest.approx(math.sqrt(12.0), rel=1e-12)


@pytest.mark.parametrize("rho", [-1000.0, 1000.0])
def test_e3_survives_large_rho(rho: float) -> None:
    # 4 ** 1000 is no float; the mean tends to the smaller or the larger of 3 and 4.
    assert e3(0.75, 25.0, **BASE, rho=rho) == pytest.approx(3.0 if rho < 0 else 4.0, rel=0.01)


def test_e3_at_its_edges() -> None:
    assert e3(0.0, 50.0, **BASE) == 0.0
    assert e3(0.0, 0.0, **BASE) == 0.0
    # T = 0 leaves the accuracy term: 1 / (0.5 / 3) = 6.
    assert e3(0.75, 0.0, **BASE) == pytest.approx(6.0, rel=1e-15)
    # A = 1 leaves the token term: 1 / (0.5 * 0.25) = 8.
    assert e3(1.0, 25.0, **BASE) == pytest.approx(8.0, rel=1e-15)
    # Both: it grows without bound.
    assert e3(1.0, 0.0, **BASE) is None
    # Limits that are infinite or do not exist.
    assert e3(1.0, 25.0, **BASE, rho=1.0) is None
    assert e3(0.0, 0.0, **BASE, rho=0.0) is None
    # rho = 1, A = 0: only the token ratio is left, 0.5 * 4 = 2.
    assert e3(0.0, 25.0, **BASE, rho=1.0) == pytest.approx(2.0, rel=1e-15)


@pytest.mark.parametrize(("base_accuracy", "base_tokens"), [(0.0, 100.0), (1.0, 100.0), (0.5, 0.0)])
def test_e3_without_a_baseline_is_none(base_accuracy: float, base_tokens: float) -> None:
    assert e3(0.5, 10.0, base_accuracy=base_accuracy, base_tokens=base_tokens) is None


def test_e3_equals_the_printed_formula_on_a_grid() -> None:
    grid = [0.01, 0.3, 0.5, 0.77, 0.99]
    for a in grid:
        for a0 in grid:
            for t in (1.0, 50.0, 1e5):
                expected = formula(a, t, a0, 300.0)
                assert e3(a, t, base_accuracy=a0, base_tokens=300.0) == pytest.approx(expected, rel=1e-13)


def load_rows(reference_tables: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((reference_tables / "effireason_tables.json").read_text())["rows"]
    return rows


def test_e3_reproduces_the_published_tables(reference_tables: Path) -> None:
    """135 of the 136 printed values; the one that differs computes to 0.955 where 1.14 is printed."""
    rows = load_rows(reference_tables)
    baselines = {(r["dataset"], r["backbone"]): r for r in rows if r["e3_printed"] is None}
    printed = [r for r in rows if r["e3_printed"] is not None]
    differing = []
    for row in printed:
        base = baselines[row["dataset"], row["backbone"]]
        value = e3(
            row["accuracy_percent"] / 100,
            row["mean_output_tokens"],
            base_accuracy=base["accuracy_percent"] / 100,
            base_tokens=base["mean_output_tokens"],
        )
        assert value is not None
        if round(value, 2) != row["e3_printed"]:
            differing.append((row["dataset"], row["method"], row["backbone"], round(value, 3), row["e3_printed"]))
    assert len(printed) == 136
    assert differing == [("CommonsenseQA", "SoT", "LLaMA-70B-Instruct", 0.955, 1.14)]


def test_e3_of_two_published_rows() -> None:
    """Two rows of the paper's first table (GSM8K), so that the formula is tied to it where the tables are absent."""
    # Chain of Draft and TokenSkip on the 7B model against 90.60 % at 292.86 tokens.
    base = {"base_accuracy": 0.906, "base_tokens": 292.86}
    assert round(e3(0.6482, 45.94, **base) or 0, 2) == 0.21
    assert round(e3(0.8863, 214.91, **base) or 0, 2) == 0.84


def test_aes_by_hand() -> None:
    # A fifth more accurate (0.6 against 0.5) and a quarter of the tokens saved: 0.25 + 3 * 0.2 = 0.85.
    assert aes(0.6, 75.0, **BASE) == pytest.approx(0.85, rel=1e-15)
    # A fifth less accurate: 0.25 - 5 * 0.2 = -0.75.
    assert aes(0.4, 75.0, **BASE) == pytest.approx(-0.75, rel=1e-15)
    # Twice the tokens at the same accuracy: 1 * -1 + 3 * 0.
    assert aes(0.5, 200.0, **BASE) == -1.0
    # Other weights: 2 * 0.25 - 1 * 0.2 = 0.3.
    assert aes(0.4, 75.0, **BASE, weights=AesWeights(tokens=2.0, gain=1.0, loss=1.0)) == pytest.approx(0.3, rel=1e-15)
    assert aes(0.5, 75.0, base_accuracy=0.0, base_tokens=100.0) is None
    assert aes(0.5, 75.0, base_accuracy=0.5, base_tokens=0.0) is None


def test_figures_carry_reasons() -> None:
    figures = measure_efficiency(0.5, 10.0, base_accuracy=0.0, base_tokens=100.0)
    assert (figures.e3, figures.e3_reason) == (None, "base_accuracy_is_0_or_1")
    assert (figures.aes, figures.aes_reason) == (None, "base_accuracy_is_0")
    figures = measure_efficiency(0.5, 10.0, base_accuracy=0.5, base_tokens=0.0)
    assert (figures.e3_reason, figures.aes_reason) == ("base_tokens_is_0", "base_tokens_is_0")
    figures = measure_efficiency(1.0, 0.0, **BASE)
    assert (figures.e3, figures.e3_reason, figures.aes_reason) == (None, "unbounded", None)
    # All tokens saved, accuracy doubled: 1 + 3 * 1.
    assert (figures.aes, figures.aes_weights) == (4.0, AesWeights(1.0, 3.0, 5.0))


def test_figures_use_the_weights_they_are_given() -> None:
    """The weights once stopped here: every figure had the default ones, whatever was asked for."""
    figures = measure_efficiency(
        0.75, 25.0, **BASE, weight=0.25, aes_weights=AesWeights(tokens=2.0, gain=1.0, loss=1.0)
    )
    # a = 3, b = 4, w = 1/4: 1 / (1/12 + 3/16) = 48/13. AES: 2 * 0.75 + 1 * 0.5.
    assert (figures.e3, figures.weight) == (pytest.approx(48 / 13, rel=1e-15), 0.25)
    assert (figures.aes, figures.aes_weights) == (2.0, AesWeights(2.0, 1.0, 1.0))
    # rho = 1: 3/4 + 12/4 = 3.75.
    figures = measure_efficiency(0.75, 25.0, **BASE, weight=0.25, rho=1.0)
    assert (figures.e3, figures.rho) == (pytest.approx(3.75, rel=1e-15), 1.0)
    # Unless one is given, the weight is A0.
    assert measure_efficiency(0.75, 25.0, **BASE).weight == 0.5


@pytest.mark.parametrize(
    "changed",
    [
        {"accuracy": -0.1},
        {"accuracy": 1.1},
        {"accuracy": math.nan},
        {"tokens": -1.0},
        {"tokens": math.inf},
        {"base_accuracy": 50.0},
        {"base_tokens": math.nan},
        {"rho": math.inf},
        {"weight": 1.0},
    ],
)
def test_arguments_outside_their_range_are_refused(changed: dict[str, float]) -> None:
    point = {"accuracy": 0.5, "tokens": 10.0, **BASE, **changed}
    with pytest.raises(ValueError, match=next(iter(changed))):
        measure_efficiency(point.pop("accuracy"), point.pop("tokens"), **point)


@pytest.mark.parametrize("weight", [0.0, 1.0, math.nan])
def test_a_weight_outside_its_range_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        e3(0.5, 10.0, **BASE, weight=weight)
