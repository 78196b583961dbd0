"""How synthetic measurements of one cell are drawn: lengths, steps, levels along the trajectory, probes."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import expit, ndtr, ndtri

from app.evaluator.measurements import IntArray
from app.files.synthetic_parameters import CellParameters, Shape

FloatArray = NDArray[np.float64]

TRAJECTORIES_PER_QUESTION = 16
PROBES_PER_POSITION = 16
TARGET_STEP_TOKENS = 256
THINKING_TOKEN_LIMIT = 32_768
_SHORTEST_TOKENS = 32
# Probes are compared with levels in 1/32768, so that one 16-bit draw decides each.
_LEVEL_UNITS = 2**15
_STEP_SPREAD = 0.3
# A step of the long tail is 4.6 to 8.6 times as long as a common one.
_LONG_STEP = (4.6, 4.0)
_LAST_RISE = 0.98
_MARGIN_UNITS = 16


@dataclass(frozen=True, eq=False)
class Traits:
    """What a cell's trajectories are like before any parameter of the cell is known; float64, one per trajectory.

    Attributes
    ----------
    hardness, own_hardness : a question's difficulty for the model, and what is added to it before thinking only; both
        standard normal, and shared by the question's trajectories, since before thinking nothing of them is retained.
    end_hardness : difficulty after thinking, standard normal.
    length_deviation : deviation of the logarithm of the thinking tokens, before the benchmark's spread.
    rise_deviation : deviation of the time of the rise.
    ramp_quantile, fade_quantile : in [0, 1], how long a rise takes, and when a fading begins after it.
    fade_size : fall of the logit at unit instability; 0 where the trajectory does not fade.
    full_quantile, direct_quantile : in [0, 1], what the two recorded answers are decided with.
    """

    hardness: FloatArray
    own_hardness: FloatArray
    end_hardness: FloatArray
    length_deviation: FloatArray
    rise_deviation: FloatArray
    ramp_quantile: FloatArray
    fade_size: FloatArray
    fade_quantile: FloatArray
    full_quantile: FloatArray
    direct_quantile: FloatArray


@dataclass(frozen=True, eq=False)
class Steps:
    """Where the positions of a cell's trajectories lie.

    Attributes
    ----------
    offsets : int64, trajectories + 1; trajectory t has the positions ``offsets[t]:offsets[t + 1]``.
    retained_tokens : int64, one per position: 0 at each first one, then strictly increasing.
    trajectory : int64, the trajectory of each position.
    """

    offsets: IntArray
    retained_tokens: IntArray
    trajectory: IntArray

    @property
    def first_idx(self) -> IntArray:
        """Index of each trajectory's position 0."""
        return self.offsets[:-1]

    @property
    def last_idx(self) -> IntArray:
        """Index of each trajectory's last position."""
        return self.offsets[1:] - 1

    @property
    def position(self) -> IntArray:
        """The position k of each entry."""
        return np.arange(len(self.trajectory)) - self.first_idx[self.trajectory]

    @property
    def progress(self) -> FloatArray:
        """L(k) / L(n) of each position."""
        return self.retained_tokens / self.retained_tokens[self.last_idx][self.trajectory]


@dataclass(frozen=True, eq=False)
class Noise:
    """The random part of a cell's curves.

    Attributes
    ----------
    belief : float64, one per position: an autoregressive walk along each trajectory that starts at 0 at k = 0.
    probes : uint16, positions x 16, below 2^15: a probe is right where it lies below the level in 1/32768.
    """

    belief: FloatArray
    probes: NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class Curves:
    """A cell's curves; all but `rise` follow from it, the noise and the parameters.

    Attributes
    ----------
    logit : float64, one per position: logit of the probability that a probe is right.
    rise : float64, one per position, in [0, 1]: how far the trajectory has come from its first to its last level.
    correct_probes : int64, one per position, 0..16.
    """

    logit: FloatArray
    rise: FloatArray
    correct_probes: IntArray


def open_stream(seed: int, *names: str) -> np.random.Generator:
    """Open the random stream of these names under a seed.

    Every purpose of every cell has its own stream, so that nothing depends on the order in which cells are drawn.

    Examples
    --------
    >>> open_stream(1, "AIME", "split").random() == open_stream(1, "AIME", "split").random()
    True
    >>> open_stream(1, "AIME", "split").random() == open_stream(1, "MATH500", "split").random()
    False
    """
    digest = hashlib.sha256("\x1f".join(names).encode()).digest()
    key = int.from_bytes(digest[:16], "little")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, key])))


def draw_spread_normals(rng: np.random.Generator, n: int) -> FloatArray:
    """Return the n mid-quantiles of the standard normal in random order.

    Drawn so, traits of questions have the same distribution under every seed and nearly the same at every scale.

    Examples
    --------
    >>> sorted(draw_spread_normals(np.random.default_rng(1), 3).round(4).tolist())
    [-0.9674, 0.0, 0.9674]
    """
    return np.asarray(ndtri((rng.permutation(n) + 0.5) / n), dtype=np.float64)


def draw_normals(rng: np.random.Generator, n: int) -> FloatArray:
    """Return n standard normals by inversion of uniform numbers, one number each."""
    # Uniform numbers are multiples of 2^-53; half of one more keeps 0 out.
    return np.asarray(ndtri(rng.random(n) + 2.0**-54), dtype=np.float64)


def draw_traits(seed: int, model: str, benchmark: str, *, difficulty: FloatArray, shape: Shape) -> Traits:
    """Draw the traits of a cell's trajectories, question by question.

    Parameters
    ----------
    difficulty : float64, one per question, standard normal; shared by all models.
    """
    n_questions = len(difficulty)
    rng = open_stream(seed, model, benchmark, "questions")
    ability, own_zero, length, rise, fade = (
        np.repeat(draw_spread_normals(rng, n_questions), TRAJECTORIES_PER_QUESTION) for _ in range(5)
    )
    rng = open_stream(seed, model, benchmark, "trajectories")
    n = len(ability)
    own_end, own_length, own_rise, own_fade, fade_size = (draw_normals(rng, n) for _ in range(5))
    ramp_quantile, fade_quantile, full_quantile, direct_quantile = (rng.random(n) for _ in range(4))
    hardness = _mix(shape.ability_share, np.repeat(difficulty, TRAJECTORIES_PER_QUESTION), ability)
    rest = np.sqrt(1 - shape.rise_hardness**2 - shape.rise_question**2)
    fades = ndtr(_mix(shape.fade_question, fade, own_fade)) < shape.fade_share
    return Traits(
        hardness=hardness,
        own_hardness=own_zero,
        end_hardness=_mix(shape.end_share, hardness, own_end),
        length_deviation=shape.length_hardness * hardness
        + shape.length_question * length
        + shape.length_trajectory * _mix(shape.length_end, own_end, own_length),
        rise_deviation=shape.rise_hardness * hardness + shape.rise_question * rise + rest * own_rise,
        ramp_quantile=ramp_quantile,
        fade_size=np.where(fades, shape.fade_size * np.abs(fade_size), 0.0),
        fade_quantile=fade_quantile,
        full_quantile=full_quantile,
        direct_quantile=direct_quantile,
    )


def _mix(share: float, common: FloatArray, own: FloatArray) -> FloatArray:
    """Return the standard normal whose correlation with the common part is `share`."""
    return share * common + math.sqrt(1 - share**2) * own


def find_thinking_tokens(traits: Traits, *, middle_tokens: float, spread: float) -> IntArray:
    """Return the thinking tokens of each trajectory, int64, 32 up to the limit of 32,768 at which thinking is cut."""
    tokens = np.rint(middle_tokens * np.exp(spread * traits.length_deviation))
    return np.clip(tokens, _SHORTEST_TOKENS, THINKING_TOKEN_LIMIT).astype(np.int64)


def draw_steps(thinking_tokens: IntArray, long_share: float, *, rng: np.random.Generator) -> Steps:
    """Cut trajectories into steps of varying length.

    Each has max(1, floor(L(n)/256 + 1/2)) steps, as the segmentation would choose. Relative lengths are log-normal; a
    share of them is 4.6 to 8.6 times as long, like blocks that nothing can divide.

    Parameters
    ----------
    thinking_tokens : int64, L(n) >= 32 of each trajectory.
    long_share : share of the steps in the long tail.
    """
    n_steps = np.maximum(1, (thinking_tokens + TARGET_STEP_TOKENS // 2) // TARGET_STEP_TOKENS)
    offsets = np.concatenate([[0], np.cumsum(n_steps + 1)])
    trajectory = np.repeat(np.arange(len(n_steps)), n_steps + 1)
    weights = np.exp(_STEP_SPREAD * draw_normals(rng, len(trajectory)))
    chance = rng.random(len(trajectory))
    is_long = chance < long_share
    weights[is_long] = _LONG_STEP[0] + _LONG_STEP[1] * (chance[is_long] / long_share)
    weights[offsets[:-1]] = 0
    passed = np.cumsum(weights)
    start = passed[offsets[:-1]]
    whole = passed[offsets[1:] - 1] - start
    share = (passed - start[trajectory]) / whole[trajectory]
    position = np.arange(len(trajectory)) - offsets[:-1][trajectory]
    # One token a step is set aside first, so that lengths rise strictly.
    retained = position + np.floor((thinking_tokens - n_steps)[trajectory] * share).astype(np.int64)
    retained[offsets[1:] - 1] = thinking_tokens
    return Steps(offsets=offsets, retained_tokens=retained, trajectory=trajectory)


def draw_noise(seed: int, model: str, benchmark: str, *, steps: Steps, shape: Shape) -> Noise:
    """Draw the noise of a cell's curves."""
    n = len(steps.trajectory)
    memory = shape.belief_memory
    innovations = np.sqrt(1 - memory**2) * draw_normals(open_stream(seed, model, benchmark, "belief"), n)
    walk = lfilter([1.0], [1.0, -memory], innovations)
    # The walk runs on from one trajectory to the next; taking away what remains of its value at k = 0 starts it anew.
    belief = walk - memory**steps.position * walk[steps.first_idx][steps.trajectory]
    raw = open_stream(seed, model, benchmark, "probes").bytes(2 * n * PROBES_PER_POSITION)
    probes = np.frombuffer(raw, dtype="<u2").reshape(n, PROBES_PER_POSITION) >> np.uint16(1)
    return Noise(belief=belief, probes=probes)


def trace_curves(traits: Traits, steps: Steps, noise: Noise, *, cell: CellParameters, shape: Shape) -> Curves:
    """Return the curves of a cell's trajectories.

    A logit starts at the question's level before thinking, climbs (or falls) along a ramp to the trajectory's level
    after thinking, wanders about that line, and in some trajectories fades again after the ramp. Each of the 16 probes
    of a position is right with the probability of that logit.
    """
    t, progress = steps.trajectory, steps.progress
    zero = find_zero_logit(traits, cell)
    end = cell.end_sharpness * (cell.end_level - traits.end_hardness)
    rise_at = _LAST_RISE * ndtr(cell.rise_time + shape.rise_spread * traits.rise_deviation)
    width = cell.ramp_width * rise_at * (1 - rise_at) * traits.ramp_quantile**2
    width = np.clip(width, 1e-6, 1 - rise_at)
    fade_at = rise_at + (1 - rise_at) * 0.9 * traits.fade_quantile
    rise = np.clip((progress - rise_at[t]) / width[t], 0, 1)
    fade = np.clip((progress - fade_at[t]) / (1 - fade_at)[t], 0, 1)
    wander = noise.belief - traits.fade_size[t] * fade
    logit = zero[t] + (end - zero)[t] * rise + cell.instability * wander
    level = (expit(logit) * _LEVEL_UNITS).astype(np.uint16)
    correct = np.count_nonzero(noise.probes < level[:, None], axis=1)
    return Curves(logit=logit, rise=rise, correct_probes=correct)


def find_zero_logit(traits: Traits, cell: CellParameters) -> FloatArray:
    """Return the logit before thinking of each trajectory; the same for all trajectories of a question."""
    hardness = _mix(cell.zero_share, traits.hardness, traits.own_hardness)
    return cell.zero_sharpness * (cell.zero_level - hardness)


def draw_end_margin(steps: Steps, curves: Curves, *, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw how much likelier than the end of thinking its best alternative is at each position, in nats.

    About 4 where nothing is settled, about 2 where probes are right already, about 1 after the ramp, whether it led to
    the right answer or not; with noise of 1.5 at each position. Below 0 at the last position, where thinking did end,
    except where it was cut at the limit. Multiples of 1/16, float32.
    """
    noise = draw_normals(rng, len(curves.rise))
    settled = np.maximum(curves.rise, 0.6 * expit(curves.logit))
    margin = 4 - 3 * settled + 1.5 * noise
    last = steps.last_idx
    ended = last[steps.retained_tokens[last] < THINKING_TOKEN_LIMIT]
    margin[ended] = -0.5 - np.abs(noise[ended])
    return np.asarray(np.rint(margin * _MARGIN_UNITS) / _MARGIN_UNITS, dtype=np.float32)
