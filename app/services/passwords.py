"""Passwords: which can be chosen, how they are kept, how one is compared in the same time whoever it is for."""

from __future__ import annotations

import threading
import unicodedata
from functools import cache

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from app.errors import ContentError, Problem

MIN_PASSWORD_LENGTH = 10
# A longer one only costs the server time.
MAX_PASSWORD_LENGTH = 200
MIN_DISTINCT_CHARACTERS = 5
# The commonest of at least ten characters in lists of passwords that got out; shorter ones are refused by their length.
COMMON_PASSWORDS = frozenset(
    [
        "1234567890",
        "12345678910",
        "0123456789",
        "0987654321",
        "9876543210",
        "1q2w3e4r5t",
        "1qaz2wsx3edc",
        "q1w2e3r4t5",
        "q1w2e3r4t5y6",
        "qwertyuiop",
        "qwerty123456",
        "qwerty12345",
        "qwertyuiop123",
        "qwertyui123",
        "asdfghjkl123",
        "asdfghjkl1",
        "zxcvbnm123",
        "password12",
        "password123",
        "password1234",
        "passwort123",
        "password01",
        "passw0rd123",
        "p@ssw0rd123",
        "administrator",
        "admin12345",
        "welcome123",
        "welcome2024",
        "iloveyou12",
        "iloveyou123",
        "sunshine123",
        "princess123",
        "football123",
        "baseball123",
        "superman123",
        "letmein123",
        "letmein1234",
        "changeme123",
        "changeme1234",
        "abcdefghij",
        "abcdef1234",
        "abcd123456",
        "abc1234567",
        "abc123456789",
        "michael123",
        "jennifer123",
        "charlie123",
        "dragon1234",
        "monkey1234",
        "trustno1234",
        "whatever123",
        "computer123",
        "internet123",
        "leaderboard",
        "secret12345",
        "test123456",
        "testtest123",
        "hello12345",
        "helloworld",
        "liverpool123",
        "correcthorsebatterystaple",
    ]
)
# Each comparison takes 64 MiB for a while: more at once wait for their turn instead of filling the memory.
_turns = threading.BoundedSemaphore(4)
_hasher = PasswordHash((Argon2Hasher(),))


class InvalidPasswordError(ContentError):
    """A password that cannot be chosen; every reason is listed."""

    code = "invalid_password"
    title = "This password cannot be used"


def hash_password(password: str, *, name: str) -> str:
    """Return what is kept of a password that the account of this name chose.

    Raises
    ------
    InvalidPasswordError : it is too short or long, too simple, common, or the name.
    """
    normal = _normalise(password)
    problems = [Problem("invalid_password", message, column="password") for message in _list_faults(normal, name)]
    if problems:
        raise InvalidPasswordError(problems[0].message, problems=problems)
    with _turns:
        return _hasher.hash(normal)


def password_matches(password: str, password_hash: str | None) -> bool:
    """Tell whether it is the password; without a hash it is compared with another one all the same, for as long."""
    normal = _normalise(password)
    if len(normal) > MAX_PASSWORD_LENGTH:
        normal = ""
    with _turns:
        matches = _hasher.verify(normal, password_hash or _stand_in())
    return matches and password_hash is not None


@cache
def _stand_in() -> str:
    return _hasher.hash("the password of nobody")


def _normalise(password: str) -> str:
    """Two keyboards may write one letter in two ways."""
    return unicodedata.normalize("NFKC", password)


def _list_faults(password: str, name: str) -> list[str]:
    lowered = password.casefold()
    faults = []
    if len(password) < MIN_PASSWORD_LENGTH:
        faults.append(f"A password has at least {MIN_PASSWORD_LENGTH} characters.")
    if len(password) > MAX_PASSWORD_LENGTH:
        faults.append(f"A password has at most {MAX_PASSWORD_LENGTH} characters.")
    if len(lowered.replace(name.casefold(), "")) < len(lowered) and len(lowered.replace(name.casefold(), "")) < 6:
        faults.append("The password is little more than the name.")
    if lowered in COMMON_PASSWORDS:
        faults.append("This is one of the commonest passwords.")
    elif len(set(lowered)) < MIN_DISTINCT_CHARACTERS:
        faults.append(f"A password has at least {MIN_DISTINCT_CHARACTERS} different characters.")
    return faults
