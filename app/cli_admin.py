"""The commands `otboard admin …`: what organisers and operators do on the machine itself."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result
from app.cli_rescore import rescore_app

if TYPE_CHECKING:
    from app.services.links import LinkPurpose

admin_app = typer.Typer(no_args_is_help=True, help="Organise and operate this server.")
admin_app.add_typer(rescore_app, name="rescore")

ROLES = ("member", "organiser", "operator")
DEFAULT_SERVER = "http://127.0.0.1:8000"

AccountName = Annotated[str, typer.Argument(metavar="NAME", help="The account's name.", show_default=False)]
RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help=" or ".join(ROLES) + ".", show_default=False)]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The address that the link leads to.",
        show_default=f"OTBOARD_PUBLIC_URL, else {DEFAULT_SERVER}",
    ),
]


@admin_app.command("create-account")
def create_account(
    name: AccountName,
    role: Annotated[str, typer.Option(metavar="ROLE", help=" or ".join(ROLES) + ".")] = "member",
    server: ServerOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Make an account, the first organiser's say, and print a link that sets its password."""
    from app.cli_database import open_session
    from app.services import sign_up
    from app.services.audit import COMMAND_LINE
    from app.services.links import LinkPurpose

    chosen = _read_role(role)
    with open_session() as session:
        sign_up.create_account(session, name=name, password=None, role=chosen, actor=COMMAND_LINE)
        code = sign_up.issue_reset_link(session, name, by=None, actor=COMMAND_LINE, now=datetime.now(UTC))
    _print({"name": name, "role": role, "link": _address(server, LinkPurpose.RESET, code)}, output_format)


@admin_app.command("set-role")
def set_role(name: AccountName, role: RoleArgument, output_format: FormatOption = Format.TABLE) -> None:
    """Make an account a member, an organiser or an operator."""
    from app.cli_database import open_session
    from app.services import sign_up
    from app.services.audit import COMMAND_LINE

    chosen = _read_role(role)
    with open_session() as session:
        sign_up.set_role(session, name, chosen, actor=COMMAND_LINE)
    _print({"name": name, "role": role}, output_format)


@admin_app.command("reset-link")
def reset_link(name: AccountName, server: ServerOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Print a link that sets a new password for an account: once, within 24 hours."""
    from app.cli_database import open_session
    from app.services import sign_up
    from app.services.audit import COMMAND_LINE
    from app.services.links import LinkPurpose

    with open_session() as session:
        code = sign_up.issue_reset_link(session, name, by=None, actor=COMMAND_LINE, now=datetime.now(UTC))
    _print({"name": name, "link": _address(server, LinkPurpose.RESET, code)}, output_format)


@admin_app.command("invite")
def invite(server: ServerOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Print an invitation for one account to sign up, within seven days."""
    from app.cli_database import open_session
    from app.services import sign_up
    from app.services.audit import COMMAND_LINE
    from app.services.links import LinkPurpose

    with open_session() as session:
        code = sign_up.invite_account(session, actor=COMMAND_LINE, now=datetime.now(UTC))
    _print({"link": _address(server, LinkPurpose.SIGN_UP, code)}, output_format)


@admin_app.command("sign-in-link")
def sign_in_link(server: ServerOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Print a link that signs the owner of this machine in: once, within 15 minutes."""
    from app.cli_database import open_session
    from app.config import load_config
    from app.services.accounts import ensure_local_account
    from app.services.links import LinkPurpose
    from app.services.sign_ins import issue_local_link

    with open_session() as session:
        ensure_local_account(session, load_config().data_dir)
        code = issue_local_link(session, now=datetime.now(UTC))
    _print({"link": _address(server, LinkPurpose.SIGN_IN, code)}, output_format)


@admin_app.command("list-accounts")
def list_accounts(output_format: FormatOption = Format.TABLE) -> None:
    """List every account: role, teams, how it signs in, tokens, last use."""
    from app.cli_database import open_session
    from app.services import account_lists

    with open_session() as session:
        documents: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = account_lists.list_accounts(session, limit=200, cursor=cursor)
            documents += [_describe(account) for account in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
    print_result(documents, output_format, rows=lambda: _tabulate(documents))


@admin_app.command("revoke-tokens")
def revoke_tokens(name: AccountName, output_format: FormatOption = Format.TABLE) -> None:
    """End every token of an account, and sign every browser of it out."""
    from app.cli_database import open_session
    from app.services.audit import COMMAND_LINE
    from app.services.sign_ins import end_sign_ins
    from app.services.sign_up import get_account
    from app.services.tokens import revoke_all_tokens

    with open_session() as session:
        account = get_account(session, name)
        n_tokens = revoke_all_tokens(session, account.id, actor=COMMAND_LINE)
        end_sign_ins(session, account.id)
    _print({"name": name, "revoked_tokens": n_tokens}, output_format)


def _read_role(role: str) -> Any:
    from app.services.accounts import Role

    if role not in ROLES:
        raise typer.BadParameter(f"use {', '.join(ROLES)}", param_hint="ROLE")
    return Role(role)


def _address(server: str | None, purpose: LinkPurpose, code: str) -> str:
    from app.config import load_config
    from app.services.links import link_address

    return link_address(server or load_config().public_url or DEFAULT_SERVER, purpose, code)


def _describe(account: Any) -> dict[str, Any]:
    described = asdict(account)
    for name in ("created_at", "last_used_at"):
        described[name] = described[name] and described[name].isoformat()
    return {**described, "role": str(account.role), "teams": list(account.teams)}


def _tabulate(documents: list[dict[str, Any]]) -> Rows:
    rows = [tuple({**document, "teams": " ".join(document["teams"])}.values()) for document in documents]
    return Rows(tuple(documents[0]) if documents else ("name",), rows)


def _print(document: dict[str, Any], output_format: Format) -> None:
    from app.cli_tables import list_fields

    print_result(document, output_format, rows=lambda: list_fields(document))
