"""Report banned words: `python -m infra.prose [PATH ...] [--commits BASE]`.

Without paths all files under version control are checked. `--commits BASE` also checks the subjects of
the commits after BASE: `area: imperative`, at most 72 characters. `--subject-file FILE` checks the
subject in a commit message alone, for a commit-msg hook.
"""

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

RULES: Final = Path(__file__).with_name("banned_words.txt")
PROSE: Final = frozenset(
    {".md", ".txt", ".yaml", ".yml", ".tpl", ".toml", ".sh", ".java", ".go", ""}
)
EXEMPT: Final = (
    "LICENSE",
    "requirements/",
    "infra/prose/",
    "operators/crds/",
    "tests/unit/infra/test_prose.py",
)
"""Not ours, generated from other files, or the rules themselves and their tests."""

SUBJECT: Final = re.compile(r"^[a-z0-9_./, -]+: \S.*$")
SUBJECT_CHARACTERS: Final = 72


class Rule(NamedTuple):
    """A banned expression and what to write instead."""

    pattern: re.Pattern[str]
    advice: str


def rules() -> list[Rule]:
    """Read the rules."""
    lines = RULES.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" -> ", 1) for line in lines if line and not line.startswith("#"))
    return [Rule(re.compile(rf"(?<![\w-])(?:{p})(?!\w)", re.IGNORECASE), a) for p, a in pairs]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that people read, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if path.suffix == ".md":
                line = re.sub(r"“[^”]*”|\"[^\"]*\"", "", line)  # noqa: PLW2901 - a quotation
            yield number, line
        return
    strings = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in strings:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def findings(path: Path, banned: list[Rule]) -> Iterator[str]:
    """Yield a line of report for each banned expression in a file."""
    for number, line in prose_of(path):
        readable = re.sub(r"`[^`]*`", "", line)
        for rule in banned:
            if found := rule.pattern.search(readable):
                yield f"{path}:{number}: {found[0]!r}; write: {rule.advice}"


def tracked(folder: Path = Path()) -> list[Path]:
    """Return the files of a folder that are under version control and hold prose."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", folder],  # noqa: S607 - the developer's git
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [name for name in done.stdout.split("\0") if name and not name.startswith(EXEMPT)]
    return [p for p in map(Path, paths) if p.suffix in PROSE | {".py"} and p.is_file()]


def subjects(base: str, banned: list[Rule]) -> Iterator[str]:
    """Yield a line of report for each commit subject after `base` that breaks a rule."""
    command = ["git", "log", "--no-merges", "--format=%h %s", f"{base}..HEAD"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    for line in done.stdout.splitlines():
        commit, subject = line.split(" ", 1)
        yield from subject_findings(commit, subject, banned)


def subject_findings(commit: str, subject: str, banned: list[Rule]) -> Iterator[str]:
    """Yield a line of report for each rule that a commit's subject breaks."""
    if len(subject) > SUBJECT_CHARACTERS or not SUBJECT.match(subject):
        yield f"{commit}: {subject!r}; write `area: imperative`, at most 72 characters"
    for rule in banned:
        if found := rule.pattern.search(subject):
            yield f"{commit}: {found[0]!r}; write: {rule.advice}"


def _reports(options: argparse.Namespace, banned: list[Rule]) -> Iterator[str]:
    if options.subject_file:
        subject = options.subject_file.read_text(encoding="utf-8").split("\n", 1)[0]
        yield from subject_findings("this commit", subject, banned)
        return
    given = [f for path in options.paths for f in (tracked(path) if path.is_dir() else [path])]
    for path in given or tracked():
        try:
            yield from findings(path, banned)
        except (UnicodeDecodeError, tokenize.TokenError):
            continue  # not text
    if options.commits:
        yield from subjects(options.commits, banned)


def main(arguments: list[str] | None = None) -> int:
    """Print what breaks a rule; return 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m infra.prose", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="files or folders; default: all tracked"
    )
    parser.add_argument("--commits", metavar="BASE", help="check the commit subjects after BASE")
    parser.add_argument("--subject-file", type=Path, help="check the message of one commit alone")
    options = parser.parse_args(arguments)
    reports = list(_reports(options, rules()))
    print(*reports, sep="\n", end="\n" if reports else "")
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main())
