"""Who sent a request: the person that a login proxy names, and whether their own page sent it.

Anyone who reaches the console could send the headers of a login proxy, so they count only with a secret
that the proxy sends too. A page of another site could send a form with the person's cookies, so a form
counts only with the token of the console's own page, from that page.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sluicegate.console.model import Problem

SECRET_HEADER = "x-sluicegate-proxy"  # noqa: S105 - the name of a header
"""The header in which the login proxy sends its secret."""

KUBERNETES_OWN = "system:"
"""What names of Kubernetes' own users and groups start with; they are nobody's login."""

_NOTHING = "nothing was changed"

Headers = Iterable[tuple[str, str]]
"""Names in lower case, with values; a name may occur several times."""


@dataclass(frozen=True)
class Person:
    """A user of the cluster, with those of their groups that count."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoginProxy:
    """What is known of the proxy that asks people for their login.

    Args:
        secret: what it sends in SECRET_HEADER.
        user_header: name of the header with the user.
        groups_header: name of the header with the user's groups, separated by commas.
        groups: those that count; others are not passed on, so that few must be allowed.
    """

    secret: str = field(repr=False)
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    groups: tuple[str, ...] = ()

    def person(self, headers: Headers) -> Person | Problem:
        """Return who is logged in, or why that is not known."""
        given = list(headers)
        sent = _values(given, SECRET_HEADER)
        if len(sent) != 1 or not hmac.compare_digest(sent[0].encode(), self.secret.encode()):
            return Problem(
                "this request did not come through the login proxy, so nobody is logged in",
                _NOTHING,
                "open the address of the proxy, or use the commands on the job's page; the proxy must "
                f"send its secret in the header {SECRET_HEADER}",
            )
        users = _values(given, self.user_header.lower())
        if len(users) != 1 or not users[0] or users[0].startswith(KUBERNETES_OWN):
            return Problem(
                f"the login proxy names no user of its own in the header {self.user_header}",
                _NOTHING,
                "log in at the proxy; check that it sends this header once, with the name of a person",
            )
        member_of = {
            group.strip()
            for value in _values(given, self.groups_header.lower())
            for group in value.split(",")
        }
        return Person(users[0], tuple(group for group in self.groups if group in member_of))


class Forms:
    """Tells forms of the console's own pages from those of other sites."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, person: Person, target: str) -> str:
        """Return what a form of a person contains; it is valid while the console runs.

        Args:
            person: who may send the form.
            target: what the form acts on.
        """
        content = "\0".join([person.user, *person.groups, "", target])
        return hmac.new(self._key, content.encode(), hashlib.sha256).hexdigest()

    def problem(self, headers: Headers, token: str, person: Person, target: str) -> Problem | None:
        """Return why a form does not count, None if it does."""
        if not _is_same_origin(list(headers)):
            return Problem(
                "this form was not sent by a page of the console",
                _NOTHING,
                "open the job's page and act from there; a proxy must pass Host and Origin on unchanged",
            )
        if not hmac.compare_digest(token.encode(), self.token(person, target).encode()):
            return Problem(
                "this form is of another login, or older than the console",
                _NOTHING,
                "open the job's page and act from there",
            )
        return None


def _is_same_origin(headers: list[tuple[str, str]]) -> bool:
    """Return whether a page of the same host sent a request, as Go's CrossOriginProtection decides it.

    Unlike there, a request with neither header is refused: every browser sends one with a form.
    """
    sites, origins = _values(headers, "sec-fetch-site"), _values(headers, "origin")
    if sites:
        return sites == ["same-origin"]
    return len(origins) == 1 and [urlsplit(origins[0]).netloc] == _values(headers, "host")


def _values(headers: list[tuple[str, str]], name: str) -> list[str]:
    return [value.strip() for given, value in headers if given == name]
