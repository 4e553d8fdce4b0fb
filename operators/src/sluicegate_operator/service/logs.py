"""Logs as text for people or as JSON for machines. No secret is ever a part of a message.

Not here: what is logged. Called by `__main__`.
"""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

TEXT, JSON = "text", "json"


def set_up(form: str, level: str) -> None:
    """Log to standard error.

    Args:
        form: 'text' or 'json': one object a line, with time, level, logger and message.
        level: the least that is logged, such as 'INFO'.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == JSON:
        fields = "%(asctime)s %(levelname)s %(name)s %(message)s"
        renamed = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(JsonFormatter(fields, rename_fields=renamed))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
