"""What the environment decides: one frozen `Config`, read once where a process starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from app.errors import AppError

MAX_NAME_LENGTH = 200
SIGN_UP_MODES = ("open", "invite", "closed")
MIN_SECRET_LENGTH = 32
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
MEBIBYTE = 2**20

T = TypeVar("T")


class ConfigError(AppError):
    """An environment variable has a value that cannot be used."""

    status = 500
    code = "invalid_config"
    title = "The configuration is not usable"


@dataclass(frozen=True)
class Config:
    """Everything the environment decides; docs/configuration.md explains each field.

    Attributes
    ----------
    data_dir : folder of uploads, caches, the local token and the embedded database (OTBOARD_DATA).
    database_url : a PostgreSQL server to use instead of the embedded one (OTBOARD_DATABASE_URL).
    upload_limit_bytes : largest action file that is accepted (OTBOARD_UPLOAD_LIMIT_MIB, in MiB).
    snapshot_limit_bytes : largest zip of a snapshot that is accepted over the web (OTBOARD_SNAPSHOT_LIMIT_MIB, in MiB).
    scoring_deadline_seconds : how long one attempt at scoring may take before it counts as lost
        (OTBOARD_SCORING_DEADLINE_SECONDS).
    scoring_attempts : attempts at scoring a submission before it has failed (OTBOARD_SCORING_ATTEMPTS).
    bootstrap_replicates : replicates that intervals and ranks are computed from (OTBOARD_BOOTSTRAP_REPLICATES).
    heartbeat_timeout_seconds : silence after which a worker counts as dead (OTBOARD_HEARTBEAT_TIMEOUT_SECONDS).
    database_pool_size : most database connections one process keeps open (OTBOARD_DATABASE_POOL_SIZE).
    server_name : what this server calls itself in the receipts it signs (OTBOARD_SERVER_NAME).
    log_level : DEBUG, INFO, WARNING or ERROR (OTBOARD_LOG_LEVEL).
    secret_key : what cookies are signed with; a file of the data folder where it is not set (OTBOARD_SECRET_KEY).
    public_url : the address under which people reach this server, for links in mails (OTBOARD_PUBLIC_URL).
    sign_up : who may make an account: open, invite or closed (OTBOARD_SIGN_UP).
    oidc_issuer : the OpenID Connect provider that people may sign in with (OTBOARD_OIDC_ISSUER).
    oidc_client_id : this server's name at the provider (OTBOARD_OIDC_CLIENT_ID).
    oidc_client_secret : its secret there (OTBOARD_OIDC_CLIENT_SECRET).
    oidc_name : what the provider is called on pages (OTBOARD_OIDC_NAME).
    smtp_url : the mail server, with the sender's address (OTBOARD_SMTP_URL).
    """

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    upload_limit_bytes: int = 512 * MEBIBYTE
    snapshot_limit_bytes: int = 4096 * MEBIBYTE
    scoring_deadline_seconds: int = 900
    scoring_attempts: int = 3
    bootstrap_replicates: int = 2000
    heartbeat_timeout_seconds: int = 30
    database_pool_size: int = 10
    server_name: str = "OTBoard"
    log_level: str = "INFO"
    secret_key: str | None = field(default=None, repr=False)
    public_url: str | None = None
    sign_up: str = "open"
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = field(default=None, repr=False)
    oidc_name: str = "single sign-on"
    smtp_url: str | None = field(default=None, repr=False)

    @property
    def has_oidc(self) -> bool:
        """Whether people may sign in with a provider."""
        return self.oidc_issuer is not None

    @property
    def has_mail(self) -> bool:
        """Whether mails can be sent."""
        return self.smtp_url is not None

    @property
    def upload_dir(self) -> Path:
        """Where uploaded files lie under their SHA-256."""
        return self.data_dir / "uploads"

    @property
    def cache_dir(self) -> Path:
        """Where things lie that can be made again from the database."""
        return self.data_dir / "cache"


def load_config(environ: Mapping[str, str] = os.environ) -> Config:
    """Read the configuration from the environment; an empty variable counts as absent.

    Raises
    ------
    ConfigError : a value that cannot be used, with the variable's name.
    """

    def read(name: str, parse: Callable[[str], T], default: T) -> T:
        text = environ.get(name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as exc:
            shown = name if parse in SECRET_PARSERS else f"{name}={text!r}"
            raise ConfigError(f"{shown}: {exc}") from exc

    config = Config(
        data_dir=read("OTBOARD_DATA", _parse_folder, _default_data_dir(environ)),
        database_url=read("OTBOARD_DATABASE_URL", str, "") or None,
        upload_limit_bytes=read("OTBOARD_UPLOAD_LIMIT_MIB", _parse_count, 512) * MEBIBYTE,
        snapshot_limit_bytes=read("OTBOARD_SNAPSHOT_LIMIT_MIB", _parse_count, 4096) * MEBIBYTE,
        scoring_deadline_seconds=read("OTBOARD_SCORING_DEADLINE_SECONDS", _parse_count, 900),
        scoring_attempts=read("OTBOARD_SCORING_ATTEMPTS", _parse_count, 3),
        bootstrap_replicates=read("OTBOARD_BOOTSTRAP_REPLICATES", _parse_count, 2000),
        heartbeat_timeout_seconds=read("OTBOARD_HEARTBEAT_TIMEOUT_SECONDS", _parse_count, 30),
        database_pool_size=read("OTBOARD_DATABASE_POOL_SIZE", _parse_count, 10),
        server_name=read("OTBOARD_SERVER_NAME", _parse_name, "OTBoard"),
        log_level=read("OTBOARD_LOG_LEVEL", _parse_log_level, "INFO"),
        secret_key=read("OTBOARD_SECRET_KEY", _parse_secret, "") or None,
        public_url=read("OTBOARD_PUBLIC_URL", _parse_public_url, "") or None,
        sign_up=read("OTBOARD_SIGN_UP", _parse_sign_up, "open"),
        oidc_issuer=read("OTBOARD_OIDC_ISSUER", _parse_issuer, "") or None,
        oidc_client_id=read("OTBOARD_OIDC_CLIENT_ID", str, "") or None,
        oidc_client_secret=read("OTBOARD_OIDC_CLIENT_SECRET", str, "") or None,
        oidc_name=read("OTBOARD_OIDC_NAME", _parse_name, "single sign-on"),
        smtp_url=read("OTBOARD_SMTP_URL", _parse_smtp_url, "") or None,
    )
    _require_together(config)
    return config


def resource_dir(name: str) -> Path:
    """Return the folder `static`, `migrations` or `docs`: beside the package in a checkout, inside it in a wheel.

    Raises
    ------
    FileNotFoundError : neither place has it (a broken installation).
    """
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name} is missing beside {package}")


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    data_home = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative path there is to be ignored.
    if not Path(data_home).is_absolute():
        return Path.home() / ".local" / "share" / "otboard"
    return Path(data_home) / "otboard"


def _parse_folder(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise ValueError("a whole number of at least 1 is needed")
    return int(text)


def _parse_name(text: str) -> str:
    if len(text) > MAX_NAME_LENGTH or not text.isprintable():
        raise ValueError(f"1 to {MAX_NAME_LENGTH} printable characters are needed")
    return text


def _parse_secret(text: str) -> str:
    if len(text) < MIN_SECRET_LENGTH:
        raise ValueError(f"at least {MIN_SECRET_LENGTH} characters are needed, drawn at random")
    return text


def _parse_sign_up(text: str) -> str:
    if text not in SIGN_UP_MODES:
        raise ValueError(f"use one of {', '.join(SIGN_UP_MODES)}")
    return text


def _parse_public_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("an address such as https://board.example.org is needed")
    return text.rstrip("/")


def _parse_issuer(text: str) -> str:
    parts = urlsplit(text)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if (
        not parts.hostname
        or parts.query
        or parts.fragment
        or parts.scheme not in (("http", "https") if is_here else ("https",))
    ):
        raise ValueError("an address that begins with https:// is needed")
    return text


def _parse_smtp_url(text: str) -> str:
    parts = urlsplit(text)
    sender = parse_qs(parts.query).get("from", [""])[0]
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or "@" not in sender or not sender.isprintable():
        raise ValueError("smtp://user:password@host:587/?from=board@example.org is needed, or smtps://")
    return text


def _require_together(config: Config) -> None:
    """Raise where one variable needs another one that is not set."""
    if config.oidc_issuer and not config.oidc_client_id:
        raise ConfigError("OTBOARD_OIDC_ISSUER needs OTBOARD_OIDC_CLIENT_ID too")
    # A link in a mail must not depend on the Host header of whoever asks for the mail.
    if config.smtp_url and not config.public_url:
        raise ConfigError("OTBOARD_SMTP_URL needs OTBOARD_PUBLIC_URL too: the address that links in mails lead to")


# Values that an error must not repeat.
SECRET_PARSERS: tuple[Callable[[str], Any], ...] = (_parse_secret, _parse_smtp_url)


def _parse_log_level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise ValueError(f"use one of {', '.join(LOG_LEVELS)}")
    return text.upper()
