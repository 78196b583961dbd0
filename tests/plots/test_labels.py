"""Labels that keep apart, and the clear place on a line."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from app.plots.labels import MAX_LABEL_CHARACTERS, find_clear_place, shorten, spread


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([30.0, 10.0, 20.0], gap=5.0, low=0.0, high=40.0) == [30.0, 10.0, 20.0]


def test_a_chain_of_overlaps_becomes_one_block() -> None:
    # 10 and 11 move to 8 and 13, which then touches 14: the three are centred on their mean, 35/3.
    centre = 35 / 3
    assert spread([14.0, 11.0, 10.0], gap=5.0, low=0.0, high=40.0) == pytest.approx([centre + 5, centre, centre - 5])


def test_equal_heights_keep_their_order() -> None:
    assert spread([7.0, 7.0, 7.0], gap=2.0, low=0.0, high=40.0) == [9.0, 7.0, 5.0]


@pytest.mark.parametrize("seed", range(20))
def test_labels_keep_their_gap_their_order_and_the_range(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heights = rng.integers(0, 12, int(rng.integers(1, 9))).astype(float).tolist()
    placed = spread(heights, gap=2.0, low=-1.0, high=17.0)
    order = sorted(range(len(heights)), key=lambda i: -heights[i])
    ordered = [placed[i] for i in order]
    assert all(upper - lower >= 2.0 - 1e-9 for upper, lower in pairwise(ordered))
    assert all(-1.0 - 1e-9 <= height <= 17.0 + 1e-9 for height in placed)


def test_no_label_is_no_place() -> None:
    assert spread([], gap=2.0, low=0.0, high=1.0) == []


def test_the_clear_place_is_the_farthest_and_of_equals_the_leftmost() -> None:
    curve = np.array([0.0, 4.0, 4.0, 0.0, 0.0, 4.0, 4.0])
    assert find_clear_place([curve], 4.0, span=2) == (3, 4.0)
    assert find_clear_place([np.zeros(5)], 4.0, span=2) == (0, 4.0)
    # The nearest of several curves counts.
    assert find_clear_place([curve, np.array([9.0, 9.0, 9.0, 4.0, 4.0, 9.0, 9.0])], 4.0, span=1) == (0, 4.0)


def test_a_step_past_the_text_is_not_clear_of_it() -> None:
    # It rises from 0 to 9 between the first two places; both are far from 4, and the rise runs through it.
    assert find_clear_place([np.array([0.0, 9.0, 9.0, 9.0])], 4.0, span=2) == (2, 5.0)
    assert find_clear_place([np.array([0.0, 9.0])], 4.0, span=2) == (0, 0.0)


def test_a_long_name_loses_its_middle() -> None:
    assert shorten("x" * MAX_LABEL_CHARACTERS) == "x" * MAX_LABEL_CHARACTERS
    shortened = shorten("method-one-with-a-threshold-of-0.25")
    assert len(shortened) == MAX_LABEL_CHARACTERS
    assert shortened.startswith("method-one")
    assert shortened.endswith("of-0.25")
