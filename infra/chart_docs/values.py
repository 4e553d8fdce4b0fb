"""Reads a values.yaml with its comments into a tree of values.

The comment above a key is its description. Lines in it that begin with `@` are directives:

    @schema {...}      is merged into the key's JSON schema
    @free              an object that accepts anything
    @crd PLURAL NAME...  an object as the `spec` of that CRD (operators/crds), without the fields NAME
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

_SCHEMA: Final = "@schema "
_FREE: Final = "@free"
_CRD: Final = "@crd "


class ValuesError(Exception):
    """A values.yaml that cannot be described."""


@dataclass(frozen=True)
class Value:
    """One key of values.yaml."""

    name: str  # of the key
    default: Any  # what is there
    text: str = ""  # what its comment says; empty: it has none
    hints: Mapping[str, Any] = field(default_factory=dict)  # for its schema
    free: bool = False  # whether anything may be in it
    # plural of a CRD and the fields that are left out of its spec; empty: none
    crd: tuple[str, ...] = ()
    children: "tuple[Value, ...]" = ()  # keys below it


@dataclass(frozen=True)
class Values:
    """A file of values: the comment at its head, and its keys."""

    head: str
    children: tuple[Value, ...]


def read(path: Path) -> Values:
    """Read a values.yaml.

    Raises:
        ValuesError: a key that people set has no comment, or an `@` line is not known.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValuesError(f"{path} is not a mapping")
    end_of_head = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    head = "\n".join(_comment(lines, end_of_head))
    return Values(head, tuple(_children(root, lines, path)))


def described(children: Sequence[Value], above: str = "") -> Iterator[tuple[str, Value]]:
    """Yield the path and the value of each row of a table: with a description, or without children."""
    for child in children:
        path = f"{above}{child.name}"
        if child.text or not child.children:
            yield path, child
        yield from described(child.children, f"{path}.")


def _children(node: yaml.MappingNode, lines: list[str], path: Path) -> Iterator[Value]:
    if node.flow_style:
        return  # `{a: b}`: one value, as a whole
    for key, value in node.value:
        yield _value(key.value, value, _comment(lines, key.start_mark.line), lines, path)


def _value(name: str, node: yaml.Node, comment: list[str], lines: list[str], path: Path) -> Value:
    hints: dict[str, Any] = {}
    crd: tuple[str, ...] = ()
    words = []
    free = False
    for line in comment:
        if line.startswith(_SCHEMA):
            hints |= json.loads(line.removeprefix(_SCHEMA))
        elif line.startswith(_CRD):
            crd = tuple(line.removeprefix(_CRD).split())
        elif line == _FREE:
            free = True
        elif line.startswith("@"):
            raise ValuesError(f"{path}: {name}: {line} is not known")
        else:
            words.append(line)
    children: tuple[Value, ...] = ()
    if isinstance(node, yaml.MappingNode) and not crd:
        children = tuple(_children(node, lines, path))
    if not words and not children and not free:
        raise ValuesError(f"{path}: {name} has no comment: say above it what it is")
    default = yaml.safe_load(yaml.serialize(node))
    return Value(name, default, " ".join(words), hints, free, crd, children)


def _comment(lines: list[str], line: int) -> list[str]:
    """Return the lines of comment directly above a line, without their marks."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return found
