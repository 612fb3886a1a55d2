"""The container and compose files: linted by their own tools, and consistent with the product."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from quafka.settings import known_to_any
from quafka.sources import variable
from tests.support.needs import program

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
NOTEBOOK = DEPLOY / "container" / "Notebook.Containerfile"
COMPOSE, SMALL = DEPLOY / "compose.yaml", DEPLOY / "compose.small.yaml"
HEALTH = DEPLOY / "container" / "health.py"


def compose(file: Path) -> Any:
    """A compose file as docker-compose parsed it."""
    return yaml.safe_load(_parsed(file))


@cache
def _parsed(file: Path) -> str:
    done = subprocess.run(
        [program("docker-compose"), "-p", "quafka", "-f", file, "config"],
        cwd=DEPLOY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("file", [CONTAINERFILE, NOTEBOOK], ids=lambda file: file.name)
def test_hadolint_has_nothing_against_the_container_files(file: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("file", [CONTAINERFILE, NOTEBOOK], ids=lambda file: file.name)
def test_every_package_of_the_wheel_is_in_the_image(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = re.findall(r"^COPY ([a-z_/]+) \1$", file.read_text(), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text()
    for package in packages:
        assert any(f"{package}/".startswith(f"{folder}/") for folder in copied), package
    for folder in copied:
        assert f"!{folder}\n" in sent, f"{folder} is not sent to the build"


def test_every_variable_is_a_setting() -> None:
    known = {variable(name) for name in known_to_any()}
    for file in (CONTAINERFILE, COMPOSE, SMALL):
        used = set(re.findall(r"\bQUAFKA_[A-Z_]+", file.read_text()))
        assert used, file
        assert used <= known


@pytest.mark.needs("docker-compose")
@pytest.mark.parametrize("file", [COMPOSE, SMALL], ids=lambda file: file.name)
def test_the_compose_files_are_right_and_locked_down(file: Path) -> None:
    services = compose(file)["services"]
    expected = {"keys", "gateway", "broker"}
    if file == COMPOSE:
        expected |= {"console", "jaeger", "prometheus", "grafana", "store", "bucket", "notebook"}
    assert services.keys() == expected
    for service in services.values():
        image = service["image"]
        assert image.startswith("docker.io/") or image.endswith(":local")
        assert re.search(r":[\w.-]+$", image), f"{image} has no tag"
        assert not image.endswith(":latest")
        assert image.endswith(":local") == ("build" in service)
        if "build" in service:
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("read_only", False) == (image == "quafka:local")
        for port in service.get("ports", ()):
            assert (port if isinstance(port, str) else port["host_ip"]).startswith("127.0.0.1")
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0] if isinstance(mount, str) else mount["source"]
            if source.startswith(("/", ".")):
                assert (DEPLOY / source).exists(), f"{source} is mounted, but is not there"


@pytest.mark.needs("docker-compose")
def test_the_small_installation_is_that_of_the_large_one() -> None:
    large, small = compose(COMPOSE)["services"], compose(SMALL)["services"]
    assert small["keys"] == large["keys"]
    of_large, of_small = large["gateway"], small["gateway"]
    there, here = of_large.pop("environment"), of_small.pop("environment")
    assert there.keys() - here.keys() == {
        "QUAFKA_BROKERS", "QUAFKA_OPS_TRACE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_METRICS_EXPORTER",
    }  # fmt: skip
    # A log in a store has shards, a local one has not.
    assert here.pop("QUAFKA_MESH_PEERS") == there["QUAFKA_BROKERS"]
    assert here.items() <= there.items()
    assert of_small == of_large


@pytest.mark.needs("docker-compose")
def test_the_programs_of_the_compose_file_find_each_other() -> None:
    services = compose(COMPOSE)["services"]
    notebook = json.loads((DEPLOY / "container" / "orders.ipynb").read_text())
    code = "".join(line for cell in notebook["cells"] for line in cell["source"])
    assert f'"{services["broker"]["environment"]["QUAFKA_DATA"]}"' in code
    for name in ("broker", "notebook"):
        assert services[name]["environment"]["AWS_ENDPOINT_URL"] == "http://store:9000"
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    targets = set(re.findall(r'"(\w+):(\d+)"', text))
    ports = {name: services[name]["environment"].get("QUAFKA_OPS_LISTEN", "") for name in services
             if name in ("gateway", "broker")}  # fmt: skip
    image = re.findall(r"QUAFKA_OPS_LISTEN=\S+:(\d+)", CONTAINERFILE.read_text())[0]
    console = services["console"]["environment"]
    assert set(console["QUAFKA_CONSOLE_OPERATIONS"].split(",")) == {
        f"http://{name}:{port}" for name, port in targets
    }
    advertised = services["gateway"]["environment"]["QUAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"NETWORK://{console['QUAFKA_CONSOLE_BROKERS']}" in advertised
    assert targets == {(name, at.rpartition(":")[2] or image) for name, at in ports.items()}
