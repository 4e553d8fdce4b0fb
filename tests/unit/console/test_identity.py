"""Who a login proxy says a person is, and when nobody is believed."""

from __future__ import annotations

import pytest

from sluicegate.console.identity import Forms, LoginProxy, Person
from sluicegate.console.model import Problem

SECRET = "the proxy's own secret"
PROXY = LoginProxy(SECRET, groups=("oncall", "readers"))
SENT = ("x-sluicegate-proxy", SECRET)
ANN = ("x-forwarded-user", "ann")


def test_only_the_groups_that_count_are_passed_on() -> None:
    headers = [
        SENT,
        ANN,
        ("x-forwarded-groups", "staff, oncall"),
        ("x-forwarded-groups", "x,readers"),
    ]
    assert PROXY.person(headers) == Person("ann", ("oncall", "readers"))
    assert PROXY.person([SENT, ANN, ("x-forwarded-groups", "system:masters")]) == Person("ann")


def test_the_headers_may_have_other_names() -> None:
    proxy = LoginProxy(SECRET, "Remote-User", "Remote-Groups", ("oncall",))
    found = proxy.person([SENT, ("remote-user", "ann"), ("remote-groups", "oncall"), ANN])
    assert found == Person("ann", ("oncall",))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [ANN],
        [ANN, ("x-sluicegate-proxy", "")],
        [ANN, SENT, SENT],
        [SENT],
        [SENT, ("x-forwarded-user", "")],
        [SENT, ANN, ("x-forwarded-user", "root")],
        [SENT, ("x-forwarded-user", "system:admin")],
    ],
)
def test_a_request_that_names_nobody_for_certain_is_nobodys(headers: list[tuple[str, str]]) -> None:
    """A header that occurs twice may have been added to that of the proxy."""
    assert isinstance(PROXY.person(headers), Problem)


def test_the_secret_is_in_no_text_of_the_proxy() -> None:
    assert SECRET not in repr(PROXY)


def test_a_token_is_of_one_person_one_job_and_one_console() -> None:
    forms, ann = Forms(), Person("ann", ("oncall",))
    headers = [("sec-fetch-site", "same-origin")]
    assert forms.problem(headers, forms.token(ann, "clicks"), ann, "clicks") is None
    for token in (
        forms.token(ann, "other"),
        forms.token(Person("ann"), "clicks"),
        Forms().token(ann, "clicks"),
    ):
        assert forms.problem(headers, token, ann, "clicks") is not None
