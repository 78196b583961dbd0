"""A server killed while a file comes in leaves nothing of it, and sending it again works."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

Wait = Callable[[Callable[[], bool]], None]

FORM = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "caps"}


def send(address: str, token: str, content: bytes) -> httpx.Response:
    return httpx.post(
        f"{address}/api/v1/submissions",
        data=FORM,
        files={"file": ("caps.csv", content)},
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )


def list_uploads(site: Any) -> list[Path]:
    return [path for path in (site.config.data_dir / "uploads").rglob("*") if path.is_file()]


def begin_upload(address: str, token: str) -> socket.socket:
    """Send the head of a form and the first half of its file, and keep the connection open."""
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    connection = socket.create_connection((parts.hostname, parts.port))
    head = (
        f"POST /api/v1/submissions HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 9000000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="caps.csv"\r\n\r\n'
    )
    connection.sendall(head.encode() + b"x" * 4_000_000)
    return connection


def test_killed_during_an_upload(site: Any, make_caps: Any, wait_until: Wait, kill: Any) -> None:
    server, address, token = site.start_server()
    with begin_upload(address, token):
        wait_until(lambda: sum(path.stat().st_size for path in list_uploads(site)) > 1_000_000)
        kill(server)
    assert site.ask("SELECT count(*) FROM submissions") == 0
    # Its worker does not outlive it.
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_workers") == 0)
    server, address, token = site.start_server()
    wait_until(lambda: httpx.get(f"{address}/readyz").status_code == 200)
    assert list_uploads(site) == []
    answer = send(address, token, make_caps(200))
    assert answer.status_code == 202
    wait_until(lambda: site.state(answer.json()["id"]) == "scored")
    assert site.ask("SELECT count(*) FROM submissions") == 1
    assert len(list_uploads(site)) == 1
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert site.ask("SELECT count(*) FROM procrastinate_workers") == 0


def test_a_client_that_goes_away_leaves_nothing(site: Any, make_caps: Any, wait_until: Wait) -> None:
    server, address, token = site.start_server()
    with begin_upload(address, token):
        wait_until(lambda: bool(list_uploads(site)))
    wait_until(lambda: list_uploads(site) == [])
    assert send(address, token, make_caps(200)).status_code == 202
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0


def test_killed_while_the_row_is_written(site: Any, make_caps: Any, wait_until: Wait, kill: Any) -> None:
    """The file is in its place already, the row is not: neither is lost or doubled by sending it again."""
    server, address, token = site.start_server()
    with site.hold("LOCK TABLE submissions IN SHARE MODE"):
        form = httpx.Request(
            "POST",
            f"{address}/api/v1/submissions",
            data=FORM,
            files={"file": ("caps.csv", make_caps(200))},
            headers={"Authorization": f"Bearer {token}"},
        )
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            head = f"POST {form.url.path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in form.headers.items())
            connection.sendall(head.encode() + b"\r\n" + form.read())
            wait_until(site.someone_waits)
            kill(server)
    assert site.ask("SELECT count(*) FROM submissions") == 0
    server, address, token = site.start_server()
    first, second = send(address, token, make_caps(200)), send(address, token, make_caps(200))
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]
    wait_until(lambda: site.state(first.json()["id"]) == "scored")
    assert site.ask("SELECT count(*) FROM submissions") == 1
    assert len(list_uploads(site)) == 1


def test_a_taken_port_is_told_at_once(site: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = site.start_command("serve", "--port", port)
        assert process.wait() == 3
    assert f"Port {port} on 127.0.0.1 is in use" in site.read_errors()
