"""What the pages say exists: commands, options, modules, files and public names."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

import sluicegate
from infra.workspace import CHECKOUT
from sluicegate.cli.app import app
from tests.unit.docs.pages import PAGES, blocks, commands, inline_code, name_of, prose

WIDTH: Final = 100
LONGEST_README: Final = 120

PLACEHOLDER: Final = re.compile(r"[A-Z_]{2,}|…|\.\.\.")
"""Words that a reader replaces: JOB, TOPIC, `...`."""

FOLDERS: Final = ("charts/", "docs/", "infra/", "jobs/", "operators/", "requirements/", "tests/")

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
every_current_page = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "decisions"], ids=name_of
)
"""Without the records of decisions, which may name what is gone."""


def test_the_front_page_is_short() -> None:
    assert len((CHECKOUT / "README.md").read_text().splitlines()) <= LONGEST_README


@every_page
def test_prose_is_wrapped(page: Path) -> None:
    """Except for tables, pictures and inline code, which cannot be broken."""
    long = [
        line
        for line in prose(page).splitlines()
        if len(line) > WIDTH and " " in re.sub(r"`[^`]+`", "", line).strip(" -|.,(")
    ]
    assert [line for line in long if not line.startswith(("|", "![", "<!--"))] == []


@every_page
def test_python_examples_use_public_names(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "sluicegate":
                missing = {alias.name for alias in node.names} - set(sluicegate.__all__)
                assert not missing, f"sluicegate has no public {missing}"


@every_current_page
def test_commands_of_sluicegate_are_accepted(page: Path) -> None:
    for command in commands(page):
        words = _words_of_sluicegate(command)
        if words and "--settings" not in words:  # a file of the reader
            assert _error_of(words) is None, command


@every_current_page
def test_modules_that_are_run_exist(page: Path) -> None:
    for command in commands(page):
        for module in re.findall(r"python -m ([a-z_.]+)", command):
            assert _is_module(module), command


@every_current_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for command in commands(page):
        if command.startswith("make "):
            words = [word for word in shlex.split(command)[1:] if "=" not in word]
            assert set(words) <= targets, command


@every_current_page
def test_files_that_a_page_names_exist(page: Path) -> None:
    missing = [
        word
        for text in (*inline_code(page), *commands(page))
        for word in text.split()
        if word.startswith(FOLDERS) and not PLACEHOLDER.search(word) and not _exists(word)
    ]
    assert missing == []


def _words_of_sluicegate(command: str) -> list[str]:
    """Return the arguments of a command of sluicegate; empty if it is another command."""
    found = re.match(
        r"(?:[A-Z_]+=\S+ |[A-Z_]+=\"[^\"]*\" )*(?:\.venv/bin/)?sluicegate (.+)", command
    )
    return shlex.split(found[1].removesuffix("&")) if found else []


def _error_of(words: list[str]) -> str | None:
    """Return why the command line would be rejected, or None; nothing is executed."""
    command: click.Command = app
    context = click.Context(app, info_name="sluicegate")
    try:
        while isinstance(command, click.Group) and words:
            if PLACEHOLDER.fullmatch(words[0]) or words[0] == "--help":
                return None
            _, nested, words = command.resolve_command(context, words)
            assert nested is not None
            command = nested
        if not words or "--help" in words or any(map(PLACEHOLDER.fullmatch, words)):
            return None
        # click prompts for the confirmation when it parses the option
        command.make_context("", [*words, *_confirmed(command)], parent=context)
    except click.ClickException as error:
        return error.format_message()
    return None


def _confirmed(command: click.Command) -> list[str]:
    asks = any(
        isinstance(p, click.Option) and "--yes" in p.opts and p.prompt for p in command.params
    )
    return ["--yes"] if asks else []


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _exists(word: str) -> bool:
    path = word.rstrip(".,;:").partition("#")[0].partition("::")[0]
    return (CHECKOUT / path).exists() or any(CHECKOUT.glob(path.rstrip("/")))
