"""Signed scores and the keys to check them with."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from app.api.documentation import NOT_MODIFIED, VERSION, errors
from app.api.frozen import find_unchanged, frozen, make_etag
from app.api.schemas import Answer, BoardFiguresOut, Document, Sha256
from app.evaluator.strategies import Strategy
from app.services import receipts
from app.web.security import ConfigDep, ReaderDep, SessionDep

router = APIRouter(tags=["receipts"])

KeyId = Field(pattern="^[0-9a-f]{16}$", examples=["66687aadf862bd77"])


class ReceiptOut(Document):
    """What was scored, and the figures as they were released."""

    format: str = Field(examples=["otboard-receipt/1"])
    server: str = Field(description="What the server calls itself.")
    submission_id: str
    team: str
    method: str
    scored_at: str = Field(examples=["2026-07-21T09:30:04.000005Z"])
    snapshot: str
    snapshot_sha256: Sha256
    kind: str
    split: str
    strategy: Strategy
    actions_sha256: Sha256
    scorer_version: str
    evaluator_version: str | None = Field(description="Of the frontiers the score was compared with.")
    summary: BoardFiguresOut | None
    boards: list[BoardFiguresOut]


class SignedReceiptOut(BaseModel):
    """A receipt and the server's signature of its canonical form."""

    receipt: ReceiptOut
    signature: str = Field(description="Ed25519, 64 bytes in base64.")
    key_id: str = KeyId


class ReceiptKeyOut(Answer):
    """A public key of this server."""

    key_id: str = KeyId
    algorithm: str = Field(examples=["Ed25519"])
    public_key: str = Field(description="32 bytes in base64.")
    pem: str
    is_current: bool = Field(description="Whether receipts are signed with it now.")


class ReceiptKeyPageOut(BaseModel):
    """All public keys of this server, the one in use first."""

    items: list[ReceiptKeyOut]
    next_cursor: str | None = None


@router.get(
    "/submissions/{submission_id}/receipt",
    summary="Get the score as a signed receipt",
    response_model=SignedReceiptOut,
    responses=errors(401, 403, 404, 409, 410, 500, also=NOT_MODIFIED),
)
def get_receipt(
    submission_id: str,
    reader: ReaderDep,
    session: SessionDep,
    config: ConfigDep,
    request: Request,
    scorer_version: VERSION = None,
) -> Response:
    """Return the score signed by this server; `otboard receipt verify` checks it offline."""
    text = receipts.get_receipt(session, submission_id, account=reader, config=config, scorer_version=scorer_version)
    etag = make_etag("receipt", hashlib.sha256(text.encode()).hexdigest())
    answer = find_unchanged(request, etag) or frozen(text, etag=etag)
    answer.headers["Content-Disposition"] = f'attachment; filename="receipt-{submission_id}.json"'
    return answer


@router.get("/receipt-keys", summary="List the keys of receipts", responses=errors(500))
def list_receipt_keys(config: ConfigDep) -> ReceiptKeyPageOut:
    """List the public keys of this server's receipts, the one in use first."""
    items = [ReceiptKeyOut.model_validate(key) for key in receipts.list_receipt_keys(config.data_dir)]
    return ReceiptKeyPageOut(items=items)
