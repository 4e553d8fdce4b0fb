"""A replica of MySQL that lacks the last epochs: a copy of the server's files.

The server is paused while they are copied, so the copy is consistent, as after a crash, and a server that
starts on it recovers. A replica that applies the binary log ends at a transaction too.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from infra.local_services.mariadb import MariaDB
from tests.robustness.failpoints.database import copy_files

_IN_FLIGHT_S: Final = 0.2
"""In which the kernel completes what the server has written."""


class Replica:
    """What takes the server's place, at the same address.

    Args:
        primary: the server.
    """

    def __init__(self, primary: MariaDB) -> None:
        self._primary = primary
        self._data = primary.data.with_name("replica")

    def catch_up(self) -> None:
        """Get all that the server has now, and nothing that it gets later."""
        shutil.rmtree(self._data, ignore_errors=True)
        pid = self._primary.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(_IN_FLIGHT_S)
            copy_files(self._primary, self._data)
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def promoted(self) -> Iterator[None]:
        """Kill the server; at the end of the block the replica is the server, and there is none any more."""
        self._primary.kill()
        yield
        self.take_place()
        self._primary.start()

    def take_place(self) -> None:
        """Replace the files of the server, which is killed."""
        shutil.rmtree(self._primary.data)
        self._data.rename(self._primary.data)
