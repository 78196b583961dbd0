"""Boundary tokens, and segmentation from token ids against the rule as it reads."""

from __future__ import annotations

import hashlib
from itertools import chain, pairwise
from random import Random

import numpy as np
import pytest

from app.evaluator.boundaries import CATEGORIES, BoundarySet, find_boundary_tokens, map_contents
from app.evaluator.segmentation import Partition, merge_partition, split_blocks

# Forms of the real vocabularies: what stands around the double newline, with its category.
FORMS = {
    "\n\n": "pure",
    "\n\n\n": "whitespace",
    " \n\n": "whitespace",
    "\n\n\t\t": "whitespace",
    "\u3000\n\n": "whitespace",
    ".\n\n": "suffix",
    " :\n\n": "suffix",
    "。\n\n": "suffix",
    "}\n\n\n": "suffix",
    "\n\n//": "infix",
    ";\n\n/": "infix",
    "}\n\n\n//": "infix",
    ")\n\n ": "infix",
}
NOT_BOUNDARIES = ["", "\n", "\r\n\r\n", "\n \n", "a", ".\n", "\\n\\n"]


def segment_naively(tokens: list[int], boundary: set[int], step_tokens: int) -> tuple[list[int], list[int]]:
    """Blocks and positions by the words of appendix A.2, with a scan of all pairs for each merge."""
    ends = [0, *(i + 1 for i, token in enumerate(tokens) if token in boundary)]
    if ends[-1] < len(tokens):
        ends.append(len(tokens))
    lengths = [b - a for a, b in pairwise(ends)]
    steps = list(lengths)
    # floor(L / b + 1/2) without fractions.
    target = max(1, (2 * len(tokens) + step_tokens) // (2 * step_tokens))
    while len(steps) > target:
        best = 0
        for i in range(1, len(steps) - 1):
            if steps[i] + steps[i + 1] < steps[best] + steps[best + 1]:
                best = i
        steps[best : best + 2] = [steps[best] + steps[best + 1]]
    positions = [0]
    for step in steps:
        positions.append(positions[-1] + step)
    return lengths, positions


def test_categories_by_hand() -> None:
    texts = [*NOT_BOUNDARIES, *FORMS]
    found = find_boundary_tokens(texts)
    assert [texts[idx] for idx in found.ids.tolist()] == list(FORMS)
    assert [CATEGORIES[idx] for idx in found.category_idx.tolist()] == list(FORMS.values())
    counts = {name: list(FORMS.values()).count(name) for name in CATEGORIES}
    assert found.count_categories() == counts
    assert found.n_vocabulary == len(texts)


def test_an_empty_category_is_counted_as_none() -> None:
    assert find_boundary_tokens(["a", ".\n\n"]).count_categories() == {
        "pure": 0,
        "whitespace": 0,
        "suffix": 1,
        "infix": 0,
    }
    none = find_boundary_tokens([])
    assert none.ids.tolist() == []
    assert none.mark([0, 1]).tolist() == [False, False]
    assert none.digest() == hashlib.sha256(b"").hexdigest()


def test_the_digest_is_that_of_the_ids_one_a_line() -> None:
    assert find_boundary_tokens(["a", "\n\n", "b", "c\n\n"]).digest() == hashlib.sha256(b"1\n3\n").hexdigest()


def test_another_text() -> None:
    found = find_boundary_tokens(["\n", "a\n", "\n\n", "\nb", "c"], text="\n")
    # Two line breaks are whitespace that holds one, and no longer the text itself.
    assert found.count_categories() == {"pure": 1, "whitespace": 1, "suffix": 1, "infix": 1}
    with pytest.raises(ValueError, match="empty text"):
        find_boundary_tokens(["a"], text="")


def test_marks_equal_membership() -> None:
    rng = np.random.default_rng(1)
    for size in (0, 1, 2, 50):
        ids = np.unique(rng.integers(0, 60, size))
        boundaries = BoundarySet("\n\n", ids, np.zeros(ids.size, dtype=np.int8), 60)
        tokens = rng.integers(0, 70, 200)
        assert boundaries.mark(tokens).tolist() == [token in set(ids.tolist()) for token in tokens.tolist()]
    assert boundaries.mark([]).tolist() == []


def test_contents_by_hand() -> None:
    texts = ["\n\n", "\n\n\n", ".\n\n", " \n\n", ";\n\n//", "\r\n\n"]
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [100 + len(text)]

    contents = map_contents(find_boundary_tokens(texts), texts, encode=encode)
    assert contents == {0: (), 1: (), 2: (101,), 3: (101,), 4: (103,), 5: ()}
    # What stands on both sides is joined, blanks stay, and nothing is never encoded.
    assert asked == [".", " ", ";//"]


@pytest.mark.parametrize("step_tokens", [128, 256, 512])
def test_segmentation_equals_the_rule_on_many_trajectories(step_tokens: int) -> None:
    """12,000 random trajectories in all, most of whose pairs tie, cut from token ids as they are measured."""
    random = Random(step_tokens)
    boundaries = find_boundary_tokens([".\n\n", "\n\n", ":\n\n", "a", "b", "\n"])
    # Few lengths, so that sums tie: tiny ones, and some around the length aimed at.
    kinds = ([1, 2], [64, 64], [100, 128, 156], [step_tokens, 1], [200, 300, 7])
    trajectories = []
    for case in range(4000):
        trajectory = []
        for length in random.choices(kinds[case % 5], k=random.randrange(11)):
            trajectory += [3 + case % 2] * (length - 1) + [random.randrange(3)]
        trajectories.append(trajectory + [5] * (random.randrange(200) if case % 3 else 0))
    blocks = [split_blocks(boundaries.mark(np.array(tokens, dtype=np.int32))) for tokens in trajectories]
    offsets = np.cumsum([0, *map(len, blocks)])
    steps = merge_partition(Partition(offsets, np.concatenate(blocks)), step_tokens=step_tokens)
    for i, trajectory in enumerate(trajectories):
        positions = [0, *np.cumsum(steps.tokens[steps.offsets[i] : steps.offsets[i + 1]]).tolist()]
        assert (blocks[i].tolist(), positions) == segment_naively(trajectory, {0, 1, 2}, step_tokens)
        # The pieces between the positions are the trajectory's ids again, token by token.
        pieces = [trajectory[a:b] for a, b in pairwise(positions)]
        assert list(chain.from_iterable(pieces)) == trajectory
