"""The base image that is chosen, and the Python packages that the images need."""

from __future__ import annotations

import pytest

from infra.images import buildkit, python_packages
from infra.images.buildkit import BASE_VARIABLE
from infra.images.catalog import REQUIREMENTS
from infra.offline.kind_node import docker_engine


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine with neither mmdebstrap nor a container engine."""
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    monkeypatch.setattr(buildkit, "where", lambda _: None)
    monkeypatch.setattr(docker_engine, "version", lambda: "")
    monkeypatch.setattr(docker_engine, "ours", lambda: None)


def test_without_an_engine_mmdebstrap_is_chosen() -> None:
    assert buildkit.chosen_base() == "mmdebstrap"


def test_with_the_machines_engine_the_stock_image_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(docker_engine, "version", lambda: "27.0")
    assert buildkit.chosen_base() == "stock"
    assert buildkit.base("stock", "bookworm", fresh=False) == "debian:bookworm-slim"
    assert buildkit.base("stock", "sid", fresh=False) == "debian:sid-slim"


def test_with_an_engine_started_by_us_mmdebstrap_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(docker_engine, "version", lambda: "20.10.24")
    monkeypatch.setattr(docker_engine, "ours", lambda: 4711)
    assert buildkit.chosen_base() == "mmdebstrap"


def test_a_named_base_is_used_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BASE_VARIABLE, "registry.example/debian:bookworm")
    base = buildkit.chosen_base()
    assert buildkit.base(base, "bookworm", fresh=False) == "registry.example/debian:bookworm"


def test_requirements_match_the_python_and_system_of_the_images() -> None:
    pins = list(python_packages.requirements(REQUIREMENTS / "runtime.txt"))
    names = [name for name, _ in pins]
    assert names.count("numpy") == 1
    assert "colorama" not in names
    numpy = next(block for name, block in pins if name == "numpy")
    assert numpy.startswith("numpy==2.4.6 \\\n    --hash=sha256:")
