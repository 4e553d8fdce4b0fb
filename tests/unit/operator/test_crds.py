"""The CustomResourceDefinitions: made from the dataclasses, checked in once."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate.settings.schema import choices_of
from sluicegate_operator import crds
from sluicegate_operator.resources.declaring import name_of
from sluicegate_operator.resources.kinds import KINDS, STREAMING_JOB, Kind

FOLDER = Path(__file__).parents[3] / "operators" / "crds"


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


def test_the_files_that_are_checked_in_are_those_that_would_be_made() -> None:
    assert {p.name: p.read_text() for p in FOLDER.iterdir()} == crds.files()


def test_the_command_writes_them(tmp_path: Path) -> None:
    assert crds.main([str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(crds.files())


def test_the_command_prints_them_as_one_stream() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sluicegate_operator.crds"], capture_output=True, check=True
    )
    found = [d["metadata"]["name"] for d in yaml.safe_load_all(done.stdout)]
    assert found == [f"{kind.plural}.sluicegate.dev" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_schema_is_structural(kind: Kind) -> None:
    """Each node has a type and a property a description: the API server demands the first."""
    version = kind.definition()["spec"]["versions"][0]
    for part in ("spec", "status"):
        schema = version["schema"]["openAPIV3Schema"]["properties"][part]
        for path, inner in every(schema):
            assert "type" in inner, path
            for name, field in inner.get("properties", {}).items():
                assert field.get("description"), f"{path}.{name}"
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_column_shows_what_exists(kind: Kind) -> None:
    schema = kind.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    known = {path.replace("[]", "[0]") for path, _ in every(schema)}
    for column in kind.columns:
        assert column.path in known or column.path.startswith(".metadata."), column


@pytest.mark.parametrize(
    ("settings", "at"), [(EpochSettings, "epochs"), (RestartSettings, "restart")]
)
def test_settings_have_the_names_defaults_and_choices_of_the_library(
    settings: type[Any], at: str
) -> None:
    made = spec_schema()["properties"][at]["properties"]
    for field in dataclasses.fields(settings):
        schema = made.pop(name_of(settings, field.name))
        assert schema["default"] == field.default
        assert tuple(schema.get("enum", ())) == choices_of(field)
        assert schema["description"] == field.metadata["help"]
    assert not made


def test_names_are_in_camel_case_and_do_not_repeat_their_parent() -> None:
    properties = spec_schema()["properties"]
    assert {"minPauseMs", "onCancel", "stateBackend"} <= set(properties["epochs"]["properties"])
    assert {"strategy", "attempts", "maxDelayS"} <= set(properties["restart"]["properties"])


def test_bounds_come_from_the_settings() -> None:
    properties = spec_schema()["properties"]
    restart, epochs = (properties[at]["properties"] for at in ("restart", "epochs"))
    assert restart["attempts"]["minimum"] == 0
    assert (restart["jitter"]["minimum"], restart["jitter"]["maximum"]) == (0, 1)
    assert epochs["applyTimeoutS"]["minimum"] == 0
    assert epochs["applyTimeoutS"]["exclusiveMinimum"] is True


def test_an_object_that_is_left_out_is_filled_in() -> None:
    """The API server fills defaults in only below an object that is there."""
    for name, schema in spec_schema()["properties"].items():
        needed = name in spec_schema()["required"] or name in ("tracing", "schedule")
        if schema["type"] == "object" and "properties" in schema and not needed:
            assert schema["default"] == {}, name


def test_rules_are_where_their_fields_are() -> None:
    rules = [
        r["rule"] for _, s in every(spec_schema()) for r in s.get("x-kubernetes-validations", ())
    ]
    assert "!has(self.maxConcurrent) || self.maxConcurrent == 1" in rules
    assert "!has(self.schedule) || self.trigger != 'interval'" in rules


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that are loaded after some code, the standard library's left out."""
    code += "\nprint(*{m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\n{code}"],
        capture_output=True,
        check=True,
        text=True,
    )
    return {name for name in done.stdout.split() if not name.startswith("_")} - {"cython_runtime"}


def test_what_is_decided_needs_nothing_of_the_library_s_own_dependencies() -> None:
    """The operator's image has no pyspark: all that is pure loads without any third party but two."""
    code = (
        "import importlib, pkgutil, sluicegate_operator as o\n"
        "for m in pkgutil.walk_packages(o.__path__, 'sluicegate_operator.'):\n"
        "    if m.name.split('.')[1] in ('crds', 'reconcile', 'resources', 'volumes'):\n"
        "        importlib.import_module(m.name)"
    )
    assert loaded_by(code) == {"cronsim", "sluicegate", "sluicegate_operator", "yaml"}


def test_who_runs_tasks_on_a_store_has_no_client_of_one() -> None:
    code = "import sluicegate_operator.store.desk, sluicegate_operator.store.running"
    assert loaded_by(code) <= {"cronsim", "sluicegate", "sluicegate_operator"}


def test_a_task_needs_obstore_and_no_spark_nor_a_second_client() -> None:
    code = "import sluicegate_operator.store.__main__"
    loaded = loaded_by(code)
    assert loaded >= {"obstore"}
    assert not loaded & {"minio", "pandas", "pyarrow", "pyspark", "numpy", "py4j"}
