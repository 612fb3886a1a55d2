"""Creates missing node keys, writes both allow-lists, and keeps them in two Secrets.

Run by the chart's Job, in the product's image. Keys that exist are never replaced.
"""

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
JOB = json.loads(os.environ["KEYS"])
"""names of the Secrets, addresses of brokers with disks, rights of gateways, further nodes"""


def api(method: str, path: str, body: object = None) -> Any:
    """One request to Kubernetes. Raises urllib.error.HTTPError."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    kind = "merge-patch+json" if method == "PATCH" else "json"
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{(ACCOUNT / 'namespace').read_text()}/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
            "Content-Type": f"application/{kind}",
        },
    )
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(  # noqa: S310
        request, timeout=30, context=context
    ) as response:
        return json.load(response)


def read(name: str) -> dict[str, bytes] | None:
    """The content of a Secret, or None if there is none."""
    try:
        data: dict[str, str] = api("GET", f"secrets/{name}").get("data") or {}
    except urllib.error.HTTPError as e:
        if e.code == 404:
            return None
        raise
    return {key: base64.b64decode(value) for key, value in data.items()}


def write(name: str, before: dict[str, bytes] | None, after: dict[str, bytes]) -> None:
    """Create a Secret, or change what differs."""
    if before is not None and all(before.get(key) == value for key, value in after.items()):
        print(f"{name}: unchanged")
        return
    data = {key: base64.b64encode(value).decode() for key, value in after.items()}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": JOB["labels"]},
        "data": data,
    }
    if before is None:
        api("POST", "secrets", secret)
    else:
        api("PATCH", f"secrets/{name}", {"data": data})
    print(f"{name}: {'created' if before is None else 'changed'}")


def quafka(*args: str) -> str:
    """The output of a command of the product."""
    done = subprocess.run(  # noqa: S603
        ["quafka", *args],  # noqa: S607
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def node(folder: Path, file: str, known: dict[str, bytes] | None) -> tuple[bytes, str]:
    """A node's key, created if it is not known, and its id."""
    path = folder / file
    if known and file in known:
        path.touch(mode=0o600)
        path.write_bytes(known[file])
        return known[file], quafka("node", "id", str(path))
    found = quafka("node", "init", str(path))
    return path.read_bytes(), found


def allowed(folder: Path, nodes: list[tuple[str, str, str]]) -> bytes:
    """An allow-list of (id, orgs, rights)."""
    path = folder / "allowed"
    path.write_text("")
    for found, orgs, may in nodes:
        flags = ["--org", orgs] if orgs else []
        flags += ["--may", may] if may else []
        quafka("node", "allow", found, *flags, "--file", str(path))
    return path.read_bytes()


def main() -> None:
    gateways, brokers = read(JOB["gatewaySecret"]), read(JOB["brokerSecret"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key, gateway = node(folder, "node.key", gateways)
        for_gateways = {"node.key": key}
        for_brokers: dict[str, bytes] = {}
        ids: list[tuple[str, str]] = []
        for number, address in enumerate(JOB["brokers"]):
            file = f"broker-{number}.key"
            for_brokers[file], found = node(folder, file, brokers)
            ids.append((found, address))
        rights = JOB["gatewayRights"]
        nodes = [(gateway, rights["orgs"], rights["may"])]
        nodes += [
            (each["node"], each.get("orgs", ""), each.get("may", "")) for each in JOB["allow"]
        ]
        for_brokers["allowed"] = allowed(folder, nodes)
        if ids:
            for_gateways["allowed"] = allowed(folder, [(found, "", "") for found, _ in ids])
            for_brokers["brokers"] = ",".join("@".join(each) for each in ids).encode()
    write(JOB["gatewaySecret"], gateways, for_gateways)
    write(JOB["brokerSecret"], brokers, for_brokers)


if __name__ == "__main__":
    try:
        main()
    except urllib.error.HTTPError as e:
        sys.exit(f"{e.url}: {e.code} {e.read().decode(errors='replace')}")
