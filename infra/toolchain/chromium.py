"""The system's Chromium, in which tests open the pages of the console.

Prints its path. On Debian it is installed if this is root, as other Debian packages of the tests are.
`--optional` prints why there is none and exits with 0.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from infra.toolchain import host

VARIABLE: Final = "SLUICEGATE_CHROMIUM"
"""Names a Chromium or Chrome that is not on the PATH."""

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def path() -> str:
    """Return the browser's path, empty if this machine has none."""
    named = os.environ.get(VARIABLE, "")
    return named or next((found for found in map(shutil.which, _NAMES) if found), "")


def missing_reason() -> str:
    """Return why no page can be opened and what to do, empty if there is a browser."""
    if path():
        return ""
    return (
        "No Chromium is installed (on Debian: apt-get install chromium). Run `make browser` as root, or "
        f"set {VARIABLE} to the path of a Chromium or Chrome."
    )


def main(arguments: list[str]) -> int:
    """Install the browser if it is missing and can be; return 1 if it is missing then."""
    if not path() and host.may_install():
        try:
            host.need({"chromium": "chromium"})
        except host.HostError as error:
            sys.stderr.write(f"{error}\n")
    sys.stderr.write(f"{missing_reason()}\n" if missing_reason() else "")
    sys.stdout.write(f"{path()}\n" if path() else "")
    return 0 if path() or "--optional" in arguments else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
