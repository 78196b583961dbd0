"""What accounts and teams can be called: plain letters and digits, so that no two names look alike in other scripts."""

from __future__ import annotations

import re

from app.errors import ContentError, Problem, StateError

MAX_NAME_LENGTH = 40
NAME_PATTERN = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{MAX_NAME_LENGTH - 1}}}")
NAME_RULE = f"1 to {MAX_NAME_LENGTH} of the letters a to z, digits and hyphens, and no hyphen first"
# Names of what acts in logs without being somebody, of addresses, and of roles that nobody should seem to have.
RESERVED_NAMES = frozenset(
    [
        "account",
        "accounts",
        "admin",
        "administrator",
        "all",
        "anonymous",
        "anyone",
        "api",
        "board",
        "bot",
        "command-line",
        "console",
        "control",
        "controls",
        "deleted",
        "deleted-account",
        "demo",
        "docs",
        "everyone",
        "examples",
        "everybody",
        "guest",
        "help",
        "info",
        "join",
        "join-team",
        "local",
        "mail",
        "me",
        "member",
        "moderator",
        "new",
        "nobody",
        "none",
        "null",
        "official",
        "operator",
        "operators",
        "organiser",
        "organisers",
        "organizer",
        "organizers",
        "otboard",
        "owner",
        "postmaster",
        "reader",
        "reset-password",
        "root",
        "security",
        "server",
        "sign-in",
        "sign-out",
        "sign-up",
        "staff",
        "submit",
        "support",
        "sysop",
        "system",
        "team",
        "teams",
        "test",
        "undefined",
        "user",
        "users",
        "webmaster",
        "worker",
        "workers",
        "www",
    ]
)


class InvalidNameError(ContentError):
    """A name that an account or team cannot take."""

    code = "invalid_name"
    title = "This name cannot be used"


class NameTakenError(StateError):
    """Another account or team has this name: they share one set of names, as every account has a team of its own."""

    code = "name_taken"
    title = "The name is taken"


def require_name(name: str) -> str:
    """Return the name if an account or team can take it.

    Examples
    --------
    >>> require_name("deep-exit-2")
    'deep-exit-2'

    Raises
    ------
    InvalidNameError : other characters, too long, or reserved.
    """
    if not NAME_PATTERN.fullmatch(name):
        message = f"A name has {NAME_RULE}."
    elif name in RESERVED_NAMES:
        message = f"The name {name} is reserved."
    else:
        return name
    raise InvalidNameError(message, problems=[Problem("invalid_name", message, column="name")])
