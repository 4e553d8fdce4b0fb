"""Runs Kafka, MariaDB, Valkey and S3 until Ctrl-C, and writes their addresses to a file: `make services`."""

import argparse
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.local_services.process import ServiceError
from infra.local_services.services import KAFKA_VARIABLE, MYSQL_VARIABLE, S3_VARIABLE, Services
from infra.local_services.valkey import REDIS_VARIABLE, redis_missing_reason
from infra.toolchain import go_programs
from infra.toolchain.maven import JarError, folder
from infra.workspace import work_folder
from sluicegate.spark.conf import JARS_VARIABLE

VARIABLES: Final = work_folder() / "services.env"
"""Export lines with passwords; a terminal, and its log, would keep them."""


def write_variables(file: Path, variables: Mapping[str, str]) -> None:
    """Write export lines for a shell to a file that only its owner can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    file.write_text("".join(lines), encoding="utf-8")


def main() -> int:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m infra.local_services", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="keep the data in this folder (default: remove them at the end)"
    )
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # so that `kill` stops the servers in order too
    # only some jobs need one
    no_redis, no_s3 = redis_missing_reason(), go_programs.VERSITYGW.missing_reason()
    names = ["Kafka", "MariaDB", *([] if no_redis else ["Valkey"]), *([] if no_s3 else ["S3"])]
    print(f"Starting {', '.join(names)} ...", flush=True)
    try:
        with Services(options.folder, s3=not no_s3) as services:
            print(f"Kafka bootstrap servers:  {services.kafka.bootstrap}")
            print(f"MySQL:                    {services.mysql!r}")
            print(f"Redis:                    {no_redis or repr(services.redis)}")
            print(f"S3:                       {no_s3 or services.store.endpoint.url}")
            variables = {
                KAFKA_VARIABLE: services.kafka.bootstrap,
                MYSQL_VARIABLE: services.mysql.url,
                JARS_VARIABLE: str(folder("spark")),  # Spark's Kafka connector
            }
            if not no_redis:
                variables[REDIS_VARIABLE] = services.redis.url
            if not no_s3:
                endpoint = services.store.endpoint
                variables |= {S3_VARIABLE: endpoint.url, **endpoint.environment()}
            write_variables(VARIABLES, variables)
            print(f"\nTo use them in another terminal:\n  . {VARIABLES}")
            kept = f"kept in {options.folder}" if options.folder else "removed at the end"
            print(f"\nThe data are {kept}. Ctrl-C stops all servers.", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        print("\nStopped.")
        VARIABLES.unlink(missing_ok=True)
    except (ServiceError, JarError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
