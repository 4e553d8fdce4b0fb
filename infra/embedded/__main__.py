"""Keeps Kafka, MariaDB, Valkey and S3 up until Ctrl-C and prints how to reach them: `make services`."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra import versitygw
from infra.embedded.process import ServiceError
from infra.embedded.redis import REDIS_VARIABLE, redis_gap
from infra.embedded.services import KAFKA_VARIABLE, MYSQL_VARIABLE, S3_VARIABLE, Services
from infra.jars import JarError, folder
from sluicegate.spark.session import JARS_VARIABLE


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _s3(services: Services, gap: str) -> list[tuple[str, str]]:
    """Return the variables by which S3 is reached, or say why there is none."""
    if gap:
        print(f"\nThere is no S3: {gap}\n")
        return []
    endpoint = services.store.endpoint
    return [(S3_VARIABLE, endpoint.url), *endpoint.environment().items()]


def main() -> int:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m infra.embedded", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the data here (default: throw away)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` stops the servers in order too
    no_redis, no_s3 = redis_gap(), versitygw.gap()  # only some jobs need one
    names = ["Kafka", "MariaDB", *([] if no_redis else ["Valkey"]), *([] if no_s3 else ["S3"])]
    print(f"Starting {', '.join(names)} ...", flush=True)
    try:
        with Services(options.folder, s3=not no_s3) as services:
            print(f"Kafka bootstrap servers:  {services.kafka.bootstrap}")
            print(f"MySQL URL:                {services.mysql.url}")
            print(f"Redis URL:                {no_redis or services.redis.url}")
            print("\nTo use them in another terminal:")
            print(f"  export {KAFKA_VARIABLE}={services.kafka.bootstrap}")
            print(f"  export {MYSQL_VARIABLE}={services.mysql.url}")
            if not no_redis:
                print(f"  export {REDIS_VARIABLE}={services.redis.url}")
            print(f"  export {JARS_VARIABLE}={folder('spark')}  # Spark's Kafka connector")
            for name, value in _s3(services, no_s3):
                print(f"  export {name}={value}")
            kept = f"kept in {options.folder}" if options.folder else "thrown away at the end"
            print(f"\nThe data are {kept}. Ctrl-C stops all.", flush=True)
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
