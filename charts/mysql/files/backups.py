"""Keep dumps of MySQL on an object store or in a folder: `python backups.py store|fetch|list [FILE]`.

store: uploads the dump FILE, reads it back, and then removes the oldest backups beyond BACKUP_KEEP.
fetch: downloads the backup BACKUP_NAME (`latest`: the newest one) to FILE.
list: prints the complete backups with the position in the binary log that each was taken at.

BACKUP_URL is s3://BUCKET/PREFIX, with the usual AWS_* variables, or the path of a folder. A backup is a
folder named after its time in UTC. It is complete once its manifest.json exists, which is written last.
"""

import gzip
import hashlib
import json
import os
import re
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path

from sluicegate.errors import SluicegateError
from sluicegate.storage.object_access import PIECE_BYTES
from sluicegate.storage.object_store import open_store

DUMP = "dump.sql.gz"
MANIFEST = "manifest.json"
NAME = re.compile(r"\d{8}T\d{6}Z")
POSITION = re.compile(r"^-- CHANGE REPLICATION SOURCE TO SOURCE_LOG_FILE='(.+)', SOURCE_LOG_POS=(\d+);")
SERVER = re.compile(r"^-- Server version\s+(\S+)")
HEAD_LINES = 40
END = "-- Dump completed"


def store(archive, file):
    found = {"sha256": sha256(pieces(file)), "bytes": file.stat().st_size, **described(file)}
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    archive.put(f"{name}/{DUMP}", pieces(file))
    check(archive, name, found["sha256"])
    archive.put(f"{name}/{MANIFEST}", [json.dumps(found).encode()])
    print(f"stored backup {name}: {found}")
    remove_old(archive, name)


def fetch(archive, file):
    name = os.environ.get("BACKUP_NAME") or "latest"
    names = complete(archive)
    if name == "latest" and names:
        name = names[-1]
    if name not in names:
        sys.exit(
            f"There is no complete backup {name} at {archive.url}. Nothing was restored. Complete are: "
            f"{', '.join(names) or 'none'}."
        )
    manifest = json.loads(archive.read(f"{name}/{MANIFEST}"))
    with file.open("wb") as target:
        target.writelines(archive.stream(f"{name}/{DUMP}") or ())
    if sha256(pieces(file)) != manifest["sha256"]:
        file.unlink()
        sys.exit(f"The dump of backup {name} is not what was stored. Nothing was restored. Use another backup.")
    print(f"fetched backup {name}: {manifest}")


def show(archive):
    for name in complete(archive):
        print(name, json.dumps(json.loads(archive.read(f"{name}/{MANIFEST}"))))


def check(archive, name, expected):
    if sha256(archive.stream(f"{name}/{DUMP}") or ()) != expected:
        archive.delete(f"{name}/{DUMP}")
        sys.exit(
            f"{archive.url} did not return the dump that it was given. There is no new backup, and older ones "
            "are kept. Check the store, then run the Job again."
        )


def remove_old(archive, new):
    """Remove complete backups beyond the newest BACKUP_KEEP, and older dumps without a manifest."""
    kept = {*complete(archive)[-int(os.environ["BACKUP_KEEP"]) :], new}
    for name in sorted({path.split("/")[0] for path in archive.names("") if is_ours(path)}):
        if name < new and name not in kept:
            # the manifest first: what is left of a removal must not look complete
            archive.delete(f"{name}/{MANIFEST}")
            archive.delete(f"{name}/{DUMP}")
            print(f"removed backup {name}")


def complete(archive):
    return sorted(p.split("/")[0] for p in archive.names("") if is_ours(p) and p.endswith(f"/{MANIFEST}"))


def is_ours(path):
    name, _, file = path.partition("/")
    return NAME.fullmatch(name) is not None and file in (DUMP, MANIFEST)


def described(file):
    """Return the server and the position in its binary log; refuses a dump that was cut off."""
    found, last = {}, ""
    try:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines):
                last = line
                if number < HEAD_LINES and (match := SERVER.match(line)):
                    found["server"] = match[1]
                if number < HEAD_LINES and (match := POSITION.match(line)):
                    found["binlogFile"], found["binlogPosition"] = match[1], int(match[2])
    except (OSError, EOFError, zlib.error) as error:
        last = str(error)
    if not last.startswith(END):
        sys.exit(
            f"{file} is not a complete dump: it ends with {last[:80]!r}. There is no new backup, and older ones "
            "are kept. Run the Job again."
        )
    return found


def pieces(file):
    with file.open("rb") as source:
        while piece := source.read(PIECE_BYTES):
            yield piece


def sha256(content):
    digest = hashlib.sha256()
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


def main():
    verb = sys.argv[1]
    try:
        archive = open_store(os.environ["BACKUP_URL"])
        if verb == "list":
            show(archive)
        else:
            {"store": store, "fetch": fetch}[verb](archive, Path(sys.argv[2]))
    except SluicegateError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
