"""Several copies of an engine, each in a process and on GPUs of its own, that share the requests of a call.

vLLM runs one replica in a process; this is what a profile's `data_parallel_size` asks for. A replica gets a run of
neighbours in the order of shared prefixes, so that a trajectory is computed by one of them, or two at a border.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from worker.generation import Completion, Engine, EngineError, Request
from worker.ordering import Prompt, order_by_shared_prefix

logger = logging.getLogger(__name__)

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
STOP = "stop"
CLOSING_SECONDS = 30.0

# A method, its arguments and its options.
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class ReplicatedEngine:
    """Engines in processes of their own, which end when this one does.

    Parameters
    ----------
    open_replica : opens an engine; called in each process.
    environments : what to set in the environment of each replica first, one mapping a replica.
    """

    def __init__(self, open_replica: Callable[[], Engine], environments: Sequence[Mapping[str, str]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for number, environment in enumerate(environments):
            ours, theirs = context.Pipe()
            # Not a daemon: a replica may have processes of its own.
            process = context.Process(
                target=_serve, args=(theirs, open_replica, dict(environment)), name=f"replica {number}"
            )
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        try:
            self._described: list[dict[str, str]] = self._collect(range(len(self._processes)), None)
        except BaseException:
            self.close()
            raise

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        """Return one completion a request, in the order of the requests."""
        work = [len(request.prompt) + request.max_tokens for request in requests]
        shares = share_out([request.prompt for request in requests], work, n_shares=len(self._processes))
        calls: list[Call] = [("generate", ([requests[idx] for idx in share],), {}) for share in shares]
        return self._call(calls, shares, progress=progress)

    def measure_end_margins(self, prompts: Sequence[Prompt], *, end_token: int) -> list[float]:
        """Return log p(likeliest other token) − log p(`end_token`) of the token after each prompt."""
        shares = share_out(prompts, [len(prompt) for prompt in prompts], n_shares=len(self._processes))
        calls: list[Call] = [
            ("measure_end_margins", ([prompts[idx] for idx in share],), {"end_token": end_token}) for share in shares
        ]
        return self._call(calls, shares)

    def describe(self) -> dict[str, str]:
        """Return what a replica says, and how many there are: batches depend on it."""
        return {**self._described[0], "data_parallel_size": str(len(self._processes))}

    def close(self) -> None:
        """End the processes, those by force that do not end by themselves."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(CLOSING_SECONDS)
            process.kill()
            process.join()

    def _call(
        self,
        calls: Sequence[Call],
        shares: Sequence[Sequence[int]],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Return the answers in the order of the requests; replicas without a share stay idle."""
        busy = [number for number, share in enumerate(shares) if share]
        for number in busy:
            self._send(number, calls[number])
        answers: dict[int, Any] = {}
        for number, results in zip(busy, self._collect(busy, progress), strict=True):
            answers.update(zip(shares[number], results, strict=True))
        return [answers[idx] for idx in range(len(answers))]

    def _collect(self, numbers: Sequence[int], progress: Callable[[int], None] | None) -> list[Any]:
        """Return what the replicas answer; what `progress` raises stops them all first."""
        waiting = {self._connections[number]: number for number in numbers}
        done: dict[int, Any] = {}
        counts = dict.fromkeys(numbers, 0)
        faults = []
        stopped: BaseException | None = None
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                number = waiting[connection]
                kind, value = self._receive(number)
                if kind == "progress":
                    counts[number] = value
                    if progress is not None and stopped is None:
                        stopped = _tell(progress, sum(counts.values()))
                        if stopped is not None:
                            self._stop(waiting.values())
                    continue
                del waiting[connection]
                if kind == "failed":
                    faults.append(value)
                done[number] = value
        if stopped is not None:
            raise stopped
        if faults:
            raise EngineError(faults[0])
        return [done[number] for number in numbers]

    def _stop(self, numbers: Any) -> None:
        for number in numbers:
            self._send(number, STOP)

    def _send(self, number: int, message: Any) -> None:
        try:
            self._connections[number].send(message)
        except OSError as exc:
            raise EngineError(f"replica {number} of the engine has ended") from exc

    def _receive(self, number: int) -> tuple[str, Any]:
        try:
            kind, value = self._connections[number].recv()
        except (EOFError, OSError) as exc:
            raise EngineError(f"replica {number} of the engine has ended") from exc
        return kind, value


def share_out(prompts: Sequence[Prompt], work: Sequence[int], *, n_shares: int) -> list[list[int]]:
    """Return the indices of each share: neighbours in the order of shared prefixes, of about equal work."""
    shares: list[list[int]] = [[] for _ in range(n_shares)]
    total, before = sum(work), 0
    for idx in order_by_shared_prefix(prompts):
        # The share in which the middle of its work lies.
        shares[min((2 * before + work[idx]) * n_shares // (2 * total), n_shares - 1)].append(idx)
        before += work[idx]
    return shares


def list_environments(options: Mapping[str, Any], *, visible: str | None) -> list[dict[str, str]]:
    """Return the GPUs of each replica: the next of `visible`, or of all, as many as its tensor and pipeline need.

    Raises
    ------
    EngineError : fewer GPUs are visible than the replicas need.
    """
    n_replicas = int(options["data_parallel_size"])
    if options.get("distributed_executor_backend") == "ray":
        # Ray gives each what it asks for.
        return [{} for _ in range(n_replicas)]
    n_each = int(options.get("tensor_parallel_size", 1)) * int(options.get("pipeline_parallel_size", 1))
    names = [str(idx) for idx in range(n_replicas * n_each)] if visible is None else visible.split(",")
    if len(names) < n_replicas * n_each:
        raise EngineError(
            f"{n_replicas} replicas of {n_each} GPUs each need {n_replicas * n_each}, and {GPUS_VARIABLE} names "
            f"{len(names)}"
        )
    return [{GPUS_VARIABLE: ",".join(names[k * n_each : (k + 1) * n_each])} for k in range(n_replicas)]


class _StoppedError(Exception):
    """What is under way is no longer wanted."""


def _tell(progress: Callable[[int], None], n_done: int) -> BaseException | None:
    try:
        progress(n_done)
    except BaseException as exc:
        return exc
    return None


def _serve(connection: Connection, open_replica: Callable[[], Engine], environment: Mapping[str, str]) -> None:
    """Answer calls until the connection ends; signals are for the process that asks."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.environ.update(environment)
    _end_with_parent()
    try:
        engine = open_replica()
    except Exception as exc:
        connection.send(("failed", str(exc)))
        return
    connection.send(("done", engine.describe()))
    while True:
        try:
            call = connection.recv()
        except EOFError:
            break
        # A stop that came when all was done already stops nothing.
        if call != STOP:
            connection.send(_answer(engine, connection, call))
    engine.close()


def _answer(
    engine: Engine, connection: Connection, call: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> tuple[str, Any]:
    name, arguments, options = call

    def tell(n_done: int) -> None:
        if connection.poll():
            connection.recv()
            raise _StoppedError
        connection.send(("progress", n_done))

    try:
        if name == "generate":
            return "done", engine.generate(*arguments, progress=tell)
        return "done", engine.measure_end_margins(*arguments, **options)
    except _StoppedError:
        return "stopped", None
    except Exception as exc:
        logger.exception("the replica failed")
        return "failed", str(exc) or type(exc).__name__


def _end_with_parent() -> None:
    """End at once when the process that asks has been killed, and not after what is under way."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        # Closing the connection ends this process as well, and in order: only a killed parent closes without waiting.
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
