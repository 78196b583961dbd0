"""The order in which requests go to an engine, so that its prefix cache serves as many of their tokens as it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Prompt = tuple[int, ...]


@dataclass
class _Group:
    """Prompts that share a beginning, in their final order."""

    longest: int
    first: int
    indices: list[int]


def order_by_shared_prefix(prompts: Sequence[Prompt]) -> list[int]:
    """Return the indices of `prompts` such that those which share a beginning stand together, the longest first.

    The prompts form a tree by their common beginnings. Its branches are walked in the order of their longest prompt,
    longest first; of equals, the one that came first. So all probes of a trajectory are neighbours, the one that
    retains most of it goes first and fills the cache, and each shorter one finds its whole beginning there. Equal
    prompts keep their order.

    Notes
    -----
    Sorting and comparing neighbours cost O(N log n) token comparisons for n prompts of N tokens in all.
    """
    places: dict[Prompt, list[int]] = {}
    for idx, prompt in enumerate(prompts):
        places.setdefault(prompt, []).append(idx)
    ordered = sorted(places)
    if not ordered:
        return []
    shared = [count_shared_tokens(before, after) for before, after in pairwise(ordered)]
    # Open branches from the root down: how many tokens each shares, and the groups that hang on it so far.
    branches: list[tuple[int, list[_Group]]] = []
    for prompt, depth in zip(ordered, [*shared, -1], strict=True):
        indices = places[prompt]
        group = _Group(longest=len(prompt), first=indices[0], indices=indices)
        while branches and branches[-1][0] > depth:
            _, groups = branches.pop()
            group = _join([*groups, group])
        if branches and branches[-1][0] == depth:
            branches[-1][1].append(group)
        else:
            branches.append((depth, [group]))
    return branches[0][1][0].indices


def count_shared_tokens(one: Prompt, other: Prompt) -> int:
    """Return the length of the common beginning of two prompts."""
    longest = min(len(one), len(other))
    if one[:longest] == other[:longest]:
        return longest
    same, different = 0, longest
    while different - same > 1:
        middle = (same + different) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            different = middle
    return same


def _join(groups: list[_Group]) -> _Group:
    groups.sort(key=lambda group: (-group.longest, group.first))
    indices = [idx for group in groups for idx in group.indices]
    return _Group(longest=groups[0].longest, first=min(group.first for group in groups), indices=indices)
