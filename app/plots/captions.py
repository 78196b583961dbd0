"""The words above a figure: a title that says what is seen, a subtitle that says on which data."""

from __future__ import annotations

from dataclasses import dataclass

from app.evaluator.strategies import Strategy

SYNTHETIC_NOTICE = "Synthetic measurements, drawn to match published tables. Not results of any model."

STRATEGY_TITLES = {
    Strategy.DYNAMIC_ROUTING: "Dynamic routing",
    Strategy.FIXED_BUDGET: "Fixed budget",
    Strategy.DYNAMIC_EARLY_EXIT: "Dynamic early exit",
}
# As the subject of a sentence: "what early exit could gain".
STRATEGY_NOUNS = {
    Strategy.DYNAMIC_ROUTING: "routing",
    Strategy.FIXED_BUDGET: "fixed budgets",
    Strategy.DYNAMIC_EARLY_EXIT: "early exit",
}

# Before a noun: "constant early-exit policies".
STRATEGY_ADJECTIVES = {
    Strategy.DYNAMIC_ROUTING: "routing",
    Strategy.FIXED_BUDGET: "fixed-budget",
    Strategy.DYNAMIC_EARLY_EXIT: "early-exit",
}


@dataclass(frozen=True)
class Caption:
    """A figure's title and subtitle, plain text."""

    title: str
    subtitle: str


def format_percent(fraction: float, digits: int = 1) -> str:
    """Return a fraction as percent with its unit, a true minus sign, and never a minus before zero.

    Examples
    --------
    >>> format_percent(0.4127), format_percent(-0.051), format_percent(-0.00001), format_percent(1.0, 0)
    ('41.3\\xa0%', '−5.1\\xa0%', '0.0\\xa0%', '100\\xa0%')
    """
    return f"{format_hundredths(fraction, digits)}\N{NO-BREAK SPACE}%"


def format_hundredths(fraction: float, digits: int = 1) -> str:
    """Return a hundred times a fraction as a number without unit, with a true minus sign.

    Examples
    --------
    >>> format_hundredths(-0.0512)
    '−5.1'
    """
    text = f"{100 * fraction:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "\N{MINUS SIGN}")


def describe_realised(name: str, strategy: Strategy, realised_potential: float) -> str:
    """Return the sentence that says what a realised potential means.

    Examples
    --------
    >>> describe_realised("ThinkBrake", Strategy.DYNAMIC_EARLY_EXIT, 0.412)
    'ThinkBrake realises 41\\xa0% of what early exit could'
    >>> describe_realised("Coin", Strategy.DYNAMIC_ROUTING, -0.2)
    'Coin does worse than the best mix of constant routing policies'
    """
    if realised_potential < 0:
        return f"{name} does worse than the best mix of constant {STRATEGY_ADJECTIVES[strategy]} policies"
    # Whole percents near the ends would claim the whole, or nothing.
    digits = 0 if 0.1 <= realised_potential < 0.99 else 1
    return f"{name} realises {format_percent(realised_potential, digits)} of what {STRATEGY_NOUNS[strategy]} could"


def describe_oracle(strategy: Strategy, beta_match: float | None) -> str:
    """Return the sentence that says what the oracle of a strategy reaches.

    Examples
    --------
    >>> describe_oracle(Strategy.FIXED_BUDGET, 0.31)
    'With fixed budgets, the oracle keeps full-thinking accuracy on 31\\xa0% of the tokens'
    """
    subject = f"With {STRATEGY_NOUNS[strategy]}, the oracle"
    if beta_match is None:
        return f"{subject} stays below full-thinking accuracy"
    if beta_match == 0:
        return f"{subject} keeps full-thinking accuracy without any thinking"
    return f"{subject} keeps full-thinking accuracy on {format_percent(beta_match, 0)} of the tokens"


def describe_data(*, snapshot: str, split: str, place: str, n_questions: int | None, kind: str) -> str:
    """Return a figure's subtitle: snapshot, split, board and number of questions; whether it is synthetic, always.

    Examples
    --------
    >>> describe_data(snapshot="otbench", split="test", place="24 cells", n_questions=385, kind="measured")
    'otbench, test split, 24 cells, 385 questions.'
    """
    parts = [snapshot, "all splits" if split == "all" else f"{split} split", place]
    if n_questions is not None:
        parts.append(f"{n_questions:,} question{'' if n_questions == 1 else 's'}")
    subtitle = f"{', '.join(parts)}."
    return f"{subtitle} {SYNTHETIC_NOTICE}" if kind == "synthetic" else subtitle
