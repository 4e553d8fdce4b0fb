"""Prints in one line what this machine lacks, before anything is downloaded. Installs nothing.

The Makefile runs it with the first `python3` on the PATH, which may be an old one: it uses the standard
library only, imports nothing of this project and needs no syntax newer than Python 3.6.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

PYTHON_MINIMUM = (3, 11)
JAVA_MINIMUM, JAVA_MAXIMUM = 17, 22
"""Hadoop 3.4, which Spark 4.1 has, calls Subject.getSubject, and that fails from Java 23 on (JDK-8296244)."""

MARK = ".made-by-sluicegate"
"""A file in a work folder that `make clean` may remove."""


def java_command() -> str:
    """Return the Java that Spark will use: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return shutil.which("java") or ""


def java_major(command: str) -> int:
    """Return Java's major version, or 0 where the command does not run."""
    try:
        done = subprocess.run(
            [command, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError:
        return 0  # absent or not executable: reported as missing
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0 or found is None:
        return 0  # macOS has a stub that only says that Java is not installed
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major  # Java 8 calls itself 1.8


def python_gap() -> str:
    """Return what is wrong with this Python, or an empty string."""
    if sys.version_info[:2] < PYTHON_MINIMUM:
        have = "%d.%d" % sys.version_info[:2]
        return "Python 3.11 or newer (python3 is %s; name another by make PYTHON=...)" % have
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        return "Python's %s module (on Debian: apt-get install python3-venv)" % missing[0]
    return ""


def java_gap() -> str:
    """Return what is wrong with Java, or an empty string."""
    command = java_command()
    major = java_major(command) if command else 0
    if JAVA_MINIMUM <= major <= JAVA_MAXIMUM:
        return ""
    hint = "on Debian: apt-get install openjdk-17-jre-headless; or set JAVA_HOME"
    if major:
        return "Java 17 to 22 (%s is Java %d; %s)" % (command, major, hint)
    if os.environ.get("JAVA_HOME"):
        return "Java 17 to 22 (JAVA_HOME has no working bin/java; %s)" % hint
    return "Java 17 to 22 (%s)" % hint


def work_gap() -> str:
    """Mark the folder of SLUICEGATE_WORK as one that make may remove; return why not, or an empty string."""
    folder = os.environ.get("SLUICEGATE_WORK")
    if not folder or os.path.exists(os.path.join(folder, MARK)):
        return ""
    if os.path.isdir(folder) and os.listdir(folder):
        return "an empty folder (SLUICEGATE_WORK is %s, which has files of others)" % folder
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, MARK), "w"):
        return ""


def main() -> int:
    """Print one line and return 1 if anything is missing, else print nothing and return 0."""
    gaps = [gap for gap in (python_gap(), java_gap()) if gap]
    # the folder is made only on a machine that has everything
    gaps = gaps or [gap for gap in (work_gap(),) if gap]
    if gaps:
        sys.stderr.write("Missing: %s. Nothing was installed.\n" % "; and ".join(gaps))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
