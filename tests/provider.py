"""A small OpenID Connect provider on a port of this machine: discovery, code flow with PKCE, RS256 tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "board"
CLIENT_SECRET = "the board's secret"


class TestProvider:
    """Signs `subject` in without asking; `claims` and `sign` let a test make it lie."""

    __test__ = False

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.subject = "subject-1"
        self.claims: dict[str, Any] = {}
        self.sign: Any = None
        self.codes: dict[str, dict[str, str]] = {}
        self.seen: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                provider.seen.append(parts.path)
                if parts.path == "/.well-known/openid-configuration":
                    self.answer(provider.describe())
                elif parts.path == "/keys":
                    self.answer({"keys": [provider.key.as_dict(private=False)]})
                elif parts.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.authorise(parse_qs(parts.query)))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    self.answer({"error": "not_found"}, status=404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, document = provider.exchange(parse_qs(body), self.headers.get("Authorization", ""))
                self.answer(document, status=status)

            def answer(self, document: dict[str, Any], *, status: int = 200) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def authorise(self, query: dict[str, list[str]]) -> str:
        """Sign the subject in and return where the browser goes on to."""
        asked = {name: values[0] for name, values in query.items()}
        assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == (
            CLIENT_ID,
            "code",
            "S256",
        )
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = {**asked, "sub": self.subject}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def exchange(self, form: dict[str, list[str]], authorisation: str) -> tuple[int, dict[str, Any]]:
        """Give a token for a code, once, to whoever has the client's secret and began with the verifier."""
        sent = {name: values[0] for name, values in form.items()}
        known = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        asked = self.codes.pop(sent.get("code", ""), None)
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if authorisation != f"Basic {known}" or asked is None or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        if sent.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": asked["sub"],
            "nonce": asked["nonce"],
            "iat": now,
            "exp": now + 300,
            "preferred_username": "Grace <Hopper>",
            "email": "grace@example.org",
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        sign = self.sign or (lambda made: jwt.encode({"alg": "RS256", "kid": "one"}, made, self.key))
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": sign(claims)}


def encode_part(document: dict[str, Any]) -> str:
    """Return one part of a token that is put together by hand."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
