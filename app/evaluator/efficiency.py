"""Single-number efficiency scores of one operating point against full thinking: E3 and AES."""

from __future__ import annotations

import math
from dataclasses import dataclass

BASE_ACCURACY_DEGENERATE = "base_accuracy_is_0_or_1"
BASE_ACCURACY_ZERO = "base_accuracy_is_0"
BASE_TOKENS_ZERO = "base_tokens_is_0"
UNBOUNDED = "unbounded"


@dataclass(frozen=True)
class AesWeights:
    """Weights of the accuracy-efficiency score: tokens saved, accuracy gained, accuracy lost."""

    tokens: float = 1.0
    gain: float = 3.0
    loss: float = 5.0


@dataclass(frozen=True)
class EfficiencyFigures:
    """E3 and AES of one operating point, each a number or None with a reason, beside what they were computed with.

    `rho` and `weight` are E3's, `aes_weights` those of AES.
    """

    accuracy: float
    tokens: float
    base_accuracy: float
    base_tokens: float
    rho: float
    weight: float
    e3: float | None
    e3_reason: str | None
    aes: float | None
    aes_reason: str | None
    aes_weights: AesWeights


def e3(
    accuracy: float,
    tokens: float,
    *,
    base_accuracy: float,
    base_tokens: float,
    rho: float = -1.0,
    weight: float | None = None,
) -> float | None:
    """Return the efficiency-effectiveness equilibrium score E3, a power mean of an odds ratio and a token ratio.

    With a = odds(A) / odds(A0) and b = T0 / T it is (w a^rho + (1 - w) b^rho)^(1 / rho), w = A0 unless given; rho = 0
    means the limit a^w b^(1 - w). With the default rho = -1 it is 0 at A = 0 (also at T = 0), finite at A = 1 and at
    T = 0, and None where both hold, since it grows without bound there. None also where A0 is 0 or 1 (no odds) and
    where T0 = 0 (no ratio). Other rho take the limits of the same formula, None where these are infinite or differ.

    Parameters
    ----------
    accuracy, base_accuracy : A and A0, in [0, 1].
    tokens, base_tokens : T and T0, mean tokens, finite and >= 0.
    rho : any finite number; below 0 the two ratios are complements.
    weight : w of the accuracy ratio, strictly between 0 and 1.

    Returns
    -------
    float >= 0 without a unit, exactly 1 at A = A0 and T = T0; or None.

    Raises
    ------
    ValueError : an argument outside its range.

    Notes
    -----
    Seed 001, equations 1-2. The mean is formed in logarithms around its larger term, so neither large ratios
    nor a rho close to 0 lose digits.

    Examples
    --------
    Half the tokens at the same accuracy 0.5: 1 / (0.5 * 1 + 0.5 * 0.5) = 4 / 3.

    >>> round(e3(0.5, 50.0, base_accuracy=0.5, base_tokens=100.0), 6)
    1.333333
    """
    _check_point(accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens)
    if not math.isfinite(rho):
        raise ValueError(f"rho must be finite, got {rho}")
    if weight is not None and not 0.0 < weight < 1.0:
        raise ValueError(f"weight must lie strictly between 0 and 1, got {weight}")
    if base_accuracy in (0.0, 1.0) or base_tokens == 0.0:
        return None
    share = base_accuracy if weight is None else weight
    log_odds = _log(accuracy * (1.0 - base_accuracy)) - _log((1.0 - accuracy) * base_accuracy)
    log_saving = math.log(base_tokens) - _log(tokens)
    return _power_mean(log_odds, log_saving, weight=share, rho=rho)


def aes(
    accuracy: float, tokens: float, *, base_accuracy: float, base_tokens: float, weights: AesWeights | None = None
) -> float | None:
    """Return the accuracy-efficiency score AES.

    With dLen = (T0 - T) / T0 and dAcc = (A - A0) / A0 it is w_tokens dLen + w_gain dAcc where dAcc >= 0 and
    w_tokens dLen - w_loss |dAcc| where it is negative. None where A0 or T0 is 0.

    Parameters
    ----------
    accuracy, tokens, base_accuracy, base_tokens : as for `e3`.
    weights : the three weights, by default 1, 3 and 5; show them with the value.

    Raises
    ------
    ValueError : an argument outside its range.

    Notes
    -----
    Cited in seed 001. It has a kink at A = A0, which is what E3 was made to avoid.

    Examples
    --------
    A tenth of the accuracy lost and half the tokens saved: 1 * 0.5 - 5 * 0.1 = 0.

    >>> aes(0.45, 50.0, base_accuracy=0.5, base_tokens=100.0) == 0.5 - 5 * (0.5 - 0.45) / 0.5
    True
    """
    _check_point(accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens)
    if base_accuracy == 0.0 or base_tokens == 0.0:
        return None
    chosen = weights or AesWeights()
    saved = (base_tokens - tokens) / base_tokens
    change = (accuracy - base_accuracy) / base_accuracy
    return chosen.tokens * saved + (chosen.gain if change >= 0.0 else chosen.loss) * change


def measure_efficiency(
    accuracy: float,
    tokens: float,
    *,
    base_accuracy: float,
    base_tokens: float,
    rho: float = -1.0,
    weight: float | None = None,
    aes_weights: AesWeights | None = None,
) -> EfficiencyFigures:
    """Return E3 and AES of one operating point with the reason of each that is undefined.

    Parameters
    ----------
    accuracy, tokens, base_accuracy, base_tokens, rho, weight : as for `e3`.
    aes_weights : the weights of `aes`.

    Raises
    ------
    ValueError : an argument outside its range.

    Examples
    --------
    >>> figures = measure_efficiency(0.9, 10.0, base_accuracy=1.0, base_tokens=100.0)
    >>> figures.e3, figures.e3_reason
    (None, 'base_accuracy_is_0_or_1')
    """
    e3_value = e3(accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens, rho=rho, weight=weight)
    aes_value = aes(accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens, weights=aes_weights)
    return EfficiencyFigures(
        accuracy=accuracy,
        tokens=tokens,
        base_accuracy=base_accuracy,
        base_tokens=base_tokens,
        rho=rho,
        weight=base_accuracy if weight is None else weight,
        e3=e3_value,
        e3_reason=find_e3_reason(base_accuracy=base_accuracy, base_tokens=base_tokens) if e3_value is None else None,
        aes=aes_value,
        aes_reason=None if aes_value is not None else BASE_ACCURACY_ZERO if base_accuracy == 0 else BASE_TOKENS_ZERO,
        aes_weights=aes_weights or AesWeights(),
    )


def accuracy_at_e3(score: float, tokens: float, *, base_accuracy: float, base_tokens: float) -> float | None:
    """Return the accuracy at which E3, with rho = -1 and w = A0, has a value at a given token count: its level line.

    None where no accuracy reaches the value: E3 grows with accuracy up to T0 / ((1 - A0) T) at A = 1.

    Parameters
    ----------
    score : the value of E3, finite and > 0.
    tokens, base_tokens : T and T0, finite, T >= 0 and T0 > 0.
    base_accuracy : A0, strictly between 0 and 1.

    Returns
    -------
    A fraction in (0, 1], or None.

    Raises
    ------
    ValueError : an argument outside its range.

    Notes
    -----
    Seed 001, equation 2, solved for A: (1 - A) / A = (1 / E3 - (1 - A0) T / T0) (1 - A0) / A0^2.

    Examples
    --------
    At half of the tokens 0.5 with E3 = 1 leaves (1 / 1 - 0.5 * 0.5) * 2 = 1.5 = (1 - A) / A, so A = 0.4.

    >>> accuracy_at_e3(1.0, 50.0, base_accuracy=0.5, base_tokens=100.0)
    0.4
    """
    _check_point(base_accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens)
    if not (math.isfinite(score) and score > 0.0):
        raise ValueError(f"score must be finite and above 0, got {score}")
    if base_accuracy in (0.0, 1.0) or base_tokens == 0.0:
        raise ValueError("the baseline has no odds or no tokens")
    left = 1.0 / score - (1.0 - base_accuracy) * tokens / base_tokens
    return None if left < 0.0 else 1.0 / (1.0 + left * (1.0 - base_accuracy) / base_accuracy**2)


def find_e3_reason(*, base_accuracy: float, base_tokens: float) -> str:
    """Return why E3 is None at some point with this baseline."""
    if base_accuracy in (0.0, 1.0):
        return BASE_ACCURACY_DEGENERATE
    return BASE_TOKENS_ZERO if base_tokens == 0.0 else UNBOUNDED


def _check_point(accuracy: float, tokens: float, *, base_accuracy: float, base_tokens: float) -> None:
    for name, value in (("accuracy", accuracy), ("base_accuracy", base_accuracy)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], got {value}")
    for name, value in (("tokens", tokens), ("base_tokens", base_tokens)):
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} must be finite and not negative, got {value}")


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _power_mean(log_a: float, log_b: float, *, weight: float, rho: float) -> float | None:
    """Weighted power mean of exp(log_a) and exp(log_b); None where it is infinite or has no limit."""
    if rho == 0.0:
        log_mean = weight * log_a + (1.0 - weight) * log_b
    elif log_a == log_b:
        log_mean = log_a
    else:
        # w a^rho + (1 - w) b^rho = (larger term's base)^rho * (1 + smaller's weight * (exp(d) - 1)), d <= 0.
        a_is_larger = rho * log_a > rho * log_b
        larger, smaller = (log_a, log_b) if a_is_larger else (log_b, log_a)
        smaller_weight = 1.0 - weight if a_is_larger else weight
        log_mean = larger + math.log1p(smaller_weight * math.expm1(rho * (smaller - larger))) / rho
    if math.isnan(log_mean) or log_mean > _LARGEST_LOG:
        return None
    return math.exp(log_mean)


# Past this logarithm a float would be infinite.
_LARGEST_LOG = 709.0
