"""Why the API server refused a driver's pod, as one CamelCase word for `status.startup`.

Only the message tells the reasons of admission apart: each of them is a 403 Forbidden.
"""

from __future__ import annotations

from http import HTTPStatus

from sluicegate.errors import SluicegateError
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.reconcile.observed import NAMESPACE_TERMINATING, Refusal

NAME_TAKEN = "NameTaken"
"""Reason of the error for a pod whose name belongs to another job."""

_REASONS_BY_MESSAGE = (
    ("because it is being terminated", NAMESPACE_TERMINATING),
    ("failed calling webhook", "WebhookFailed"),
    ("admission webhook", "WebhookDenied"),
    ("denied request: ", "AdmissionPolicyDenied"),
    ("exceeded quota", "QuotaExceeded"),
    ("failed quota", "QuotaExceeded"),
    ("violates podsecurity", "PodSecurityViolation"),
    ("error looking up service account", "ServiceAccountMissing"),
)
"""Part of the server's message, in lower case, and the reason that it means."""

_REASONS_BY_STATUS = {
    HTTPStatus.BAD_REQUEST: "PodInvalid",
    HTTPStatus.UNPROCESSABLE_ENTITY: "PodInvalid",
    HTTPStatus.FORBIDDEN: "PodForbidden",
    HTTPStatus.NOT_FOUND: "NamespaceMissing",
}


def refusal_of(error: ApiError | SluicegateError, attempt: int, request: int) -> Refusal | None:
    """Return why a driver's pod was not created; None: the API server may accept the same request soon.

    It is overloaded, restarting or did not answer.
    """
    reason = _reason(error)
    message = error.message if isinstance(error, ApiError) else f"{error.what}; {error.do}"
    return Refusal(attempt, request, reason, message) if reason else None


def _reason(error: ApiError | SluicegateError) -> str:
    if not isinstance(error, ApiError):
        return type(error).__name__
    if error.reason == NAME_TAKEN:
        return NAME_TAKEN
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS):
        return ""
    text = error.message.lower()
    by_message = next((reason for part, reason in _REASONS_BY_MESSAGE if part in text), "")
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or not error.status:
        return by_message if error.status else ""
    return by_message or _REASONS_BY_STATUS.get(HTTPStatus(error.status), "PodRefused")
