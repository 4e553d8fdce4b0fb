"""Rules that every Dockerfile follows."""

from __future__ import annotations

import re

import pytest

from infra.images.catalog import IMAGES, SCRIPTS, Image


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> Image:
    return IMAGES[request.param]


def _text(image: Image) -> str:
    return (image.recipe / "Dockerfile").read_text(encoding="utf-8")


def test_it_is_based_on_an_argument_whose_default_is_the_stock_image(image: Image) -> None:
    lines = _text(image).splitlines()
    assert f"ARG BASE=debian:{image.suite}-slim" in lines
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM ${BASE} AS content",
        "FROM content",
    ]


def test_it_needs_no_other_image_from_a_registry(image: Image) -> None:
    assert not re.search(r"^#\s*syntax=|--from=", _text(image), re.MULTILINE)


def test_it_runs_as_a_numeric_user(image: Image) -> None:
    assert re.findall(r"^USER (.*)$", _text(image), re.MULTILINE) == ["10001:10001"]


def test_settings_of_apt_are_a_secret(image: Image) -> None:
    assert "--mount=type=secret,id=apt.conf" in _text(image)
    assert "/run/secrets/apt.conf" in (SCRIPTS / "setup-debian").read_text(encoding="utf-8")
