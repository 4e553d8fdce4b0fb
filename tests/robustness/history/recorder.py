"""Writes the history of a long run: one JSON object a line, flushed, so that a killed run leaves it too."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]
"""One line: `at_s` since the start of the run, `event`, and the fields of that event."""


class Recorder:
    """The history file of a run."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def now_s(self) -> float:
        """Return the seconds since the start of the run."""
        return time.monotonic() - self._began

    def add(self, event: str, **fields: object) -> None:
        """Write an event."""
        line = json.dumps({"at_s": round(self.now_s(), 3), "event": event, **fields})
        with self._lock:
            self._file.write(f"{line}\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(file: Path) -> list[Event]:
    """Return the events of a history; a last line that was cut off is omitted."""
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]
