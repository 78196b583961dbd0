"""Question sets as one JSON value: what a request carries in place of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.files.problems import ProblemCollector
from app.files.question_checks import check_header, check_question
from app.files.questions import QuestionError, QuestionSet, build_question, build_question_set


def build_set_from_document(document: Mapping[str, Any]) -> QuestionSet:
    """Return the set of a document `{"header": {…}, "questions": [{…}, …]}`: the objects of a question file's lines.

    As in a file, `benchmark` and `kind` of a question are the header's where the question leaves them out.

    Raises
    ------
    QuestionError : every fault, with the number of its question, from 1, as the row and its field as the column.

    Examples
    --------
    >>> header = {"format": "otboard-questions/1", "benchmark": "sums", "title": "Sums", "license": "CC0-1.0",
    ...           "source": "an example", "kind": "mathematics", "instruction": "Give the result."}
    >>> question = {"question_id": "s1", "split": "test", "prompt": "What is 2 + 2?", "reference_answer": "4"}
    >>> build_set_from_document({"header": header, "questions": [question]}).questions[0].benchmark
    'sums'
    """
    problems = ProblemCollector()
    for key in document.keys() - {"header", "questions"}:
        problems.add("unknown_key", f"a question set has no key {key!r}", column=key)
    header, questions = document.get("header"), document.get("questions")
    if not isinstance(header, dict):
        problems.add("bad_value", "header must be an object, as the first line of a question file", column="header")
    else:
        check_header(header, problems)
    if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
        problems.add("bad_value", "questions must be a list of objects", column="questions")
    if problems or not isinstance(header, dict) or not isinstance(questions, list):
        raise QuestionError("the question set has problems", problems=problems.problems())
    filled = [{"benchmark": header["benchmark"], "kind": header["kind"], **question} for question in questions]
    for number, question in enumerate(filled, start=1):
        check_question(question, problems, row=number, header=header)
    if problems:
        raise QuestionError("the question set has problems", problems=problems.problems())
    return build_question_set(header, [build_question(question) for question in filled])
