"""The SBOM of an image: it lists the packages that its files contain, and is reproducible."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from infra.images import sbom
from infra.images.contents import Files, text

FILES: Files = {
    "var/lib/dpkg/status": text(
        "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9+deb12u14\n"
    ),
    "usr/lib/x/Tool_Kit-1.0.dist-info/METADATA": text(
        "Metadata-Version: 2.4\nName: Tool_Kit\nVersion: 1.0\nLicense-Expression: MIT\n"
    ),
    "opt/libs/kafka_2.13-4.2.2.jar": text("known by infra/toolchain/jars.lock"),
    "opt/libs/other-tool-1.2.jar": text("not locked"),
}


def _components() -> dict[str, dict[str, Any]]:
    document = json.loads(sbom.document("sluicegate/tool", "1", FILES))
    return {component["purl"]: component for component in document["components"]}


def test_the_same_files_give_the_same_sbom() -> None:
    reordered = dict(reversed(FILES.items()))
    assert sbom.document("a", "1", FILES) == sbom.document("a", "1", reordered)


def test_it_names_debian_packages_python_distributions_and_jars() -> None:
    assert set(_components()) == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14",
        "pkg:maven/org.apache.kafka/kafka_2.13@4.2.2",
        "pkg:maven/other-tool@1.2",
        "pkg:pypi/tool-kit@1.0",
    }


def test_a_distribution_has_its_licence_and_a_jar_its_digest() -> None:
    components = _components()
    assert components["pkg:pypi/tool-kit@1.0"]["licenses"] == [{"license": {"id": "MIT"}}]
    (digest,) = components["pkg:maven/other-tool@1.2"]["hashes"]
    assert digest == {"alg": "SHA-256", "content": hashlib.sha256(b"not locked").hexdigest()}


def test_it_describes_the_image() -> None:
    document = json.loads(sbom.document("sluicegate/tool", "1", FILES))
    assert document["specVersion"] == "1.6"
    assert document["metadata"]["component"]["name"] == "sluicegate/tool"
    assert document["metadata"]["component"]["version"] == "1"
    assert document["dependencies"][-1]["ref"]


def test_only_installed_packages_are_listed() -> None:
    status = (
        "Package: tool\nStatus: install ok installed\nVersion: 1:2-3\nDescription: a\n b: c\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    assert sbom.packages({"var/lib/dpkg/status": text(status)}) == [("tool", "1:2-3")]
