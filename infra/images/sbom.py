"""The SBOM of an image: a CycloneDX document that lists its components and is stored in the image.

Licenses of Debian packages are in the copyright files of the image, those of jars in the jars.
"""

import email.parser
import hashlib
import re
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from infra.images.contents import Content, Files
from infra.toolchain import go_build, maven

FOLDER: Final = "usr/share/sbom"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "sluicegate.dev")
_JAR: Final = re.compile(r"^(?P<name>.+?)-(?P<version>\d[^/]*)\.jar$")
_PROGRAM: Final = 0o111
_ELF: Final = b"\x7fELF"
_GO_MINIMUM: Final = 10_000_000
"""In bytes. Every Go program of an image is larger, and few other programs are."""

_TIMESTAMP: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Of every document, so that the same files have the same document."""


def path_of(image: str) -> str:
    """Return the path of an image's document."""
    return f"{FOLDER}/{image}.cdx.json"


def document(image: str, version: str, files: Files) -> str:
    """Return the document of an image from its other files. The same files have the same document."""
    bom = Bom()
    bom.metadata.timestamp = _TIMESTAMP
    whole = Component(
        name=image, version=version, type=ComponentType.CONTAINER, bom_ref=f"{image}@{version}"
    )
    bom.metadata.component = whole
    debian = (_component(PackageURL("deb", "debian", *package)) for package in packages(files))
    found = [*debian, *_python(files), *_jars(files), *_go(files)]
    for component in {c.bom_ref.value: c for c in found}.values():
        bom.components.add(component)
    bom.register_dependency(whole, bom.components)
    names = sorted(str(component.bom_ref.value) for component in found)
    bom.serial_number = uuid.uuid5(_NAMESPACE, "\n".join([image, version, *names]))
    made = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return made.output_as_string(indent=1) + "\n"


def _component(purl: PackageURL, **more: object) -> Component:
    named_by_path = purl.type == "golang" and purl.namespace
    return Component(
        name=f"{purl.namespace}/{purl.name}" if named_by_path else purl.name,
        version=purl.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        **more,  # type: ignore[arg-type]
    )


def _python(files: Files) -> Iterator[Component]:
    for path, entry in sorted(files.items()):
        if not path.endswith(".dist-info/METADATA") or entry.content is None:
            continue
        words = email.parser.Parser().parsestr(entry.content.read().decode(), headersonly=True)
        name = re.sub(r"[-_.]+", "-", str(words["Name"])).lower()
        named = words["License-Expression"] or words["License"] or ""
        short = named if named and "\n" not in named and len(named) < 100 else ""  # noqa: PLR2004 - a name, not a whole text
        licenses = [LicenseFactory().make_from_string(short)] if short else []
        yield _component(PackageURL("pypi", None, name, str(words["Version"])), licenses=licenses)


def _jars(files: Files) -> Iterator[Component]:
    groups = {jar.file: jar for jars_ in maven.read_lock().values() for jar in jars_}
    for path, entry in sorted(files.items()):
        name = PurePosixPath(path).name
        if not name.endswith(".jar") or entry.content is None:
            continue
        known, parsed = groups.get(name), _JAR.match(name)
        if known:
            purl = PackageURL("maven", known.group, known.name, known.version)
        elif parsed:
            purl = PackageURL("maven", None, parsed["name"], parsed["version"])
        else:
            purl = PackageURL("maven", None, name.removesuffix(".jar"))
        digest = hashlib.sha256(entry.content.read()).hexdigest()
        yield _component(purl, hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)])


def _go(files: Files) -> Iterator[Component]:
    for _, entry in sorted(files.items()):
        content = entry.content
        if content and entry.mode & _PROGRAM and content.length >= _GO_MINIMUM:
            for module, version in _modules(content):
                namespace, _, name = module.rpartition("/")
                yield _component(PackageURL("golang", namespace or None, name, version))


def _modules(content: Content) -> Iterator[tuple[str, str]]:
    with content.open() as stream:
        if stream.read(len(_ELF)) != _ELF:
            return
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "program"
        program.write_bytes(content.read())
        argv = [str(go_build.go()), "version", "-m", str(program)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return  # not a Go program
    for line in done.stdout.splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) > 3 and fields[1] in ("mod", "dep"):  # noqa: PLR2004 - kind, module, version
            yield fields[2], fields[3]
    toolchain = re.search(r": go(\S+)", done.stdout.splitlines()[0])
    if toolchain:
        yield "stdlib", toolchain[1]


def packages(files: Files) -> list[tuple[str, str]]:
    """Return name and version of each installed Debian package, from dpkg's database."""
    entry = files.get("var/lib/dpkg/status")
    status = entry.content.read().decode() if entry and entry.content else ""
    found = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append((fields["Package"], fields["Version"]))
    return sorted(found)
