"""Keeps a Kafka, a MariaDB and a Valkey up until Ctrl-C and prints how to reach them: `make services`."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.embedded.process import ServiceError
from infra.embedded.redis import REDIS_VARIABLE, redis_gap
from infra.embedded.services import KAFKA_VARIABLE, MYSQL_VARIABLE, Services
from infra.jars import JarError, folder
from sluicegate.spark.session import JARS_VARIABLE


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m infra.embedded", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the data here (default: throw away)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` stops the servers in order too
    print("Starting Kafka, MariaDB and Valkey ...", flush=True)
    try:
        with Services(options.folder) as services:
            print(f"Kafka bootstrap servers:  {services.kafka.bootstrap}")
            print(f"MySQL URL:                {services.mysql.url}")
            gap = redis_gap()  # only lookups need one: the others are of use without it
            print(f"Redis URL:                {gap or services.redis.url}")
            print("\nTo use them in another terminal:")
            print(f"  export {KAFKA_VARIABLE}={services.kafka.bootstrap}")
            print(f"  export {MYSQL_VARIABLE}={services.mysql.url}")
            if not gap:
                print(f"  export {REDIS_VARIABLE}={services.redis.url}")
            print(f"  export {JARS_VARIABLE}={folder('spark')}  # Spark's Kafka connector")
            kept = f"kept in {options.folder}" if options.folder else "thrown away at the end"
            print(f"\nThe data are {kept}. Ctrl-C stops them.", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        print("\nStopped.")
    except (ServiceError, JarError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
