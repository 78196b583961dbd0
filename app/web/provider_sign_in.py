"""Signing in with an OpenID Connect provider, and linking an account to it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from app.config import Config
from app.errors import AppError, NotFoundError
from app.services.accounts import Identity
from app.services.oidc import (
    Flow,
    Provider,
    ProviderIdentity,
    ProviderRefusedError,
    find_identity_account,
    link_identity,
)
from app.services.sign_up import sign_up
from app.services.throttle import SIGN_UP, reserve_attempt
from app.web.cookies import clear_flow_cookie, read_flow, set_flow_cookie
from app.web.forms import attempt
from app.web.security import ConfigDep, ReaderDep, SessionDep, SessionsDep, require_form_token
from app.web.sign_in import client_address, enter, safe_target
from app.web.templating import render_page

router = APIRouter(prefix="/sign-in/provider", include_in_schema=False, dependencies=[Depends(require_form_token)])


def get_provider(request: Request) -> Provider:
    """Return the configured provider, or answer as if there were no such address."""
    provider = cast("Provider | None", request.app.state.provider)
    if provider is None:
        raise NotFoundError("This server has no provider to sign in with.")
    return provider


ProviderDep = Annotated[Provider, Depends(get_provider)]


@router.get("")
def begin(request: Request, provider: ProviderDep, config: ConfigDep, next: str = "/") -> Response:
    """Send the browser to the provider. A plain link: the policy on forms would not let one lead there."""
    address, flow = provider.begin(redirect_uri=_callback(request, config), next=safe_target(next))
    response = RedirectResponse(address, status_code=303)
    set_flow_cookie(request, response, {"flow": asdict(flow)})
    return response


@router.get("/callback")
def come_back(
    request: Request, provider: ProviderDep, session: SessionDep, config: ConfigDep, code: str = "", state: str = ""
) -> Response:
    """Take the provider's answer: sign in whom it is about, or ask what account it should be."""
    kept = read_flow(request)
    if not isinstance(kept, dict) or "flow" not in kept:
        raise ProviderRefusedError("This browser did not begin a sign-in here, or too long ago; begin again.")
    flow = Flow(**kept["flow"])
    identity = provider.finish(flow, code=code, state=state, redirect_uri=_callback(request, config))
    account_id = find_identity_account(session, identity)
    if account_id is None:
        response: Response = RedirectResponse("/sign-in/provider/finish", status_code=303)
        set_flow_cookie(request, response, {"identity": asdict(identity), "next": flow.next})
        return response
    response = enter(request, session, account_id, target=flow.next)
    clear_flow_cookie(request, response)
    return response


@router.get("/finish")
def show_finish(request: Request, provider: ProviderDep, reader: ReaderDep, config: ConfigDep) -> Response:
    """Ask what an identity that is new here should belong to: the account that is signed in, or one to be made."""
    identity, _ = _read_identity(request, provider)
    shown: dict[str, Any] = {"config": config, "identity": identity, "name": "", "error": None}
    return render_page(request, "provider_finish.html", reader=reader, **shown)


@router.post("/finish")
def finish(
    request: Request,
    provider: ProviderDep,
    reader: ReaderDep,
    session: SessionDep,
    sessions: SessionsDep,
    config: ConfigDep,
    name: Annotated[str, Form()] = "",
    code: Annotated[str, Form()] = "",
) -> Response:
    """Link the identity, with the reader's word for it, to their account or to a new one, and sign in."""
    identity, target = _read_identity(request, provider)
    now = datetime.now(UTC)

    def link() -> Identity:
        account = reader or sign_up(
            session, name=name.strip(), password=None, mode=config.sign_up, invitation=code, now=now
        )
        link_identity(session, identity, account=account)
        return account

    if reader is None:
        address = client_address(request)
        reserve_attempt(sessions, subject=f"sign up {address}", address=address, limits=SIGN_UP, now=now)
    linked = attempt(session, link)
    if isinstance(linked, AppError):
        shown = {"config": config, "identity": identity, "name": name, "error": linked}
        return render_page(request, "provider_finish.html", reader=reader, status=linked.status, **shown)
    response = enter(request, session, linked.id, target="/account" if reader else target)
    clear_flow_cookie(request, response)
    return response


def _read_identity(request: Request, provider: Provider) -> tuple[ProviderIdentity, str]:
    kept = read_flow(request)
    if not isinstance(kept, dict) or "identity" not in kept or kept["identity"]["issuer"] != provider.issuer:
        raise ProviderRefusedError("The sign-in with the provider is over; begin again.")
    return ProviderIdentity(**kept["identity"]), safe_target(kept["next"])


def _callback(request: Request, config: Config) -> str:
    base = config.public_url or str(request.base_url).rstrip("/")
    return f"{base}/sign-in/provider/callback"
