"""A worker that is killed in the middle of a bootstrap: the next one goes on, and intervals and ranks follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Wait = Callable[[Callable[[], bool]], None]

N_DONE = "SELECT n_done FROM split_replicates WHERE split = 'test'"
# The row that a bootstrap writes its progress to.
HOLD = "SELECT n_done FROM split_replicates WHERE split = 'test' FOR UPDATE"
PUBLISH = "UPDATE submissions SET state = 'published', published_at = now() WHERE id = :id RETURNING id"
IS_RANKED = "SELECT EXISTS (SELECT FROM board_ranks r JOIN board_intervals i ON i.board_score_id = r.board_score_id)"


def test_the_next_worker_goes_on_and_ranks(
    site: Any, wait_until: Wait, kill: Any, make_caps: Callable[[int], bytes]
) -> None:
    submission_id = site.submit(make_caps(200))
    worker = site.start_worker()
    wait_until(lambda: site.state(submission_id) == "scored")
    assert site.ask(PUBLISH, id=submission_id) == submission_id
    wait_until(lambda: site.ask("SELECT count(*) FROM split_replicates WHERE finished_at IS NOT NULL") == 4)
    kill(worker)
    # As it was before the bootstrap of the test split, with the job that does it.
    site.ask("DELETE FROM board_ranks RETURNING board_score_id")
    site.ask("DELETE FROM board_intervals RETURNING id")
    site.ask("UPDATE split_replicates SET n_done = 0, finished_at = NULL WHERE split = 'test' RETURNING id")
    with site.hold(HOLD):
        second = site.start_worker()
        wait_until(site.someone_waits)
        kill(second)
    assert site.ask(N_DONE) == 0
    site.start_worker()
    wait_until(lambda: site.ask(N_DONE) == 40)
    wait_until(lambda: site.ask(IS_RANKED))
