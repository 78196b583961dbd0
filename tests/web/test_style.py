"""The style sheet: the colours of the figures, and text that can be read on its ground."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from app.config import resource_dir
from app.plots.palette import CONTROL_STYLE, METHOD_STYLES, STRATEGY_TEXT_TONES, STRATEGY_TONES

SHEET = (resource_dir("static") / "otboard.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)[:2]
)


def test_the_sheet_has_the_colours_of_the_figures() -> None:
    tones = {f"method-{idx}": style.tone for idx, style in enumerate(METHOD_STYLES)}
    tones["method-pale"] = CONTROL_STYLE.tone
    for strategy, tone in STRATEGY_TONES.items():
        tones[strategy.replace("_", "-")] = tone
        tones[f"{strategy.replace('_', '-')}-text"] = STRATEGY_TEXT_TONES[strategy]
    for name, tone in tones.items():
        assert (LIGHT[name], DARK[name]) == (tone.light.lower(), tone.dark.lower()), name


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((name, "paper") for name in ("ink", "muted", "pale", "accent", "bad", "good")),
        *((f"{name}-text", "paper") for name in ("dynamic-routing", "fixed-budget", "dynamic-early-exit")),
        ("ink", "wash"),
        ("muted", "wash"),
        ("accent", "wash"),
        ("notice", "notice-wash"),
        ("ink", "bad-wash"),
        ("paper", "accent"),
    ],
)
def test_text_can_be_read_on_its_ground(scheme: dict[str, str], text: str, ground: str) -> None:
    lighter, darker = sorted((_luminance(scheme[text]), _luminance(scheme[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize("name", ["formatting", "vendor", "sign_in"])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"app.web.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def _luminance(colour: str) -> float:
    """The relative luminance of a colour as WCAG 2 defines it."""
    channels = [int(pair, 16) / 255 for pair in re.findall("..", colour[1:])]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
