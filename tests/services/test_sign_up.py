"""New accounts, passwords, one-time links, and the throttle: what is single stays single with two connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, sessionmaker

from app.db import models
from app.db.session import make_engine, session_factory
from app.errors import AppError, ForbiddenError
from app.services import passwords, sign_ins, sign_up
from app.services.account_names import InvalidNameError, NameTakenError
from app.services.accounts import Identity, Role, find_identity
from app.services.links import InvalidLinkError, LinkPurpose, issue_link, use_link
from app.services.passwords import InvalidPasswordError
from app.services.sign_ins import WrongPasswordError, check_password
from app.services.throttle import ThrottledError
from tests.signing_in import PASSWORD

NOW = datetime(2026, 7, 21, 12, tzinfo=UTC)


def make(session: Session, name: str, *, role: Role = Role.MEMBER, password: str | None = PASSWORD) -> Identity:
    return sign_up.create_account(session, name=name, password=password, role=role)


def test_an_account_has_a_team_of_its_own(session: Session) -> None:
    account = make(session, "grace")
    assert (account.name, account.team, account.role, account.team_ids) == (
        "grace",
        "grace",
        Role.MEMBER,
        frozenset({account.team_id}),
    )
    assert session.get_one(models.Team, account.team_id).kind == "personal"
    assert session.get_one(models.TeamMember, (account.team_id, account.id)).role == "owner"
    assert PASSWORD not in (session.get_one(models.Account, account.id).password_hash or PASSWORD)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Ada",
        "-ada",
        "ada b",
        "a" * 41,
        "ada\n",
        "ada\x00",
        "аda",
        "ａda",
        "ada_",
        "adа",
        "é",
        "admin",
        "deleted",
        "join-team",
    ],
)
def test_names_that_look_like_others_or_like_the_server_are_refused(session: Session, name: str) -> None:
    """Cyrillic, full width and reserved ones among them."""
    with pytest.raises(InvalidNameError):
        make(session, name)


@pytest.mark.parametrize("name", ["a", "0", "deep-exit-2", "a" * 40])
def test_names_that_can_be_taken(session: Session, name: str) -> None:
    assert make(session, name).name == name


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("short", "at least 10"),
        ("x" * 201, "at most 200"),
        ("1234567890", "commonest"),
        ("QWERTYUIOP", "commonest"),
        ("aaaaaaaaaaab", "different"),
        ("ada-lovelace", "the name"),
        ("Ada-Lovelace1", "the name"),
    ],
)
def test_passwords_that_are_refused_say_why(password: str, reason: str) -> None:
    with pytest.raises(InvalidPasswordError) as caught:
        passwords.hash_password(password, name="ada-lovelace")
    assert any(reason in problem.message for problem in caught.value.problems)


def test_a_password_is_one_however_it_is_typed() -> None:
    kept = passwords.hash_password("cafe\u0301 au lait, twice", name="ada")
    assert passwords.password_matches("café au lait, twice", kept)
    assert not passwords.password_matches("café au lait, once", kept)
    assert not passwords.password_matches("the password of nobody", None)
    assert not passwords.password_matches("x" * 100_000, kept)


def test_sign_up_by_mode(session: Session) -> None:
    def ask(name: str, mode: str, invitation: str | None = None) -> Identity:
        return sign_up.sign_up(session, name=name, password=PASSWORD, mode=mode, invitation=invitation, now=NOW)

    assert ask("grace", "open").name == "grace"
    for mode in ("closed", "invite"):
        with pytest.raises(sign_up.SignUpClosedError):
            ask("edith", mode)
    code = sign_up.invite_account(session, actor="local", now=NOW)
    assert ask("edith", "invite", code).name == "edith"
    with pytest.raises(InvalidLinkError):
        ask("emmy", "invite", code)


def test_a_link_is_for_one_purpose_and_a_while(session: Session) -> None:
    account = make(session, "grace")
    code = issue_link(session, LinkPurpose.RESET, account_id=account.id, now=NOW)
    with pytest.raises(InvalidLinkError):
        use_link(session, LinkPurpose.SIGN_IN, code, now=NOW)
    with pytest.raises(InvalidLinkError):
        use_link(session, LinkPurpose.RESET, code, now=NOW + timedelta(hours=24))
    stored = session.scalars(select(models.OneTimeLink)).one()
    assert code not in str(stored.__dict__)
    assert use_link(session, LinkPurpose.RESET, f" {code}\n", now=NOW).account_id == account.id
    with pytest.raises(InvalidLinkError):
        use_link(session, LinkPurpose.RESET, code, now=NOW)


def test_only_the_local_account_signs_in_by_a_link(session: Session, tmp_path: Any) -> None:
    from app.services.accounts import ensure_local_account

    ensure_local_account(session, tmp_path)
    code = sign_ins.issue_local_link(session, now=NOW)
    local_id = sign_ins.use_local_link(session, code, now=NOW)
    assert session.get_one(models.Account, local_id).name == "local"
    grace = make(session, "grace")
    forged = issue_link(session, LinkPurpose.SIGN_IN, account_id=grace.id, now=NOW)
    with pytest.raises(InvalidLinkError):
        sign_ins.use_local_link(session, forged, now=NOW)


def test_a_reset_ends_every_sign_in_and_every_other_link(session: Session) -> None:
    account = make(session, "grace")
    key = sign_ins.begin_sign_in(session, account.id, browser="b", now=NOW)
    first = sign_up.issue_reset_link(session, "grace", by=None, actor="mail", now=NOW)
    second = sign_up.issue_reset_link(session, "grace", by=None, actor="mail", now=NOW)
    with pytest.raises(InvalidLinkError):
        sign_up.reset_password(session, first, password=PASSWORD + "!", now=NOW)
    assert sign_up.reset_password(session, second, password=PASSWORD + "!", now=NOW) == account.id
    assert sign_ins.find_account_by_key(session, key, now=NOW) is None


def test_an_organiser_resets_members_and_no_one_above_them(session: Session) -> None:
    """Whoever sets the password of an operator is one."""
    organiser = make(session, "olga", role=Role.ORGANISER)
    operator = make(session, "otto", role=Role.OPERATOR)
    make(session, "grace")
    assert sign_up.issue_reset_link(session, "grace", by=organiser, actor="olga", now=NOW)
    assert sign_up.issue_reset_link(session, "olga", by=organiser, actor="olga", now=NOW)
    with pytest.raises(ForbiddenError):
        sign_up.issue_reset_link(session, "otto", by=organiser, actor="olga", now=NOW)
    assert sign_up.issue_reset_link(session, "olga", by=operator, actor="otto", now=NOW)


def test_roles_change_and_are_recorded(session: Session) -> None:
    account = make(session, "grace")
    sign_up.set_role(session, "grace", Role.ORGANISER, actor="local")
    sign_up.set_role(session, "grace", Role.ORGANISER, actor="local")
    found = find_identity(session, account.id)
    assert found is not None
    assert (found.is_organiser, found.is_operator) == (True, False)
    acts = session.scalars(select(models.AuditEvent).where(models.AuditEvent.action == "set_role")).all()
    assert [(act.actor, act.subject, act.details) for act in acts] == [
        ("local", f"account {account.id}", {"from": "member", "to": "organiser"})
    ]
    for name in ("nobody-here", "a\x00b"):
        with pytest.raises(sign_up.UnknownAccountError):
            sign_up.set_role(session, name, Role.MEMBER, actor="local")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit_events SET action = 'x'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "UPDATE audit_events SET actor = 'deleted account 1', action = 'x'",
        "UPDATE audit_events SET actor = 'eve'",
    ],
)
def test_the_audit_log_only_grows(session: Session, change: str) -> None:
    from sqlalchemy import text

    make(session, "grace")
    with pytest.raises(DatabaseError, match="only ever added"):
        session.execute(text(change))


def test_a_sign_in_ends_by_time_by_hand_and_with_the_account(session: Session) -> None:
    account = make(session, "grace")
    keys = [sign_ins.begin_sign_in(session, account.id, browser="b\x00" * 300, now=NOW) for _ in range(3)]
    assert len(set(keys)) == 3
    found = sign_ins.find_account_by_key(session, keys[0], now=NOW)
    assert found is not None
    assert (found.name, len(found.scopes)) == ("grace", 4)
    assert [entry.is_this for entry in sign_ins.list_sign_ins(session, found, now=NOW)].count(True) == 1
    assert sign_ins.find_account_by_key(session, keys[0], now=NOW + timedelta(days=30)) is None
    sign_ins.end_sign_in(session, keys[1])
    assert sign_ins.find_account_by_key(session, keys[1], now=NOW) is None
    sign_ins.end_sign_ins(session, account.id, but=found.sign_in_id)
    assert sign_ins.find_account_by_key(session, keys[2], now=NOW) is None
    assert sign_ins.find_account_by_key(session, keys[0], now=NOW) is not None


# ---- with real connections -------------------------------------------------------------------------------------------


@pytest.fixture
def real_sessions(committed_database: str) -> Iterator[sessionmaker[Session]]:
    """Sessions whose commits are real, on many connections."""
    engine = make_engine(committed_database, pool_size=20)
    yield session_factory(engine)
    engine.dispose()


def race(n: int, act: Callable[[int], Any]) -> list[Any]:
    """Do something n times at once and return what became of each: its result or its error."""
    barrier = threading.Barrier(n)
    results: list[Any] = [None] * n

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = act(number)
        except AppError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_two_who_take_one_name_at_once_one_gets_it(real_sessions: sessionmaker[Session]) -> None:
    def take(_: int) -> str:
        with real_sessions.begin() as session:
            return sign_up.create_account(session, name="grace", password=None).name

    results = race(6, take)
    assert results.count("grace") == 1
    assert sum(isinstance(result, NameTakenError) for result in results) == 5
    with real_sessions() as session:
        assert session.scalar(select(func.count()).select_from(models.Account)) == 1
        assert session.scalar(select(func.count()).select_from(models.Team)) == 1


def test_of_two_who_use_one_link_at_once_one_gets_it(real_sessions: sessionmaker[Session]) -> None:
    with real_sessions.begin() as session:
        code = sign_up.invite_account(session, actor="local", now=NOW)

    def use(number: int) -> str:
        with real_sessions.begin() as session:
            asked = sign_up.sign_up(
                session, name=f"name-{number}", password=None, mode="invite", invitation=code, now=NOW
            )
            return asked.name

    results = race(6, use)
    assert sum(isinstance(result, str) for result in results) == 1
    assert sum(isinstance(result, InvalidLinkError) for result in results) == 5


def test_a_sign_in_takes_name_and_password(real_sessions: sessionmaker[Session]) -> None:
    with real_sessions.begin() as session:
        account = make(session, "grace")
        make(session, "locked", password=None)

    def ask(name: str, password: str, **options: Any) -> int:
        return check_password(
            real_sessions, **{"name": name, "password": password, "address": "10.0.0.1", "now": NOW, **options}
        )

    assert ask("grace", PASSWORD) == account.id
    assert ask(" Grace ", PASSWORD) == account.id
    details = set()
    for name, password in (("grace", "wrong"), ("nobody", PASSWORD), ("locked", ""), ("a\x00b", "x"), ("é", "x")):
        with pytest.raises(WrongPasswordError) as caught:
            ask(name, password)
        details.add(caught.value.detail)
    assert len(details) == 1


def test_an_unknown_name_takes_as_long_as_a_wrong_password(
    real_sessions: sessionmaker[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in comparisons, since times on a busy machine prove nothing: each attempt makes exactly one."""
    with real_sessions.begin() as session:
        make(session, "grace")
        make(session, "locked", password=None)
    compared: list[str] = []
    verify = passwords._hasher.verify

    def count(password: str, kept: str) -> bool:
        compared.append(kept.rpartition("$")[0].rpartition("$")[0])
        return verify(password, kept)

    monkeypatch.setattr(passwords._hasher, "verify", count)
    for name in ("grace", "nobody", "locked"):
        with pytest.raises(WrongPasswordError):
            check_password(real_sessions, name=name, password="wrong", address="10.0.0.2", now=NOW)
    # The parameters of the hash, and with them its cost, are the same.
    assert len(compared) == 3
    assert len(set(compared)) == 1


def test_the_sixth_wrong_password_has_to_wait_and_the_right_one_with_it(real_sessions: sessionmaker[Session]) -> None:
    with real_sessions.begin() as session:
        make(session, "grace")

    def ask(password: str, *, minutes: int = 0, address: str = "10.0.0.1", name: str = "grace") -> int:
        now = NOW + timedelta(minutes=minutes)
        return check_password(real_sessions, name=name, password=password, address=address, now=now)

    for minute in range(5):
        with pytest.raises(WrongPasswordError):
            ask("wrong", minutes=minute)
    for password in ("wrong", PASSWORD):
        with pytest.raises(ThrottledError) as caught:
            ask(password, minutes=5)
        assert 599 <= caught.value.retry_after_seconds <= 601
    # Another address is not held up; the same for names that nobody has.
    assert ask(PASSWORD, minutes=5, address="10.0.0.9")
    for _ in range(5):
        with pytest.raises(WrongPasswordError):
            ask("wrong", name="nobody", address="10.0.0.3")
    with pytest.raises(ThrottledError):
        ask("wrong", name="nobody", address="10.0.0.3")
    # The first attempt leaves the window after 15 minutes; being right forgets the others.
    assert ask(PASSWORD, minutes=16)
    for _ in range(4):
        with pytest.raises(WrongPasswordError):
            ask("wrong", minutes=16)


def test_attempts_at_once_do_not_pass_the_limit_together(real_sessions: sessionmaker[Session]) -> None:
    def guess(number: int) -> int:
        return check_password(real_sessions, name="nobody", password="wrong", address="10.0.0.1", now=NOW)

    results = race(12, guess)
    assert sum(isinstance(result, WrongPasswordError) for result in results) == 5
    assert sum(isinstance(result, ThrottledError) for result in results) == 7


def test_addresses_of_one_network_count_as_one(real_sessions: sessionmaker[Session]) -> None:
    for number in range(5):
        with pytest.raises(WrongPasswordError):
            check_password(real_sessions, name="nobody", password="x", address=f"2001:db8::{number}", now=NOW)
    with pytest.raises(ThrottledError):
        check_password(real_sessions, name="nobody", password="x", address="2001:db8::ffff:1", now=NOW)
