"""Grading of stored answers; a new version grades the same texts anew, without generating any."""

from worker.grading.grader import Grader, open_grader
from worker.grading.sandbox import SandboxMissingError
from worker.grading.verdicts import GRADER_VERSION, Reason, Verdict
from worker.grading.watching import Limits

__all__ = ["GRADER_VERSION", "Grader", "Limits", "Reason", "SandboxMissingError", "Verdict", "open_grader"]
