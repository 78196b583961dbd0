"""What figures say in words, the examples in the modules, and the contrast of the colours they use."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from app.evaluator.strategies import Strategy
from app.plots.captions import describe_oracle, describe_realised, format_percent
from app.plots.palette import INK, METHOD_STYLES, MUTED, PAPER, STRATEGY_TEXT_TONES, STRATEGY_TONES, Tone


@pytest.mark.parametrize("name", ["badge", "captions", "labels", "leading", "multiples", "steps"])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"app.plots.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize(
    ("realised", "said"),
    [
        (0.412, "41\u00a0%"),
        # Whole percents would say that nothing, or everything, is realised.
        (0.004, "0.4\u00a0%"),
        (0.9981, "99.8\u00a0%"),
        (0.0, "0.0\u00a0%"),
    ],
)
def test_a_realised_potential_is_said_with_as_many_digits_as_it_takes(realised: float, said: str) -> None:
    sentence = describe_realised("A", Strategy.FIXED_BUDGET, realised)
    assert sentence == f"A realises {said} of what fixed budgets could"


def test_below_the_constants_there_is_no_share_to_realise() -> None:
    assert "worse than the best mix of constant early-exit policies" in describe_realised(
        "A", Strategy.DYNAMIC_EARLY_EXIT, -0.001
    )


def test_the_oracle_of_a_board_without_methods_is_described() -> None:
    assert "stays below" in describe_oracle(Strategy.DYNAMIC_ROUTING, None)
    assert "without any thinking" in describe_oracle(Strategy.DYNAMIC_ROUTING, 0.0)
    assert "on 12\u00a0% of the tokens" in describe_oracle(Strategy.DYNAMIC_ROUTING, 0.123)


def test_percent_rounds_and_has_a_true_minus() -> None:
    assert format_percent(-0.0004) == "0.0\u00a0%"
    assert format_percent(-0.0006) == "−0.1\u00a0%"


TEXT_TONES = [INK, MUTED, *STRATEGY_TEXT_TONES.values(), *(style.tone for style in METHOD_STYLES)]


@pytest.mark.parametrize("tone", TEXT_TONES, ids=lambda tone: tone.light)
def test_text_colours_can_be_read(tone: Tone) -> None:
    assert _contrast(tone.light, PAPER.light) >= 4.5
    assert _contrast(tone.dark, PAPER.dark) >= 4.5


def test_strategies_keep_their_colours_and_dark_ones_can_be_read() -> None:
    assert [tone.light for tone in STRATEGY_TONES.values()] == ["#0072B2", "#D55E00", "#009E73"]
    assert all(_contrast(tone.dark, PAPER.dark) >= 4.5 for tone in STRATEGY_TONES.values())


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(pair, 16) / 255 for pair in re.findall("..", colour[1:])]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
