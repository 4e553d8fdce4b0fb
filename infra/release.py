"""Make a release: `python -m infra.release VERSION`, or `--build` for the files of the present one.

With a version, the version is written everywhere it stands and the changelog's `Unreleased` section gets
its number and date; commit that and tag it. `--build` puts wheels, chart packages, image archives and
their checksums into `.work/release`. Nothing is uploaded.
"""

import argparse
import datetime as dt
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra import manifests
from infra.chart_docs import helm
from infra.images.build import built
from infra.images.catalog import IMAGES, VERSION
from infra.workspace import CHECKOUT, work_folder

DISTRIBUTIONS: Final = ("jobs", "operators")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
_IMAGE_TAG: Final = r"(sluicegate/[a-z]+:)%s\b"
"""How the version stands in examples, pages and tests."""


class ReleaseError(Exception):
    """The release cannot be made; the message says why."""


def current_version() -> str:
    """Return the version of the library's pyproject.toml."""
    text = (CHECKOUT / "jobs" / "pyproject.toml").read_text(encoding="utf-8")
    version: str = tomllib.loads(text)["project"]["version"]
    return version


def with_version(name: str, text: str, old: str, new: str) -> str:
    """Return a file's text with the new version of Sluicegate, and every other version as it was."""
    quoted = re.escape(old)
    if name.endswith("pyproject.toml"):
        text = re.sub(rf'(?m)^(version = "|    "sluicegate==){quoted}"', rf'\g<1>{new}"', text)
    if name.endswith("Chart.yaml"):
        text = re.sub(rf"(?m)^((?:  )?version: |appVersion: ){quoted}$", rf"\g<1>{new}", text)
        own = rf'(?m)^(- .*version: ){quoted}(, repository: "file://)'
        text = re.sub(own, rf"\g<1>{new}\g<2>", text)
    if name == "infra/images/catalog.py":
        text = re.sub(rf'(?m)^(VERSION: Final = "){quoted}"', rf'\g<1>{new}"', text)
    return re.sub(_IMAGE_TAG % quoted, rf"\g<1>{new}", text)


def with_changelog_section(text: str, version: str, day: dt.date) -> str:
    """Return the changelog with what is unreleased under the version's own heading."""
    head, heading, rest = text.partition("## [Unreleased]\n")
    if not heading or not rest.split("\n## [", 1)[0].strip():
        raise ReleaseError(
            "CHANGELOG.md has nothing under [Unreleased]: describe the release first"
        )
    return f"{head}{heading}\n## [{version}] - {day.isoformat()}\n{rest}"


def set_version(version: str, day: dt.date) -> Iterator[Path]:
    """Write the version everywhere, and yield each file that was changed."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0")
    changelog = CHECKOUT / "CHANGELOG.md"
    dated = with_changelog_section(changelog.read_text(encoding="utf-8"), version, day)
    old = current_version()
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=True, text=True)
    for name in filter(None, done.stdout.split("\0")):
        path = CHECKOUT / name
        if name == "CHANGELOG.md" or path.suffix not in {".toml", ".yaml", ".py", ".md"}:
            continue
        text = path.read_text(encoding="utf-8")
        if (changed := with_version(name, text, old, version)) != text:
            path.write_text(changed, encoding="utf-8")
            yield path
    changelog.write_text(dated, encoding="utf-8")
    yield changelog


def build(folder: Path) -> Iterator[Path]:
    """Put the release's files into a folder and yield each; the last is SHA256SUMS."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in DISTRIBUTIONS:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", str(folder), str(CHECKOUT / name)], check=True)
    helm.vendor()
    for chart in helm.CHARTS:
        helm.run(["package", str(helm.FOLDER / chart), "--destination", str(folder)])
    manifests_file = folder / manifests.FILE
    manifests_file.write_text(manifests.render(manifests.values_of()), encoding="utf-8")
    for image in IMAGES.values():
        if not (found := built(image)):
            raise ReleaseError(f"{image.reference} is not built: run `make images`")
        shutil.copyfile(found.archive, folder / f"sluicegate-{image.name}-{VERSION}.tar")
    files = sorted(folder.iterdir())
    sums = folder / "SHA256SUMS"
    lines = (f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    sums.write_text("".join(lines), encoding="utf-8")
    yield from [*files, sums]


def main(arguments: list[str] | None = None) -> int:
    """Make the release, for people."""
    parser = argparse.ArgumentParser(prog="python -m infra.release", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", help="write this version everywhere, such as 0.2.0")
    what.add_argument("--build", action="store_true", help="build the files of the present version")
    options = parser.parse_args(arguments)
    try:
        if options.build:
            done = list(build(work_folder() / "release"))
            head = f"Version {current_version()} is in {done[-1].parent}:"
            print(head, *(path.name for path in done), sep="\n  ")
            return 0
        for path in set_version(options.version, dt.datetime.now(tz=dt.UTC).date()):
            print(f"wrote {path.relative_to(CHECKOUT)}")
    except (ReleaseError, helm.HelmError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Now run `make lock charts test`, commit, and tag v{options.version}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
