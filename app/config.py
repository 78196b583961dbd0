"""What the environment decides: one frozen `Config`, read once where a process starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from app.errors import AppError

MAX_NAME_LENGTH = 200
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
            raise ConfigError(f"{name}={text!r}: {exc}") from exc

    return Config(
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
    )


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


def _parse_log_level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise ValueError(f"use one of {', '.join(LOG_LEVELS)}")
    return text.upper()
