"""Receiving the zip of a snapshot: straight to disk, up to a limit of its own, and only from organisers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request

from app.services.uploads import ReceivedForm, receive_form
from app.web.security import ConfigDep, OrganiserDep


async def receive_snapshot(request: Request, config: ConfigDep, organiser: OrganiserDep) -> AsyncIterator[ReceivedForm]:
    """Read the request's multipart form, its file to disk; what was not kept is removed when the endpoint is done."""
    form = await receive_form(
        request.stream(),
        content_type=request.headers.get("Content-Type", ""),
        data_dir=config.data_dir,
        limit_bytes=config.snapshot_limit_bytes,
    )
    try:
        yield form
    finally:
        await asyncio.to_thread(form.close)


SnapshotFormDep = Annotated[ReceivedForm, Depends(receive_snapshot, scope="function")]
