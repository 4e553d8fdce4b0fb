"""Runs Kafka, MariaDB, Valkey and S3 until Ctrl-C and prints their addresses: `make services`."""

import argparse
import signal
import sys
from pathlib import Path

from infra.local_services.process import ServiceError
from infra.local_services.services import KAFKA_VARIABLE, MYSQL_VARIABLE, S3_VARIABLE, Services
from infra.local_services.valkey import REDIS_VARIABLE, redis_missing_reason
from infra.toolchain import go_programs
from infra.toolchain.maven import JarError, folder
from sluicegate.spark.session import JARS_VARIABLE


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
            print(f"MySQL URL:                {services.mysql.url}")
            print(f"Redis URL:                {no_redis or services.redis.url}")
            print("\nTo use them in another terminal:")
            print(f"  export {KAFKA_VARIABLE}={services.kafka.bootstrap}")
            print(f"  export {MYSQL_VARIABLE}={services.mysql.url}")
            if not no_redis:
                print(f"  export {REDIS_VARIABLE}={services.redis.url}")
            print(f"  export {JARS_VARIABLE}={folder('spark')}  # Spark's Kafka connector")
            if no_s3:
                print(f"\nS3 is missing: {no_s3}\n")
            else:
                endpoint = services.store.endpoint
                for name, value in {S3_VARIABLE: endpoint.url, **endpoint.environment()}.items():
                    print(f"  export {name}={value}")
            kept = f"kept in {options.folder}" if options.folder else "removed at the end"
            print(f"\nThe data are {kept}. Ctrl-C stops all servers.", flush=True)
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
