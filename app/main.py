"""The web application, and `otboard serve`: everything on one machine."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware

from app import api
from app.api.frozen import PROGRAM_VERSION, CompressedTags
from app.api.problems import add_error_handlers, problem_response
from app.config import Config
from app.db.embedded import database_url, open_database
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.errors import AppError, UnreachableError
from app.log import configure_logging
from app.processes import Child, Supervisor
from app.services.accounts import ensure_local_account
from app.services.efficiency_sets import store_shipped_sets
from app.services.links import LinkPurpose, link_address
from app.services.oidc import Provider
from app.services.sign_ins import issue_local_link
from app.services.uploads import sweep_incoming
from app.web.account_pages import router as account
from app.web.board_routes import router as board
from app.web.body_limit import BodyLimit
from app.web.console_pages import router as console
from app.web.cookies import load_secret_key
from app.web.docs_pages import router as documentation
from app.web.efficiency_page import router as efficiency
from app.web.errors import error_page
from app.web.kept_pages import KeptPages
from app.web.organiser_pages import router as organiser_pages
from app.web.pages import router as pages
from app.web.people_pages import router as people
from app.web.provider_sign_in import router as provider_sign_in
from app.web.security import SecurityHeaders, check_form
from app.web.sign_in import router as sign_in
from app.web.sign_up import router as sign_up
from app.web.snapshot_admin_pages import router as snapshot_admin_pages
from app.web.snapshot_routes import router as snapshot_routes
from app.web.team_pages import router as teams

logger = logging.getLogger(__name__)

API_PREFIX = "/api"
STOP_SECONDS = 5
DESCRIPTION = """
The board of reasoning-termination methods: frozen measurements, exact frontiers, scored action files.

Errors are `application/problem+json` with a stable `code`. Lists have `limit` and `cursor`. What is frozen has a strong
`ETag`. A token goes into `Authorization: Bearer otb_…`.
"""


class PortTakenError(UnreachableError):
    """The address to serve on cannot be used."""

    code = "port_taken"
    title = "The address cannot be used"


def create_app(config: Config) -> FastAPI:
    """Return the application; the database it uses is migrated already."""
    engine = make_engine(database_url(config), pool_size=config.database_pool_size)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        swept = sweep_incoming(config.data_dir)
        if swept:
            logger.warning("removed %d uploads that a killed server left unfinished", swept)
        yield
        engine.dispose()

    app = FastAPI(
        title="OTBoard",
        version=PROGRAM_VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.config = config
    app.state.sessions = session_factory(engine)
    app.state.secret_key = load_secret_key(config)
    app.state.provider = Provider(config) if config.has_oidc else None
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)
    app.add_middleware(CompressedTags)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(KeptPages)
    app.add_middleware(BodyLimit)
    app.include_router(api.router)
    for router in (sign_in, sign_up, provider_sign_in):
        app.include_router(router)
    for router in (
        *(board, pages, snapshot_routes, console, organiser_pages, snapshot_admin_pages, efficiency, documentation),
        *(account, teams, people),
    ):
        app.include_router(router, dependencies=[Depends(check_form)])
    add_error_handlers(app, _respond_to_error)
    return app


def serve(config: Config, *, host: str = "127.0.0.1", port: int = 8000, demo: bool = False) -> None:
    """Run everything on one machine until SIGINT or SIGTERM: database, migrations, scoring worker, web server.

    With `demo`, a further process fills the board with a synthetic snapshot and its baselines while it is being served.

    Raises
    ------
    UnreachableError : the database cannot be reached or started, or the address is taken.
    """
    configure_logging(config.log_level)
    # The web server hands a signal on after its own orderly end; here it then unwinds what this function started.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    listener = _listen(host, port)
    with listener, open_database(config) as url:
        served = replace(config, database_url=url)
        entry = _prepare_database(served)
        supervisor = Supervisor(_list_children(config, demo=demo))
        supervisor.start()
        try:
            _announce(f"http://{_bracket(host)}:{listener.getsockname()[1]}", entry)
            _run_web_server(served, listener)
        finally:
            supervisor.stop()


@dataclass(frozen=True)
class _Entry:
    """How the owner of the machine gets in: the local account's token, and the code of a link that signs it in once."""

    token: str
    code: str


def _prepare_database(config: Config) -> _Entry:
    """Migrate, store what is shipped, make sure of the local account, and return how it is entered."""
    engine = make_engine(database_url(config))
    try:
        upgrade_database(engine)
        with session_factory(engine).begin() as session:
            store_shipped_sets(session)
            token = ensure_local_account(session, config.data_dir)
            return _Entry(token, issue_local_link(session, now=datetime.now(UTC)))
    finally:
        engine.dispose()


def _list_children(config: Config, *, demo: bool) -> list[Child]:
    """Return the worker, which always runs, and the process that makes the demo's data, which ends by itself."""
    environment = {**os.environ, "OTBOARD_DATA": str(config.data_dir), "OTBOARD_LOG_LEVEL": config.log_level}
    if config.database_url is not None:
        environment["OTBOARD_DATABASE_URL"] = config.database_url
    python = [sys.executable, "-m"]
    worker = Child("the scoring worker", [*python, "worker.main", "--stop-with-parent"], lambda _: True, environment)
    if not demo:
        return [worker]
    return [
        worker,
        Child(
            "the demo", [*python, "app.services.demo", "--stop-with-parent"], lambda status: status != 0, environment
        ),
    ]


def _run_web_server(config: Config, listener: socket.socket) -> None:
    web_config = uvicorn.Config(
        create_app(config),
        log_config=None,
        access_log=config.log_level == "DEBUG",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    uvicorn.Server(web_config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Take the address before anything else is started, so that a taken one is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTakenError(f"Port {port} on {host} is in use; choose another one with --port.") from exc
        raise PortTakenError(f"Cannot serve on {host} port {port}: {exc.strerror}.") from exc


def _announce(address: str, entry: _Entry) -> None:
    sys.stdout.write(
        f"\n  OTBoard        {address}\n"
        f"  Sign in        {link_address(address, LinkPurpose.SIGN_IN, entry.code)}\n"
        "                 (once, within 15 minutes; `otboard admin sign-in-link` prints another one)\n"
        f"  REST           {address}/api/docs\n"
        f"  Token          {entry.token}\n"
        "                 (for OTBOARD_TOKEN and `Authorization: Bearer`)\n\n"
    )
    sys.stdout.flush()


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _exit(signal_number: int, _: Any) -> None:
    raise SystemExit(0)


def _respond_to_error(request: Request, error: AppError) -> Response:
    """Answer programs with problem+json and people with a page."""
    wants_page = "text/html" in request.headers.get("Accept", "") and not request.url.path.startswith(API_PREFIX)
    if wants_page or (error.status == HTTPStatus.NOT_FOUND and "text/html" in request.headers.get("Accept", "")):
        return error_page(request, error)
    return problem_response(request, error)
