"""Requests of a trajectory stand together, the longest first."""

from __future__ import annotations

import itertools
import random

from worker.ordering import Prompt, count_shared_tokens, order_by_shared_prefix


def ordered(prompts: list[Prompt]) -> list[Prompt]:
    return [prompts[idx] for idx in order_by_shared_prefix(prompts)]


def test_no_prompts_have_no_order() -> None:
    assert order_by_shared_prefix([]) == []


def test_the_probes_of_a_trajectory_are_neighbours_and_the_longest_goes_first() -> None:
    question, end = (1, 2), (9,)
    one, other = (3, 4, 5, 6), (7, 8)
    # Position by position, as a measurement asks them, and the two trajectories mixed.
    prompts = [
        question + thinking[:kept] + end for kept in range(5) for thinking in (one, other) if kept <= len(thinking)
    ]
    assert ordered(prompts) == [
        (1, 2, 3, 4, 5, 6, 9),
        (1, 2, 3, 4, 5, 9),
        (1, 2, 3, 4, 9),
        (1, 2, 3, 9),
        (1, 2, 7, 8, 9),
        (1, 2, 7, 9),
        # Of no trajectory: nothing is retained at position 0.
        (1, 2, 9),
        (1, 2, 9),
    ]


def test_a_prompt_that_begins_another_follows_it() -> None:
    assert ordered([(1,), (1, 2), (1, 2, 3)]) == [(1, 2, 3), (1, 2), (1,)]


def test_equal_prompts_keep_their_order_and_equal_lengths_go_by_first_appearance() -> None:
    prompts = [(5, 1), (4, 1), (5, 1), (4, 1)]
    assert order_by_shared_prefix(prompts) == [0, 2, 1, 3]


def test_every_branch_is_walked_once_and_of_its_branches_the_longest_first() -> None:
    # Against the definition, over all beginnings of all prompts.
    rng = random.Random(20260721)
    for _ in range(1000):
        prompts = [tuple(rng.choices((1, 2, 3), k=rng.randint(1, 7))) for _ in range(rng.randint(1, 12))]
        order = order_by_shared_prefix(prompts)
        assert sorted(order) == list(range(len(prompts)))
        walked = [prompts[idx] for idx in order]
        for beginning in {prompt[:depth] for prompt in prompts for depth in range(len(prompt))}:
            depth = len(beginning)
            below = [prompt for prompt in walked if prompt[:depth] == beginning]
            # What goes on after the beginning, branch by branch; the beginning itself, if it is a prompt, is one.
            branches = [
                next_tokens for next_tokens, _ in itertools.groupby(prompt[depth : depth + 1] for prompt in below)
            ]
            assert len(branches) == len(set(branches))
            longest = [max(len(p) for p in below if p[depth : depth + 1] == branch) for branch in branches]
            assert longest == sorted(longest, reverse=True)


def test_shared_tokens_against_counting() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        one = tuple(rng.choices((1, 2), weights=(9, 1), k=rng.randint(0, 40)))
        other = tuple(rng.choices((1, 2), weights=(9, 1), k=rng.randint(0, 40)))
        counted = 0
        while counted < min(len(one), len(other)) and one[counted] == other[counted]:
            counted += 1
        assert count_shared_tokens(one, other) == counted


def test_long_trajectories_with_many_positions_are_ordered_without_recursion() -> None:
    thinking = tuple(range(10, 2010))
    prompts = [(*thinking[:kept], 1) for kept in range(2000)]
    assert order_by_shared_prefix(prompts) == list(range(1999, -1, -1))
