"""`python -m infra.images [NAME ...]` builds images, lists them, and prints the paths of archives."""

import argparse
import os
import sys
import time
from pathlib import Path

from infra.images.build import build, built
from infra.images.catalog import IMAGES, Image
from infra.local_services import ServiceError
from infra.toolchain.go_build import BuildError
from infra.toolchain.host import HostError, run
from infra.toolchain.maven import JarError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(IMAGES)}")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--archives", action="store_true", help="print the paths of the archives")
    parser.add_argument(
        "--fresh", action="store_true", help="build again with Debian's newest packages"
    )
    parser.add_argument(
        "--load", action="store_true", help="load the archives into the Docker engine"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(IMAGES)):
        parser.error(f"unknown image {unknown[0]}; there are: {', '.join(IMAGES)}")
    os.umask(0o022)  # files keep their modes in an image, whose user is not the one who builds it
    images = [IMAGES[name] for name in options.names or IMAGES]
    if options.list:
        print("\n".join(image.name for image in images))
        return 0
    try:
        if options.archives:
            print("\n".join(map(str, _archives(images))))
        else:
            _build(images, fresh=options.fresh, load=options.load)
    except (HostError, BuildError, JarError, ServiceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _archives(images: list[Image]) -> list[Path]:
    found = {image.name: built(image) for image in images}
    if missing := [name for name, image in found.items() if image is None]:
        raise HostError(
            f"These images are not built from this checkout: {', '.join(missing)}. Run `make images`."
        )
    return [image.archive for image in found.values() if image]


def _build(images: list[Image], *, fresh: bool, load: bool) -> None:
    began = time.monotonic()
    for number, image in enumerate(images, start=1):
        print(f"[{number}/{len(images)}] ", end="", flush=True)
        result = build(image, fresh=fresh)
        print(f"  {image.reference} {result.size / 1e6:.0f} MB {result.identity[:19]}", flush=True)
        if load:
            run(
                ["docker", "load", "--quiet", "--input", result.archive],
                what=f"{result.archive} could not be loaded into the Docker engine",
                patience_s=600.0,
            )
    print(f"{len(images)} image(s) in {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())
