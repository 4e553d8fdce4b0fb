"""The server of the image mysql, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.images.mysql_image import MySQLImage, unpack_or_skip


@pytest.fixture(scope="session")
def mysql_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQLImage]:
    """Yield a running server of the image."""
    root = unpack_or_skip(tmp_path_factory.mktemp("image"))
    server = MySQLImage(tmp_path_factory.mktemp("mysql"), root)
    server.start()
    yield server
    server.stop()
