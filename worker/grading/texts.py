"""What of a stored text is the answer proper: without the marks of chat formats, and without more thinking."""

from __future__ import annotations

import re

_FINAL_MESSAGE = re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
_TURN_END = re.compile(r"<\|(?:end|return|start|im_end|im_start|eot_id|call)\|>")
_MARK = re.compile(r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>")
_THINKING_END = "</think>"
_THINKING_START = "<think>"


def read_final_text(text: str) -> str:
    """Return the part of a text that answers.

    Of a channel format the last message of the final channel; after a second piece of thinking what follows it, and
    nothing of one that does not end, since an "answer is" in there was only considered.
    """
    if finals := list(_FINAL_MESSAGE.finditer(text)):
        text = text[finals[-1].end() :]
        if end := _TURN_END.search(text):
            text = text[: end.start()]
    text = text.rpartition(_THINKING_END)[2].partition(_THINKING_START)[0]
    return _MARK.sub("", text)
