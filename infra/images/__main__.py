"""`python -m infra.images [NAME ...]`: makes images, lists them, says where their archives are."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time

from infra.gobuild import BuildError
from infra.images.build import made, make
from infra.images.catalogue import IMAGES, Image
from infra.images.debian import RootError
from infra.images.wheels import WheelError
from infra.jars import JarError


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(IMAGES)}")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--archives", action="store_true", help="print the archives' paths")
    parser.add_argument("--fresh", action="store_true", help="ask Debian for newer packages first")
    parser.add_argument("--load", action="store_true", help="load them into the docker that runs")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(IMAGES))
    if unknown:
        parser.error(f"unknown image {unknown[0]}; there are: {', '.join(IMAGES)}")
    images = [IMAGES[name] for name in options.names or IMAGES]
    if options.list:
        print("\n".join(image.name for image in images))
        return 0
    try:
        if options.archives:
            return _archives(images)
        return _make(images, fresh=options.fresh, load=options.load)
    except (RootError, WheelError, BuildError, JarError) as error:
        print(error, file=sys.stderr)
        return 1


def _archives(images: list[Image]) -> int:
    missing = [image.name for image in images if made(image) is None]
    if missing:
        print(
            f"Of this checkout these images are not made: {', '.join(missing)}. Run `make images`.",
            file=sys.stderr,
        )
        return 1
    for image in images:
        found = made(image)
        if found:
            print(found.archive)
    return 0


def _make(images: list[Image], *, fresh: bool, load: bool) -> int:
    began = time.monotonic()
    if fresh:
        for image in images:
            for part in image.parts():
                for root in part.roots:
                    root.forget()
    for number, image in enumerate(images, start=1):
        print(f"[{number}/{len(images)}] ", end="", flush=True)
        found = make(image, fresh=fresh)
        print(f"  {image.reference} {found.size / 1e6:.0f} MB {found.identity[:19]}", flush=True)
        if load and not _load(found.archive.as_posix()):
            return 1
    print(f"{len(images)} image(s) in {time.monotonic() - began:.0f} s.")
    return 0


def _load(archive: str) -> bool:
    docker = shutil.which("docker")
    if docker is None:
        print("There is no docker to load into; the archive is made.", file=sys.stderr)
        return False
    done = subprocess.run([docker, "load", "--quiet", "--input", archive], check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
