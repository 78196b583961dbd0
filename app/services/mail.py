"""Mails: sent at once through the configured server, or not at all where there is none."""

from __future__ import annotations

import logging
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import parse_qs, unquote, urlsplit

from app.config import Config

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 20.0
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def send_mail(config: Config, *, to: str, subject: str, text: str) -> None:
    """Send a mail; where that fails the log says so, since nobody waits for it any more.

    The library refuses an address or subject with a line break, which would add headers.
    """
    assert config.smtp_url is not None
    server = urlsplit(config.smtp_url)
    sender = parse_qs(server.query)["from"][0]
    try:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = sender, to, subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=sender.rpartition("@")[2])
        message.set_content(text)
        _deliver(message, scheme=server.scheme, host=server.hostname or "", port=server.port, login=_read_login(config))
    except (OSError, smtplib.SMTPException, ValueError) as exc:
        # Neither the address nor what the mail says: a link in a log is as good as a password.
        logger.error("a mail could not be sent: %s", type(exc).__name__)


def _read_login(config: Config) -> tuple[str, str] | None:
    server = urlsplit(config.smtp_url or "")
    return (unquote(server.username), unquote(server.password or "")) if server.username else None


def _deliver(message: EmailMessage, *, scheme: str, host: str, port: int | None, login: tuple[str, str] | None) -> None:
    context = ssl.create_default_context()
    if scheme == "smtps":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(host, port or 465, timeout=TIMEOUT_SECONDS, context=context)
    else:
        connection = smtplib.SMTP(host, port or 587, timeout=TIMEOUT_SECONDS)
    with connection:
        # A server on this machine may do without; over a network the link in the mail is never sent in the clear.
        if scheme == "smtp" and host not in LOCAL_HOSTS:
            connection.starttls(context=context)
        if login is not None:
            connection.login(*login)
        connection.send_message(message)
