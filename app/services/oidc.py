"""Signing in with an OpenID Connect provider: discovery, code flow with PKCE, state, nonce, signed identity tokens."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

import httpx
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.errors import AppError, StateError
from app.services.accounts import Identity
from app.services.audit import record_audit

# Signatures by a key that only the provider has. Not `none`, and not HS256, for which a public key would do.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")
SCOPE = "openid profile"
TIMEOUT_SECONDS = 10.0
KNOWN_FOR_SECONDS = 3600.0
CLOCK_LEEWAY_SECONDS = 60
MAX_SUBJECT = 255


class ProviderFailedError(AppError):
    """The provider does not answer, or answers what is no answer."""

    status = 502
    code = "provider_failed"
    title = "The provider does not answer as it should"


class ProviderRefusedError(AppError):
    """What came back from the provider does not belong to a sign-in that this browser began here, or is not valid."""

    status = 400
    code = "sign_in_refused"
    title = "The sign-in with the provider did not work"


class IdentityTakenError(StateError):
    """The identity at the provider belongs to another account already."""

    code = "identity_taken"
    title = "This identity belongs to another account"


class LastWayInError(StateError):
    """The account could not be entered any more."""

    code = "last_way_in"
    title = "This is the only way to sign in"


@dataclass(frozen=True)
class Flow:
    """What a sign-in with the provider is recognised by when it comes back; kept in the browser's signed cookie."""

    state: str
    nonce: str
    code_verifier: str
    next: str


@dataclass(frozen=True)
class ProviderIdentity:
    """Somebody as the provider knows them: issuer and subject say who, the label is for reading only."""

    issuer: str
    subject: str
    label: str


class Provider:
    """The configured provider; its description is asked for once an hour, its keys when an unknown one signs."""

    def __init__(self, config: Config) -> None:
        assert config.oidc_issuer is not None
        assert config.oidc_client_id is not None
        self.issuer = config.oidc_issuer
        self._client_id = config.oidc_client_id
        self._client_secret = config.oidc_client_secret
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._known_at = 0.0

    def begin(self, *, redirect_uri: str, next: str) -> tuple[str, Flow]:
        """Return the provider's address to send the browser to, and what to keep until it comes back."""
        flow = Flow(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), next)
        metadata = self._discover()
        with self._client(redirect_uri) as client:
            address, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=flow.state,
                code_verifier=flow.code_verifier,
                nonce=flow.nonce,
            )
        return str(address), flow

    def finish(self, flow: Flow, *, code: str, state: str, redirect_uri: str) -> ProviderIdentity:
        """Return who came back, once the state is the flow's and the identity token holds.

        Raises
        ------
        ProviderRefusedError : another state, a code that is not good, or a token with a wrong signature, algorithm,
            issuer, audience, nonce or time.
        ProviderFailedError : the provider does not answer.
        """
        if not secrets.compare_digest(state.encode(), flow.state.encode()):
            raise ProviderRefusedError("The answer is not to a sign-in that this browser began here; begin again.")
        token = self._fetch_token(flow, code=code, redirect_uri=redirect_uri)
        claims = self._verify(token, nonce=flow.nonce)
        label = next((claims[key] for key in ("preferred_username", "name") if isinstance(claims.get(key), str)), "")
        return ProviderIdentity(self.issuer, claims["sub"], (label or claims["sub"])[:MAX_SUBJECT])

    def _client(self, redirect_uri: str) -> OAuth2Client:
        return OAuth2Client(
            client_id=self._client_id,
            client_secret=self._client_secret,
            # Without a secret the client is a public one, which PKCE protects.
            token_endpoint_auth_method="client_secret_basic" if self._client_secret else "none",
            scope=SCOPE,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT_SECONDS,
        )

    def _fetch_token(self, flow: Flow, *, code: str, redirect_uri: str) -> str:
        endpoint = self._discover()["token_endpoint"]
        try:
            with self._client(redirect_uri) as client:
                answer = client.fetch_token(
                    endpoint, grant_type="authorization_code", code=code, code_verifier=flow.code_verifier
                )
        except OAuthError as exc:
            raise ProviderRefusedError("The provider did not accept the code; begin again.") from exc
        except (httpx.HTTPError, ValueError) as exc:
            raise ProviderFailedError("The provider's token endpoint does not answer; try again later.") from exc
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ProviderRefusedError("The provider sent no identity token.")
        return token

    def _verify(self, token: str, *, nonce: str) -> dict[str, Any]:
        rules = jwt.JWTClaimsRegistry(
            leeway=CLOCK_LEEWAY_SECONDS,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self._client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = self._decode(token).claims
            rules.validate(claims)
        except (JoseError, ValueError) as exc:
            raise ProviderRefusedError("The provider's identity token is not valid for this sign-in.") from exc
        subject, party = claims["sub"], claims.get("azp", self._client_id)
        is_text = isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT and subject.isprintable()
        # With several audiences the token says for whom it was made.
        is_ours = party == self._client_id and (
            isinstance(claims["aud"], str) or len(claims["aud"]) == 1 or "azp" in claims
        )
        if not is_text or not is_ours:
            raise ProviderRefusedError("The provider's identity token is not valid for this sign-in.")
        return claims

    def _decode(self, token: str) -> jwt.Token:
        """Check the signature; where no known key fits, the provider may have changed its keys meanwhile."""
        known = self._keys
        if known is not None:
            try:
                return jwt.decode(token, known, algorithms=list(ALGORITHMS))
            except (JoseError, ValueError):
                pass
        return jwt.decode(token, self._load_keys(), algorithms=list(ALGORITHMS))

    def _discover(self) -> dict[str, Any]:
        if not self._metadata or time.monotonic() - self._known_at > KNOWN_FOR_SECONDS:
            found = _get_json(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            wanted = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            if found.get("issuer") != self.issuer or not all(isinstance(found.get(key), str) for key in wanted):
                raise ProviderFailedError("The provider's description is not that of the configured issuer.")
            self._metadata, self._known_at = found, time.monotonic()
        return self._metadata

    def _load_keys(self) -> KeySet:
        try:
            self._keys = KeySet.import_key_set(_get_json(self._discover()["jwks_uri"]))  # type: ignore[arg-type]
        except (JoseError, ValueError, KeyError, TypeError) as exc:
            raise ProviderFailedError("The provider's keys cannot be read.") from exc
        return self._keys


def find_identity_account(session: Session, identity: ProviderIdentity) -> int | None:
    """Return the account that is linked to this issuer and subject; an e-mail address links nothing."""
    table = models.AccountIdentity
    query = select(table.account_id).where(table.issuer == identity.issuer, table.subject == identity.subject)
    return session.scalar(query)


def link_identity(session: Session, identity: ProviderIdentity, *, account: Identity) -> None:
    """Let the account be entered by this identity at the provider from now on.

    Raises
    ------
    IdentityTakenError : it belongs to another account.
    """
    table = models.AccountIdentity
    added = insert(table).values(account_id=account.id, issuer=identity.issuer, subject=identity.subject)
    session.execute(added.on_conflict_do_nothing())
    if find_identity_account(session, identity) != account.id:
        raise IdentityTakenError("Somebody else signs in with this identity; sign in with it instead.")
    record_audit(session, actor=account.name, action="link_identity", subject=f"account {account.id}")


def unlink_identities(session: Session, account: Identity) -> None:
    """Let the account be entered by no identity at a provider any more; a password has to be there instead.

    Raises
    ------
    LastWayInError : the account has no password.
    """
    row = session.get_one(models.Account, account.id, with_for_update=True)
    if row.password_hash is None:
        raise LastWayInError("Set a password first: without the provider there would be no way to sign in.")
    table = models.AccountIdentity
    if session.scalars(delete(table).where(table.account_id == row.id).returning(table.id)).all():
        record_audit(session, actor=row.name, action="unlink_identity", subject=f"account {row.id}")


def _get_json(address: str) -> dict[str, Any]:
    try:
        answer = httpx.get(address, timeout=TIMEOUT_SECONDS, headers={"Accept": "application/json"})
        answer.raise_for_status()
        document = answer.json()
    except (httpx.HTTPError, ValueError) as exc:
        raise ProviderFailedError("The provider does not answer; try again later.") from exc
    if not isinstance(document, dict):
        raise ProviderFailedError("The provider's answer is no JSON object.")
    return document
