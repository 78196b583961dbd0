"""Which tokens end a block: found once for a tokenizer, over its whole vocabulary, by the text of each token alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.evaluator.measurements import IntArray

BOUNDARY_TEXT = "\n\n"
# In the order of the paper's table 8, P/W/S/I.
CATEGORIES = ("pure", "whitespace", "suffix", "infix")
_NEWLINES = str.maketrans("", "", "\r\n")


@dataclass(frozen=True, eq=False)
class BoundarySet:
    """The boundary tokens of a tokenizer.

    Attributes
    ----------
    text : what the text of a token must hold for it to end a block.
    ids : int64, ascending.
    category_idx : int8, for each id the place of its category in `CATEGORIES`.
    n_vocabulary : how many ids were looked at.
    """

    text: str
    ids: IntArray
    category_idx: NDArray[np.int8]
    n_vocabulary: int

    def count_categories(self) -> dict[str, int]:
        """Return how many tokens each category has; none is left out."""
        counts = np.bincount(self.category_idx, minlength=len(CATEGORIES))
        return {name: int(count) for name, count in zip(CATEGORIES, counts, strict=True)}

    def digest(self) -> str:
        """Return the SHA-256 of the ids in ascending order, in decimal, with a newline after each."""
        return hashlib.sha256("".join(f"{token}\n" for token in self.ids.tolist()).encode("ascii")).hexdigest()

    def mark(self, token_ids: ArrayLike) -> NDArray[np.bool_]:
        """Return which tokens of a trajectory end a block, as `split_blocks` takes them. O(tokens log boundary set)."""
        tokens = np.asarray(token_ids, dtype=np.int64)
        places = np.searchsorted(self.ids, tokens)
        found = places < self.ids.size
        found[found] = self.ids[places[found]] == tokens[found]
        return found


def find_boundary_tokens(token_texts: Sequence[str], *, text: str = BOUNDARY_TEXT) -> BoundarySet:
    """Return the tokens whose own text holds a text, a double newline if nothing else is said.

    A token is of the first category that fits: `pure`, it is that text and nothing else; `whitespace`, nothing but
    whitespace; `suffix`, it ends with the text; `infix`, something else follows.

    Parameters
    ----------
    token_texts : the text of each id, decoded alone, added tokens included; "" for an id that is not used.
    text : at least one character.

    Raises
    ------
    ValueError : an empty text, which every token would hold.

    Notes
    -----
    Appendix D.1, table 8. O(vocabulary).

    Examples
    --------
    >>> found = find_boundary_tokens(["a", "\\n\\n", "\\n", ".\\n\\n", " \\n\\n", ":\\n\\n#", "\\n\\n\\n"])
    >>> found.ids.tolist(), found.count_categories()
    ([1, 3, 4, 5, 6], {'pure': 1, 'whitespace': 2, 'suffix': 1, 'infix': 1})
    >>> found.mark([0, 3, 2, 2, 6]).tolist()
    [False, True, False, False, True]
    """
    if not text:
        raise ValueError("every token holds the empty text")
    ids = [idx for idx, token in enumerate(token_texts) if text in token]
    categories = [_categorise(token_texts[idx], text) for idx in ids]
    return BoundarySet(
        text=text,
        ids=np.array(ids, dtype=np.int64),
        category_idx=np.array(categories, dtype=np.int8),
        n_vocabulary=len(token_texts),
    )


def map_contents(
    boundaries: BoundarySet, token_texts: Sequence[str], *, encode: Callable[[str], Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    """Return what stands for each boundary token where thinking is cut after it: its text without line breaks.

    Parameters
    ----------
    boundaries, token_texts : of one tokenizer.
    encode : turns a text into token ids, adding none of its own.

    Returns
    -------
    For each boundary token the ids of its content, in the order of the ids; none at all where the token is nothing but
    line breaks.

    Notes
    -----
    Appendix A.2. What stands on both sides of an infix is joined. O(boundary set).

    Examples
    --------
    >>> texts = ["\\n\\n", ".\\n\\n", " \\n\\n", "."]
    >>> map_contents(find_boundary_tokens(texts), texts, encode={".": [3], " ": [9]}.__getitem__)
    {0: (), 1: (3,), 2: (9,)}
    """
    contents = {token: token_texts[token].translate(_NEWLINES) for token in boundaries.ids.tolist()}
    return {token: tuple(encode(content)) if content else () for token, content in contents.items()}


def _categorise(token: str, text: str) -> int:
    """Return the place of a boundary token's category."""
    if token == text:
        return 0
    if token.isspace():
        return 1
    return 2 if token.endswith(text) else 3
