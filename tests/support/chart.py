"""The Helm chart: rendered by `helm`, and validated by the schemas of Kubernetes' versions.

`python -m tests.support.chart` writes what is made from other sources: the names of settings in the
chart's schema and, if there is a helm, `deploy/kubernetes/quafka.yaml`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from quafka.settings import PROGRAMS
from quafka.sources import declared, dotted
from tests.support.needs import find, program

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "quafka"
SCHEMA = CHART / "values.schema.json"
MANIFEST = DEPLOY / "kubernetes" / "quafka.yaml"
NAMESPACE = "data"
OF_THE_CHART = {
    "gateway": {
        "listen", "listeners", "advertised.listener", "advertised.listeners",
        "listener.security.protocol.map", "listener.org", "ssl.certfile", "ssl.keyfile",
        "ssl.ca.file", "ssl.client.auth", "super.users", "node.id", "workers", "brokers",
        "mesh.allow", "mesh.peers",
    },
    "broker": {
        "data", "cache", "store.shards", "mesh.listen", "mesh.advertised", "mesh.allow",
        "mesh.brokers",
    },
    "console": {
        "console.listen", "console.brokers", "console.operations", "console.command.config",
        "console.hosts", "console.read.only", "console.operations.token.file",
    },
}  # fmt: skip
"""Settings that follow from other values, and are refused in `config`."""
OF_ALL = {
    "node.key", "mesh.allowed.file", "ops.listen", "ops.port.fallback", "ops.token.file",
    "ops.ssl.certfile", "ops.ssl.keyfile", "ops.ssl.ca.file",
}  # fmt: skip


class RefusedError(Exception):
    """Helm has refused the values; the message is its own."""


def render(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "try",
    namespace: str = NAMESPACE,
    version: str = "1.34",
    source: Path = CHART,
) -> str:
    """The chart's objects as YAML.

    Raises:
        RefusedError: helm has refused the values.
    """
    done = subprocess.run(
        [program("helm"), "template", release, str(source), "--namespace", namespace,
         "--kube-version", version, "--values", "-"],
        input=json.dumps(values or {}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


def objects(text: str) -> list[Any]:
    """The objects of a manifest."""
    return [each for each in yaml.safe_load_all(text) if each]


def named(found: list[Any], kind: str, name: str) -> Any:
    """The one object of this kind and name."""
    (one,) = (each for each in found if each["kind"] == kind and each["metadata"]["name"] == name)
    return one


def settings_of(which: str) -> dict[str, Any]:
    """The schema of a program's `config`: the names that may be in it."""
    names = {dotted(name) for name in declared(PROGRAMS[which])}
    names -= OF_THE_CHART[which] | OF_ALL
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"$ref": "#/definitions/setting"} for name in sorted(names)},
    }


def schema() -> str:
    """`values.schema.json` with the settings as they are now."""
    content = json.loads(SCHEMA.read_text())
    content["definitions"] = {
        "setting": {"type": ["string", "number", "boolean", "array"]},
        **{f"{which}Settings": settings_of(which) for which in OF_THE_CHART},
    }
    text = json.dumps(content, indent=2)
    return re.sub(r'\{\s+("\$ref": "[^"]+")\s+\}', r"{\1}", text) + "\n"


def manifest() -> str:
    """`deploy/kubernetes/quafka.yaml`: the chart's defaults, without the test."""
    kept: list[str] = []
    for part in render(release="quafka", namespace="quafka").split("\n---\n"):
        lines = part.strip().removeprefix("---\n").splitlines()
        text = "\n".join(line for line in lines if "helm.sh/" not in line)
        text = text.replace("managed-by: Helm", "managed-by: kubectl")
        if lines and "templates/tests/" not in lines[0]:
            kept.append(re.sub(r"\n  annotations:\n(?=\S)", "\n", text))
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: quafka"
    head = (
        "# A gateway and a broker with a disk, for those without Helm: docs/kubernetes.md.\n"
        "# Made from the chart by `python -m tests.support.chart`; do not edit.\n"
    )
    return head + "\n---\n".join([namespace, *kept]) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
    if find("helm"):
        MANIFEST.write_text(manifest())
