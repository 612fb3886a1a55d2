"""The container and compose files: linted by their own tools, and consistent with the product."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
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
HEALTH = DEPLOY / "container" / "health.py"


def compose() -> Any:
    """The compose file as docker-compose parsed it."""
    # Debian's docker-compose does not know the project's `name` yet.
    text = (DEPLOY / "compose.yaml").read_text().replace("name: quafka\n", "", 1)
    done = subprocess.run(
        [program("docker-compose"), "-p", "quafka", "-f", "-", "config"],
        input=text, cwd=DEPLOY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_hadolint_has_nothing_against_the_container_file() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", CONTAINERFILE],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_package_of_the_wheel_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = re.findall(r"^COPY ([a-z_/]+) \1$", CONTAINERFILE.read_text(), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text()
    for package in packages:
        assert any(f"{package}/".startswith(f"{folder}/") for folder in copied), package
    for folder in copied:
        assert f"!{folder}\n" in sent, f"{folder} is not sent to the build"


def test_every_variable_is_a_setting() -> None:
    known = {variable(name) for name in known_to_any()}
    for file in (CONTAINERFILE, DEPLOY / "compose.yaml"):
        used = set(re.findall(r"\bQUAFKA_[A-Z_]+", file.read_text()))
        assert used, file
        assert used <= known


@pytest.mark.needs("docker-compose")
def test_the_compose_file_is_right_and_locked_down() -> None:
    services = compose()["services"]
    assert {"gateway", "broker", "console", "jaeger", "prometheus", "grafana"} < services.keys()
    for name in ("keys", "gateway", "broker", "console"):
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for service in services.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0] if isinstance(mount, str) else mount["source"]
            if source.startswith(("/", ".")):
                assert (DEPLOY / source).exists(), f"{source} is mounted, but is not there"
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
    for service in services.values():
        for port in service.get("ports", ()):
            assert (port if isinstance(port, str) else port["host_ip"]).startswith("127.0.0.1")
    assert targets == {(name, at.rpartition(":")[2] or image) for name, at in ports.items()}
