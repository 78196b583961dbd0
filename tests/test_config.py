"""The environment is read once, checked, and every field of it is documented."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from app.config import Config, ConfigError, load_config, resource_dir

REPOSITORY = Path(__file__).resolve().parents[1]


def test_defaults() -> None:
    config = load_config({})
    assert config.data_dir == Path.home() / ".local" / "share" / "otboard"
    assert config.database_url is None
    assert config.upload_limit_bytes == 512 * 1024 * 1024
    assert config == Config(data_dir=config.data_dir)
    assert (config.upload_dir, config.cache_dir) == (config.data_dir / "uploads", config.data_dir / "cache")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_DATA_HOME": "/x"}, Path("/x/otboard")),
        # The XDG specification has a relative path ignored.
        ({"XDG_DATA_HOME": "x"}, Path.home() / ".local/share/otboard"),
        ({"XDG_DATA_HOME": "/x", "OTBOARD_DATA": "/y"}, Path("/y")),
        ({"OTBOARD_DATA": "~/boards"}, Path.home() / "boards"),
        ({"OTBOARD_DATA": "boards"}, Path.cwd() / "boards"),
    ],
)
def test_data_dir(environ: dict[str, str], expected: Path) -> None:
    assert load_config(environ).data_dir == expected


def test_values_are_read() -> None:
    config = load_config(
        {
            "OTBOARD_DATABASE_URL": " postgresql://u:secret@h/d ",
            "OTBOARD_UPLOAD_LIMIT_MIB": "3",
            "OTBOARD_SCORING_DEADLINE_SECONDS": "60",
            "OTBOARD_SCORING_ATTEMPTS": "1",
            "OTBOARD_BOOTSTRAP_REPLICATES": "40",
            "OTBOARD_HEARTBEAT_TIMEOUT_SECONDS": "6",
            "OTBOARD_DATABASE_POOL_SIZE": "2",
            "OTBOARD_LOG_LEVEL": "debug",
            "OTBOARD_SERVER_NAME": "Tafel 1",
            "OTBOARD_SECRET_KEY": "not to be shown anywhere, ever, by us",
            "OTBOARD_PUBLIC_URL": "https://board.example.org/",
            "OTBOARD_SIGN_UP": "invite",
            "OTBOARD_OIDC_ISSUER": "https://id.example.org",
            "OTBOARD_OIDC_CLIENT_ID": "board",
            "OTBOARD_OIDC_CLIENT_SECRET": "secret too",
            "OTBOARD_OIDC_NAME": "Example ID",
            "OTBOARD_SMTP_URL": "smtp://u:secret@mail.example.org/?from=board@example.org",
        }
    )
    assert "not to be shown" not in repr(config)
    assert (config.sign_up, config.public_url, config.has_mail) == ("invite", "https://board.example.org", True)
    assert (config.oidc_issuer, config.oidc_client_id, config.has_oidc) == ("https://id.example.org", "board", True)
    assert (config.oidc_client_secret, config.oidc_name) == ("secret too", "Example ID")
    assert config.database_url == "postgresql://u:secret@h/d"
    assert "secret" not in repr(config)
    assert config.upload_limit_bytes == 3 * 2**20
    assert (config.scoring_deadline_seconds, config.scoring_attempts) == (60, 1)
    assert (config.bootstrap_replicates, config.server_name) == (40, "Tafel 1")
    assert (config.heartbeat_timeout_seconds, config.database_pool_size, config.log_level) == (6, 2, "DEBUG")


def test_empty_variables_are_absent() -> None:
    assert load_config({"OTBOARD_DATABASE_URL": "", "OTBOARD_LOG_LEVEL": " "}) == load_config({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTBOARD_UPLOAD_LIMIT_MIB", "512M"),
        ("OTBOARD_UPLOAD_LIMIT_MIB", "0"),
        ("OTBOARD_SCORING_ATTEMPTS", "-1"),
        ("OTBOARD_SCORING_ATTEMPTS", "1.5"),
        ("OTBOARD_DATABASE_POOL_SIZE", "٣"),
        ("OTBOARD_LOG_LEVEL", "loud"),
        ("OTBOARD_SERVER_NAME", "a\nb"),
        ("OTBOARD_SERVER_NAME", "x" * 201),
        ("OTBOARD_SECRET_KEY", "short"),
        ("OTBOARD_SIGN_UP", "sometimes"),
        ("OTBOARD_PUBLIC_URL", "board.example.org"),
        ("OTBOARD_PUBLIC_URL", "javascript://board.example.org"),
        ("OTBOARD_OIDC_ISSUER", "http://id.example.org"),
        ("OTBOARD_OIDC_ISSUER", "https://id.example.org"),
        ("OTBOARD_SMTP_URL", "smtp://user:secret@mail.example.org"),
        ("OTBOARD_SMTP_URL", "smtp://mail.example.org/?from=board@example.org"),
    ],
)
def test_unusable_values_are_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_config({name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("OTBOARD_SECRET_KEY", "hunter2"), ("OTBOARD_SMTP_URL", "smtp://u:hunter2@mail.example.org")]
)
def test_secrets_are_not_repeated(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({name: value})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["migrations", "static"])
def test_resources_are_found(name: str) -> None:
    assert resource_dir(name) == REPOSITORY / name


def test_missing_resource() -> None:
    with pytest.raises(FileNotFoundError, match="nonsense"):
        resource_dir("nonsense")


def test_every_field_and_variable_is_documented() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    described = Config.__doc__ or ""
    variables = set(re.findall(r"OTBOARD_[A-Z_]+", (REPOSITORY / "app" / "config.py").read_text()))
    assert len(variables) >= len(dataclasses.fields(Config))
    for variable in variables:
        assert f"`{variable}`" in page
        assert variable in described
    for field in dataclasses.fields(Config):
        assert f"`{field.name}`" in page
        assert f"{field.name} :" in described
