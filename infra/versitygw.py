"""versitygw, the S3 server of tests and of a laptop, built from its Go module (`gobuild`).

Not here: running it (infra.embedded.s3). Called by the Makefile and, for the path, by infra.embedded.
"""

import sys
from pathlib import Path
from typing import Final

from infra.gobuild import BuildError, Program
from infra.versions import VERSITYGW, VERSITYGW_SUM

OFF_VARIABLE: Final = "SLUICEGATE_NO_S3"
"""Set it to leave S3 out, on a machine where building takes too long."""

SERVER: Final = Program(
    name="versitygw",
    module="github.com/versity/versitygw",
    version=VERSITYGW,
    checksum=VERSITYGW_SUM,
    package="./cmd/versitygw",
    without=OFF_VARIABLE,
)


def binary() -> Path:
    """Return where the server of this version is, or will be."""
    return SERVER.binary


def gap() -> str:
    """Return why there is no server here, or an empty string."""
    return SERVER.gap()


def build() -> Path:
    """Build unless it is there; return the binary.

    Raises:
        BuildError: see `gobuild.Program.build`.
    """
    return SERVER.build()


def main() -> int:
    """Build; a machine that cannot goes on without S3."""
    try:
        build()
    except BuildError as error:
        print(f"{error}\nGoing on without an S3 server.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
