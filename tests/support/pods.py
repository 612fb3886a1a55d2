"""Pods of rendered objects as processes on loopback: a kubelet for tests.

Volumes are folders below one folder, and the paths and addresses in variables and commands are
those of this machine. Everything else is as the objects say: variables, arguments, init containers,
scripts, probes.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.support.chart import DEPLOY, NAMESPACE, named
from tests.support.cluster import Process
from tests.support.ports import lasting_port
from tests.support.secrets_api import SecretsApi

IMAGE = dict(
    re.findall(r"\b(QUAFKA_[A-Z_]+)=(\S+)", (DEPLOY / "container" / "Containerfile").read_text())
)
"""The variables of the image."""
KEYS_OF_THE_JOB = {"node.key", "allowed", "broker-0.key", "brokers"}
"""What the keys' Job writes for a gateway and one broker."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROBE_SECONDS = 60.0
_SCRIPTS = Path(sys.executable).parent


def template(each: Any) -> Any:
    """The pod of an object, or None if it has none."""
    if each["kind"] == "Pod":
        return each
    return each.get("spec", {}).get("template")


def environment(found: list[Any], container: Any) -> dict[str, str]:
    """A container's variables from its ConfigMaps and its own; those of Secrets are left out."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            variables |= named(found, "ConfigMap", source["configMapRef"]["name"])["data"]
    return variables | {
        each["name"]: each["value"] for each in container.get("env", []) if "value" in each
    }


def expanded(variables: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Variables with the values of those that they name, such as `$(POD_IP)`."""
    known = re.compile("|".join(map(re.escape, values)))
    return {
        name: known.sub(lambda found: values[found[0]], text) for name, text in variables.items()
    }


class Pods:
    """The pods of a rendered chart, started one by one.

    Attributes:
        found: the rendered objects.
        secrets: those of the namespace, by name and key.
        processes: those that were started, by the names of their pods.
    """

    def __init__(self, found: list[Any], folder: Path, api: SecretsApi) -> None:
        self.found, self._folder, self._api = found, folder, api
        self.secrets = api.secrets
        self._ports: dict[tuple[str, int], int] = {}
        self.processes: dict[str, Process] = {}

    def port(self, pod: str, port: int) -> int:
        """The port on loopback that stands for a port of a pod."""
        return self._ports.setdefault((pod, port), lasting_port())

    def run_job(self, name: str) -> str:
        """Run a Job's container to its end; returns what it printed."""
        pod = template(named(self.found, "Job", name))
        account = self._folder / name / "account"
        account.mkdir(parents=True, exist_ok=True)
        (account / "namespace").write_text(NAMESPACE)
        (account / "token").write_text(self._api.token)
        (account / "ca.crt").write_bytes(self._api.authority.read_bytes())
        folders = self._volumes(name, pod, {_ACCOUNT: account})
        host, _, port = self._api.address.rpartition(":")
        variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return self._run(name, pod, pod["spec"]["containers"][0], folders, variables)

    def run_pod(self, name: str) -> str:
        """Run a Pod's container to its end; returns what it printed."""
        pod = named(self.found, "Pod", name)
        return self._run(name, pod, pod["spec"]["containers"][0], self._volumes(name, pod), {})

    def start(self, kind: str, workload: str, number: int = 0) -> Process:
        """Start one pod of a workload, and wait until its probes succeed."""
        pod = template(named(self.found, kind, workload))
        name = f"{workload}-{number}"
        folders = self._volumes(name, pod)
        for container in pod["spec"].get("initContainers", []):
            self._run(name, pod, container, folders, {})
        (container,) = pod["spec"]["containers"]
        process = Process(
            container["args"],
            self._folder / f"{name}.log",
            self._variables(name, container, folders, IMAGE),
        )
        self.processes[name] = process
        self._probe(name, container)
        return process

    def execute(self, name: str, kind: str, workload: str, command: list[str], given: str) -> str:
        """`kubectl exec` in a pod of a workload."""
        pod = template(named(self.found, kind, workload))
        folders = self._volumes(name, pod)
        return self._command([self._local(each, name, folders) for each in command], {}, given)

    def page(self, name: str, port: int, path: str) -> Any:
        """A JSON page of a pod."""
        at = f"http://127.0.0.1:{self.port(name, port)}{path}"
        with urllib.request.urlopen(at, timeout=30) as page:
            return json.load(page)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.popen.poll() is None:
                process.kill()

    def stop(self) -> None:
        """Stop all processes as a kubelet does; raises AssertionError if one does not exit well."""
        codes = {name: process.stop() for name, process in reversed(self.processes.items())}
        assert set(codes.values()) <= {0}, codes

    def _run(
        self, name: str, pod: Any, container: Any, folders: Mapping[str, Path],
        variables: Mapping[str, str],
    ) -> str:  # fmt: skip
        del pod
        command = [self._local(each, name, folders) for each in container["command"]]
        return self._command(
            command, {**self._variables(name, container, folders, {}), **variables}, ""
        )

    def _command(self, command: list[str], variables: Mapping[str, str], given: str) -> str:
        path = f"{_SCRIPTS}:{os.environ['PATH']}"
        done = subprocess.run(
            command, env={**os.environ, **variables, "PATH": path}, input=given,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _variables(
        self, name: str, container: Any, folders: Mapping[str, Path], image: Mapping[str, str]
    ) -> dict[str, str]:
        number = name.rpartition("-")[2]
        # `_local` makes this the pod's address.
        own = {"$(POD_IP)": "0.0.0.0", "$(POD_NAME)": name, "$(POD_INDEX)": number}
        fields = {
            "metadata.name": name,
            "metadata.labels['apps.kubernetes.io/pod-index']": number,
            "status.podIP": own["$(POD_IP)"],
        }
        found = {**image, **environment(self.found, container)}
        for each in container.get("env", []):
            if "secretKeyRef" in each.get("valueFrom", {}):
                source = each["valueFrom"]["secretKeyRef"]
                found[each["name"]] = self.secrets[source["name"]][source["key"]].decode()
            elif "fieldRef" in each.get("valueFrom", {}):
                found[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        return {
            key: self._local(value, name, folders) for key, value in expanded(found, own).items()
        }

    def _local(self, text: str, name: str, folders: Mapping[str, Path]) -> str:
        """A text with the paths and addresses of this machine."""
        if text.startswith("{"):  # the keys' Job: its addresses are put into a Secret
            return text
        suffix = f".{NAMESPACE}.svc.cluster.local"
        longest = sorted(map(re.escape, folders), key=len, reverse=True)
        text = re.sub(
            rf"(?<![\w/])({'|'.join(longest)})(?=[/\"\s]|$)",
            lambda found: str(folders[found[1]]),
            text,
        )
        text = re.sub(
            rf"([a-z0-9-]+)(\.[a-z0-9-]+)?{re.escape(suffix)}:(\d+)",
            lambda found: self._at(found[1], bool(found[2]), int(found[3])),
            text,
        )
        return re.sub(
            r"\b0\.0\.0\.0:(\d+)\b",
            lambda found: f"127.0.0.1:{self.port(name, int(found[1]))}",
            text,
        )

    def _at(self, host: str, is_pod: bool, port: int) -> str:
        """What a name in the cluster leads to: a pod, or the first pod of a Service."""
        if not is_pod:
            labels = named(self.found, "Service", host)["spec"]["selector"]
            (workload,) = (
                each["metadata"]["name"]
                for each in self.found
                if each["kind"] in ("Deployment", "StatefulSet")
                and labels.items() <= template(each)["metadata"]["labels"].items()
            )
            host = f"{workload}-0"
        return f"127.0.0.1:{self.port(host, port)}"

    def _volumes(
        self, name: str, pod: Any, further: Mapping[str, Path] | None = None
    ) -> dict[str, Path]:
        """Make a pod's volumes; returns their folders by mount path."""
        found: dict[str, Path] = dict(further or {})
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            for mount in container.get("volumeMounts", []):
                found[mount["mountPath"]] = self._folder / name / mount["name"]
                found[mount["mountPath"]].mkdir(parents=True, exist_ok=True)
        for volume in pod["spec"].get("volumes", []):
            folder = self._folder / name / volume["name"]
            if "secret" in volume:
                self._write(folder, volume["secret"], self.secrets[volume["secret"]["secretName"]])
            elif "configMap" in volume:
                content = named(self.found, "ConfigMap", volume["configMap"]["name"])["data"]
                texts = {
                    key: self._local(value, name, found).encode() for key, value in content.items()
                }
                self._write(folder, volume["configMap"], texts)
        return found

    def _write(self, folder: Path, source: Any, content: Mapping[str, bytes]) -> None:
        items = source.get("items") or [{"key": key, "path": key} for key in content]
        for each in items:
            file = folder / each["path"]
            with suppress(FileNotFoundError):
                file.unlink()
            file.write_bytes(content[each["key"]])
            file.chmod(source.get("defaultMode", 0o644))

    def _probe(self, name: str, container: Any) -> None:
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if "tcpSocket" in container[probe]:
                at = self.port(name, ports[container[probe]["tcpSocket"]["port"]])
                self._until(partial(_accepts, at), name, probe)
            else:
                get = container[probe]["httpGet"]
                at = self.port(name, ports[get["port"]])
                self._until(partial(_serves, f"http://127.0.0.1:{at}{get['path']}"), name, probe)

    def _until(self, succeeds: Callable[[], bool], name: str, probe: str) -> None:
        deadline = time.monotonic() + _PROBE_SECONDS
        while not succeeds():
            log = self._folder / f"{name}.log"
            assert time.monotonic() < deadline, f"{probe} of {name} fails: {log.read_text()}"
            time.sleep(0.1)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
        return True
    return False


def _serves(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as page:
        return bool(page.status == 200)
    return False
