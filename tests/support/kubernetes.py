"""The schemas of Kubernetes' versions and of two operators, and objects validated by them.

They are files in Go modules; nothing is compiled. As a server with `fieldValidation: Strict` does,
`problems` refuses fields that are not declared.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import relevance

from tests.support.needs import FETCH_SECONDS, CannotFetchError, program

_OLDER = "sigs.k8s.io/kubectl-validate@v0.0.4"
OPERATORS = {
    "cert-manager.io": ("github.com/cert-manager/cert-manager@v1.19.1", "deploy/crds"),
    "monitoring.coreos.com": (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd",
    ),
}
"""API groups of operators, and the Go module and folder with the schemas of each."""
VERSIONS = {"1.28": _OLDER, "1.30": _OLDER, "1.34": "k8s.io/kubernetes@v1.34.0",
            "1.37": "k8s.io/kubernetes@v1.37.2"}  # fmt: skip
"""Versions of Kubernetes, and the Go module with the schemas of each."""


@cache
def fetch_schemas() -> dict[str, Path]:
    """The folder of each module, downloaded once for all runs.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    modules = [*dict.fromkeys(VERSIONS.values()), *(each for each, _ in OPERATORS.values())]
    done = subprocess.run(
        [program("go"), "mod", "download", "-json", *modules],
        cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False,
        timeout=FETCH_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise CannotFetchError(f"Go cannot get modules: {done.stdout}{done.stderr}")
    found: dict[str, Path] = {}
    decoder, rest = json.JSONDecoder(), done.stdout.strip()
    while rest:
        module, end = decoder.raw_decode(rest)
        found[f"{module['Path']}@{module['Version']}"] = Path(module["Dir"])
        rest = rest[end:].lstrip()
    return found


def problems(each: Any, version: str) -> list[str]:
    """What this version of Kubernetes would refuse in an object."""
    group, _, number = each["apiVersion"].rpartition("/")
    if group in OPERATORS:
        validator = _of_operator(group, number, each["kind"])
    else:
        validator = _of_kubernetes(version, group, number, each["kind"])
    where = f"{each['kind']} {each['metadata']['name']}"
    found = sorted(validator.iter_errors(each), key=relevance)
    return [f"{where}{error.json_path[1:]}: {error.message}" for error in found]


@cache
def _document(version: str, group: str, number: str) -> Any:
    folder = fetch_schemas()[VERSIONS[version]]
    if VERSIONS[version] == _OLDER:
        path = f"apis/{group}/{number}.json" if group else f"api/{number}.json"
        file = folder / "pkg/openapiclient/builtins" / version / path
    else:
        name = f"apis__{group}__{number}" if group else f"api__{number}"
        file = folder / "api/openapi-spec/v3" / f"{name}_openapi.json"
    assert file.is_file(), f"Kubernetes {version} has no {group}/{number}"
    content = json.loads(file.read_text())
    return {"components": _strict(content["components"])}


@cache
def _of_kubernetes(version: str, group: str, number: str, kind: str) -> Draft202012Validator:
    document = _document(version, group, number)
    this = {"group": group, "version": number, "kind": kind}
    (name,) = (
        name
        for name, schema in document["components"]["schemas"].items()
        if this in schema.get("x-kubernetes-group-version-kind", [])
    )
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", **document})


@cache
def _of_operator(group: str, number: str, kind: str) -> Draft202012Validator:
    module, folder = OPERATORS[group]
    file = fetch_schemas()[module] / folder / f"{group}_{kind.lower()}s.yaml"
    definition = yaml.load(file.read_text(), _Loader)
    assert definition["spec"]["names"]["kind"] == kind
    (schema,) = (
        each["schema"]["openAPIV3Schema"]
        for each in definition["spec"]["versions"]
        if each["name"] == number
    )
    schema["properties"]["metadata"] = {"type": "object", "additionalProperties": True}
    return Draft202012Validator(_strict(schema))


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.1 in which a plain `=` is text, as in the operators' files."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


def _strict(schema: Any) -> Any:
    """OpenAPI's schema as JSON Schema, without undeclared fields."""
    if isinstance(schema, list):
        return [_strict(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    schema = cast("dict[str, Any]", schema)
    made: dict[str, Any] = {name: _strict(each) for name, each in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    declares = isinstance(schema.get("properties"), dict) and "type" in schema
    if declares and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made
