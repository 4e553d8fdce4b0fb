"""An image has its server in the release series that infra/versions.py names."""

from __future__ import annotations

import pytest

from infra import versions
from infra.images import build, contents
from infra.images.catalog import IMAGES
from infra.toolchain.host import HostError


def with_package(version: str) -> contents.Files:
    status = f"Package: mysql-server-core\nStatus: install ok installed\nVersion: {version}\n"
    return {"var/lib/dpkg/status": contents.text(status)}


def test_a_patch_release_of_the_pinned_series_is_accepted() -> None:
    build.check_series(IMAGES["mysql"], with_package(f"{versions.MYSQL}.99-1"))


@pytest.mark.parametrize("version", ["9.70.1-1", "10.0.1-1", "8.4.6-1"])
def test_another_series_of_mysql_is_not_built(version: str) -> None:
    with pytest.raises(HostError, match=f"Debian sid has {version}"):
        build.check_series(IMAGES["mysql"], with_package(version))


def test_an_image_without_the_server_is_not_built() -> None:
    with pytest.raises(HostError, match="no version"):
        build.check_series(IMAGES["mysql"], {})


def test_an_image_of_other_programs_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patch that makes the store flush is not in the folder of the image."""
    before = build._archive(IMAGES["store"])
    assert any(path.suffix == ".patch" for path in build._files(build._TOOLCHAIN))
    monkeypatch.setattr(build, "_TOOLCHAIN", build._TOOLCHAIN[:-1])
    assert build._archive(IMAGES["store"]) != before
