"""The generated CustomResourceDefinitions."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.workspace import CHECKOUT
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api import crds
from sluicegate_operator.api.codec import API
from sluicegate_operator.api.crds import KINDS, STREAMING_JOB, Kind
from sluicegate_operator.api.library_settings import LIBRARY_SETTINGS

FOLDER = CHECKOUT / "operators" / "crds"

SENTENCE = re.compile(r"[A-Z0-9$].*[.]", re.DOTALL)
"""A description: whole sentences."""


def spec_schema(kind: Kind = STREAMING_JOB) -> dict[str, Any]:
    schema: dict[str, Any] = kind.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]
    return found


def every(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema within one, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from every(inner, f"{path}.{name}")
    if "items" in schema:
        yield from every(schema["items"], f"{path}[]")


def test_the_committed_files_are_up_to_date() -> None:
    assert {p.name: p.read_text() for p in FOLDER.iterdir()} == crds.files()


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    assert crds.main([str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(crds.files())


def test_the_command_prints_one_yaml_stream() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate_operator.api.crds"], capture_output=True, check=True
    )
    found = [d["metadata"]["name"] for d in yaml.safe_load_all(done.stdout)]
    assert found == [f"{kind.plural}.sluicegate.dev" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_schema_is_structural(kind: Kind) -> None:
    """The API server needs a type for each node; `kubectl explain` needs a description."""
    version = kind.definition()["spec"]["versions"][0]
    for part in ("spec", "status"):
        schema = version["schema"]["openAPIV3Schema"]["properties"][part]
        for path, inner in every(schema):
            assert "type" in inner, path
            for name, field in inner.get("properties", {}).items():
                assert SENTENCE.fullmatch(field.get("description", "")), f"{path}.{name}"
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_column_shows_an_existing_field(kind: Kind) -> None:
    schema = kind.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    known = {path.replace("[]", "[0]") for path, _ in every(schema)}
    for column in kind.columns:
        assert column.path in known or column.path.startswith(".metadata."), column


@pytest.mark.parametrize(
    ("settings", "at"), [(EpochSettings, "epochs"), (RestartSettings, "restart")]
)
def test_library_settings_have_the_defaults_and_values_of_the_library(
    settings: type[Any], at: str
) -> None:
    made = spec_schema()["properties"][at]["properties"]
    for field in dataclasses.fields(settings):
        schema = made.pop(API.key(settings, field.name))
        values = API.values(settings, field)
        assert schema.get("enum", []) == list(values)
        default = schema.get("default", "")  # an empty one means that the field is not set
        assert values.get(default, default) == field.default
    assert not made


@pytest.mark.parametrize("settings", LIBRARY_SETTINGS, ids=lambda kind: kind.__name__)
def test_each_library_setting_has_one_description(settings: type[Any]) -> None:
    fields = {field.name for field in dataclasses.fields(settings)}
    assert LIBRARY_SETTINGS[settings].descriptions.keys() == fields


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_enum_values_are_camel_case(kind: Kind) -> None:
    schema = kind.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, inner in every(schema):
        for value in inner.get("enum", ()):
            assert re.fullmatch(r"([A-Z][A-Za-z]*)", value), f"{path}: {value}"


def test_units_are_spelled_out() -> None:
    for kind in KINDS:
        schema = kind.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        names = [path.rpartition(".")[2] for path, _ in every(schema)]
        assert not [name for name in names if re.search(r"[a-z](S|Ms)$", name)]


def test_names_do_not_repeat_their_parent() -> None:
    properties = spec_schema()["properties"]
    assert {"minPauseMilliseconds", "onCancel"} <= set(properties["epochs"]["properties"])
    assert {"strategy", "attempts", "maxDelaySeconds"} <= set(properties["restart"]["properties"])


def test_bounds_come_from_the_settings() -> None:
    properties = spec_schema()["properties"]
    restart, epochs = (properties[at]["properties"] for at in ("restart", "epochs"))
    assert restart["attempts"]["minimum"] == 0
    assert (restart["jitter"]["minimum"], restart["jitter"]["maximum"]) == (0, 1)
    assert epochs["applyTimeoutSeconds"]["minimum"] == 0
    assert epochs["applyTimeoutSeconds"]["exclusiveMinimum"] is True


def test_an_optional_object_has_an_empty_default() -> None:
    """The API server fills in the defaults of fields only in objects that exist."""
    for name, schema in spec_schema()["properties"].items():
        needed = name in spec_schema()["required"] or name in ("tracing", "schedule")
        if schema["type"] == "object" and "properties" in schema and not needed:
            assert schema["default"] == {}, name


def test_rules_are_part_of_the_schema() -> None:
    rules = [
        r["rule"] for _, s in every(spec_schema()) for r in s.get("x-kubernetes-validations", ())
    ]
    assert "!has(self.maxConcurrent) || self.maxConcurrent == 1" in rules
    assert "!has(self.schedule) || self.trigger != 'Interval'" in rules


def loaded_by(code: str) -> set[str]:
    """Return the third-party top-level modules that are loaded after some code."""
    code += "\nprint(*{m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\n{code}"],
        capture_output=True,
        check=True,
        text=True,
        # `make coverage` measures subprocesses too, by a module that it loads into them
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")},
    )
    return {name for name in done.stdout.split() if not name.startswith("_")} - {"cython_runtime"}


def test_api_and_reconcile_import_only_cronsim_and_yaml() -> None:
    """The operator's image has no pyspark. Its pure packages need only two third-party modules."""
    code = (
        "import importlib, pkgutil, sluicegate_operator as o\n"
        "for m in pkgutil.walk_packages(o.__path__, 'sluicegate_operator.'):\n"
        "    if m.name.split('.')[1] in ('api', 'reconcile'):\n"
        "        importlib.import_module(m.name)"
    )
    assert loaded_by(code) == {"cronsim", "sluicegate", "sluicegate_operator", "yaml"}


def test_the_task_queue_imports_no_object_store_client() -> None:
    code = (
        "import sluicegate_operator.storage_tasks.queue, sluicegate_operator.storage_tasks.runner"
    )
    assert loaded_by(code) <= {"cronsim", "sluicegate", "sluicegate_operator"}


def test_a_storage_task_imports_obstore_and_no_other_client() -> None:
    code = "import sluicegate_operator.storage_tasks.__main__"
    loaded = loaded_by(code)
    assert loaded >= {"obstore"}
    assert not loaded & {"minio", "pandas", "pyarrow", "pyspark", "numpy", "py4j"}
