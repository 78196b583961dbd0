"""The REST interface: `router` holds all of it."""

from __future__ import annotations

from fastapi import APIRouter

from app.api import (
    accounts,
    allowance,
    badges,
    compare,
    console,
    docs,
    efficiency,
    health,
    leaderboard,
    marks,
    models,
    operating_points,
    people,
    probe_runs,
    receipts,
    rescorings,
    snapshot_admin,
    snapshots,
    submissions,
)
from app.api.documentation import errors

PREFIX = "/api/v1"

router = APIRouter()
PARTS = (
    *(snapshots, submissions, operating_points, receipts, leaderboard, compare, badges),
    *(people, accounts, allowance, models, probe_runs, efficiency, marks, rescorings, console, snapshot_admin),
)
for part in PARTS:
    # Said here once, so that the framework does not add its own kind of answer to requests that it refuses.
    router.include_router(part.router, prefix=PREFIX, responses=errors(422))
router.include_router(health.router)
router.include_router(docs.router)
