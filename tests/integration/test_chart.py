"""The Helm chart, rendered with many values: Kubernetes accepts it, and its parts fit together."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import load
from quafka_gateway.listeners import parse_endpoints
from tests.support import chart
from tests.support.chart import CHART, DEPLOY, named, objects, render
from tests.support.go import go_kubernetes
from tests.support.kubernetes import OPERATORS, VERSIONS, fetch_schemas, problems
from tests.support.needs import program
from tests.support.pods import IMAGE, KEYS_OF_THE_JOB, environment, expanded, template

pytestmark = [pytest.mark.long, pytest.mark.needs("helm")]

OUTSIDE = {
    "port": 9095,
    "protocol": "SASL_SSL",
    "advertised": "kafka.example.org:443",
    "expose": {"type": "LoadBalancer", "port": 443, "annotations": {"dns/name": "kafka"}},
}
STORE = {
    "storage": "store",
    "store": {
        "url": "s3://bucket/prefix",
        "secret": "bucket",
        "env": {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://minio:9000"},
    },
    "broker": {"replicas": 3},
}
CERTIFICATES = {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "Issuer"}}}
MONITORING = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
}
SELECTED = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}]
MATRIX: dict[str, Any] = {
    "defaults": {},
    "one of each": {"gateway": {"replicas": 1, "podDisruptionBudget": None}},
    "several disks": {
        "disk": {"size": "1Ti", "storageClass": "fast", "annotations": {"backup": "no"}},
        "broker": {"replicas": 3, "routes": [{"match": "logs.*", "broker": 1},
                                             {"match": "2/*", "broker": 2}]},
        "console": {"enabled": True},
    },
    "a store": STORE,
    "a store by role": {
        "storage": "store",
        "store": {"url": "gs://bucket/prefix", "shards": 16},
        "broker": {"serviceAccountAnnotations": {"iam/role": "writes"}},
        "gateway": {"serviceAccountAnnotations": {"iam/role": "reads"},
                    "config": {"mesh.routes": ["logs.*=shard:2"]}},
    },
    "many gateways": {
        "gateway": {"autoscaling": {"enabled": True, "minReplicas": 3, "behavior": {
            "scaleDown": {"stabilizationWindowSeconds": 600}}}},
    },
    "names of pods": {
        "gateway": {"perPod": True, "replicas": 3, "listeners": {
            "outside": {**OUTSIDE, "advertised": "kafka-{pod}.example.org:443"}}},
        "tls": CERTIFICATES, "console": {"enabled": True}, "test": {
            "listener": "outside", "commandConfigSecret": "tester"},
    },
    "ports of nodes": {
        "gateway": {"perPod": True, "autoscaling": {"enabled": True, "maxReplicas": 4},
                    "listeners": {
            "nodes": {"port": 9095, "advertised": "node-{pod}.example.org:30000",
                      "expose": {"type": "NodePort", "nodePort": 30000,
                                 "annotations": {"pod": "{pod}"}}},
            "routes": {"port": 9096, "advertised": "kafka-{pod}.example.org:9096",
                       "expose": {"type": "ClusterIP"}},
        }},
    },
    "tls": {
        "tls": {"secret": "certificate", "clientCaSecret": "clients"},
        "gateway": {"listeners": {"internal": {"protocol": "SSL"}, "partners": {
            "port": 9096, "protocol": "SSL", "clientAuth": "required", "org": "acme"}}},
        "console": {"enabled": True},
        "test": {"enabled": False},
    },
    "sasl": {
        "tls": CERTIFICATES,
        "gateway": {"listeners": {"internal": None, "outside": OUTSIDE},
                    "superUsers": ["User:admin", "User:ops"],
                    "config": {"connections.max.reauth.ms": "1h"}},
        "console": {"enabled": True, "listener": "outside", "ingress": {
            "enabled": True, "host": "console.example.org", "className": "nginx",
            "tlsSecret": "console"}},
        "test": {"listener": "outside", "commandConfigSecret": "tester"},
    },
    "orgs": {
        "gateway": {"config": {"org.id": 7, "trace.org.ratios": ["8=0.5", "7=1.0"]}},
        "broker": {"gatewayRights": {"orgs": "1,7-9", "may": "serve"}, "allow": [
            {"node": "ab" * 32, "orgs": 7, "may": "snapshot"}, {"node": "cd" * 32}]},
    },
    "monitored": {
        **STORE, "monitoring": MONITORING, "operations": {"tokenSecret": "pages"},
        "console": {"enabled": True},
        "telemetry": {"otlpEndpoint": "http://collector:4318"},
        "networkPolicy": {"clients": SELECTED, "operations": SELECTED, "console": SELECTED,
                          "mesh": SELECTED},
    },
    "without extras": {
        "keys": {"create": False, "gatewaySecret": "g", "brokerSecret": "b"},
        "networkPolicy": {"enabled": False}, "test": {"enabled": False},
    },
    "tuned": {
        "fullnameOverride": "log", "imagePullSecrets": [{"name": "registry"}],
        "image": {"repository": "registry.example.org/quafka", "tag": "x"},
        "gateway": {"config": {"log.level": "debug", "fetch.cache.bytes": 268435456,
                               "max.connections": 20000, "trace.failed": False},
                    "tolerations": [{"operator": "Exists"}], "nodeSelector": {"kind": "net"},
                    "priorityClassName": "high", "podLabels": {"team": "a"},
                    "env": [{"name": "TZ", "value": "UTC"}],
                    "affinity": {"podAntiAffinity": {}}},
        "broker": {"config": {"log.retention.ms": "7d", "wal.segment.bytes": 1073741824},
                   "volumes": [{"name": "x", "emptyDir": {}}],
                   "volumeMounts": [{"name": "x", "mountPath": "/x"}],
                   "podAnnotations": {"a": "b"}},
    },
}  # fmt: skip
FIELDS = {"$(POD_IP)": "10.0.0.7", "$(POD_INDEX)": "2", "$(POD_NAME)": "try-quafka-gateway-2"}


@pytest.fixture(scope="module", params=MATRIX)
def rendered(request: pytest.FixtureRequest) -> list[Any]:
    return objects(render(MATRIX[request.param]))


def pods(found: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each object that makes pods, and its pod."""
    for each in found:
        pod = template(each)
        if pod is not None:
            yield each, pod


def containers(pod: Any) -> list[Any]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def programs(found: list[Any]) -> Iterator[tuple[str, Any, Any, dict[str, str]]]:
    """Each program, its pod, its container and its variables."""
    for _, pod in pods(found):
        for container in pod["spec"]["containers"]:
            (name, *_) = container.get("args", [""])
            if name in PROGRAMS:
                assert "command" not in container, "the image's entry point is the program"
                variables = {**IMAGE, **environment(found, container)}
                yield name, pod, container, expanded(variables, FIELDS)


def test_lint() -> None:
    done = subprocess.run(
        [program("helm"), "lint", "--strict", "--kube-version", "1.34", CHART],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("helm", "go", fetch=fetch_schemas)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_it(rendered: list[Any], version: str) -> None:
    assert [each for one in rendered for each in problems(one, version)] == []


def refused_by_the_server(found: list[Any]) -> str:
    """What the code of Kubernetes' server says against objects of its own kinds."""
    builtin = [each for each in found if each["apiVersion"].partition("/")[0] not in OPERATORS]
    return subprocess.run(
        [go_kubernetes()], input="\n---\n".join(map(json.dumps, builtin)),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.needs("helm", "go", fetch=go_kubernetes)
def test_the_server_accepts_it(rendered: list[Any]) -> None:
    assert refused_by_the_server(rendered) == ""


@pytest.mark.needs("go", fetch=go_kubernetes)
def test_the_server_accepts_the_plain_manifest() -> None:
    assert refused_by_the_server(objects(chart.MANIFEST.read_text())) == ""


@pytest.mark.needs("helm", "go", fetch=go_kubernetes)
def test_the_server_would_refuse_a_mistake() -> None:
    found = objects(render())
    gateway = named(found, "Deployment", "try-quafka-gateway")
    gateway["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "other"
    ports = named(found, "Service", "try-quafka-broker")["spec"]["ports"]
    ports[0]["name"] = ports[1]["name"]
    lines = refused_by_the_server(found).splitlines()
    assert [each.partition(":")[0] for each in lines] == [
        "Service try-quafka-broker", "Deployment try-quafka-gateway",
    ]  # fmt: skip


@pytest.mark.needs("helm", "go", fetch=fetch_schemas)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_would_refuse_a_mistake(version: str) -> None:
    found = objects(render(MATRIX["monitored"]))
    gateway = named(found, "Deployment", "try-quafka-gateway")
    gateway["spec"]["template"]["spec"]["containers"][0]["port"] = []
    monitor = named(found, "ServiceMonitor", "try-quafka-broker")
    monitor["spec"]["endpoints"][0]["intervall"] = "1s"
    service = named(found, "Service", "try-quafka")
    service["spec"]["ports"][0]["port"] = "internal"
    wrong = [each for one in found for each in problems(one, version)]
    assert len(wrong) == 3
    assert any("'port' was unexpected" in each for each in wrong)
    assert any("'intervall' was unexpected" in each for each in wrong)
    assert any("'internal' is not of type 'integer'" in each for each in wrong)


def test_every_variable_is_a_setting_with_an_allowed_value(rendered: list[Any]) -> None:
    seen: set[str] = set()
    for name, _, container, variables in programs(rendered):
        given = {each["name"] for each in container.get("env", [])}
        assert all(each not in given for each in IMAGE), "the ConfigMap has them"
        effective = load(PROGRAMS[name], {}, variables, known_to_any())
        assert getattr(effective.config, "log_format", "json") == "json"
        seen.add(name)
    assert seen >= {"gateway", "broker"}


def test_ports_agree(rendered: list[Any]) -> None:
    for name, _, container, variables in programs(rendered):
        declared = {(each["name"], each["containerPort"], each.get("protocol", "TCP"))
                    for each in container["ports"]}  # fmt: skip
        assert all(len(each) <= 15 for each, _, _ in declared)
        port = {key: int(variables[f"QUAFKA_{key.upper()}_LISTEN"].rpartition(":")[2])
                for key in ("ops", "mesh", "console")}  # fmt: skip
        if name == "console":
            assert declared == {("http", port["console"], "TCP")}
            continue
        expected = {("ops", port["ops"], "TCP")}
        if name == "broker":
            expected |= {("mesh", port["mesh"], "UDP"), ("mesh-bulk", port["mesh"], "TCP")}
        else:
            listeners = parse_endpoints(variables["QUAFKA_LISTENERS"])
            expected |= {(each.name.lower(), each.port, "TCP") for each in listeners}
        assert declared == expected
        probes = {container[each]["httpGet"]["path"]: container[each]["httpGet"]["port"]
                  for each in ("startupProbe", "livenessProbe", "readinessProbe")}  # fmt: skip
        assert probes == {"/livez": "ops", "/readyz": "ops"}


def selected(found: list[Any], labels: dict[str, str]) -> list[Any]:
    """The objects whose pods have these labels."""
    return [
        each for each, pod in pods(found) if labels.items() <= pod["metadata"]["labels"].items()
    ]


def one_selected(found: list[Any], selector: Any) -> Any:
    (workload,) = selected(found, selector["matchLabels"])
    return workload


def ports_of(workload: Any) -> dict[str, tuple[int, str]]:
    """A workload's ports by name: number and protocol."""
    return {
        port["name"]: (port["containerPort"], port.get("protocol", "TCP"))
        for port in template(workload)["spec"]["containers"][0]["ports"]
    }


def test_services_lead_to_ports_of_one_workload(rendered: list[Any]) -> None:
    for each in rendered:
        if each["kind"] != "Service":
            continue
        labels = dict(each["spec"]["selector"])
        pod = labels.pop("statefulset.kubernetes.io/pod-name", "")
        (workload,) = selected(rendered, labels)
        assert not pod or pod.rpartition("-")[0] == workload["metadata"]["name"]
        known = ports_of(workload)
        for port in each["spec"]["ports"]:
            number, protocol = known[port["targetPort"]]
            assert protocol == port.get("protocol", "TCP")
            # A headless Service translates no ports.
            assert each["spec"].get("clusterIP") != "None" or number == port["port"]


def test_workloads_select_their_own_pods(rendered: list[Any]) -> None:
    for each in rendered:
        if each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        assert one_selected(rendered, each["spec"]["selector"]) == each
        changing = {"app.kubernetes.io/version", "helm.sh/chart"}
        assert not changing & set(each["spec"]["selector"]["matchLabels"])
        for one in template(each)["spec"].get("topologySpreadConstraints", []):
            assert one_selected(rendered, one["labelSelector"]) == each


def test_network_policies_name_pods_and_their_ports(rendered: list[Any]) -> None:
    for each in rendered:
        if each["kind"] != "NetworkPolicy":
            continue
        known = ports_of(one_selected(rendered, each["spec"]["podSelector"]))
        for rule in each["spec"]["ingress"]:
            assert all(known[one["port"]][1] == one["protocol"] for one in rule["ports"])
            own = [peer for peer in rule.get("from", []) if "namespaceSelector" not in peer]
            assert all(selected(rendered, peer["podSelector"]["matchLabels"]) for peer in own)


def test_what_watches_pods_finds_them(rendered: list[Any]) -> None:
    for each in rendered:
        spec = each.get("spec", {})
        if each["kind"] == "PodDisruptionBudget":
            one_selected(rendered, spec["selector"])
        elif each["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            workload = named(rendered, target["kind"], target["name"])
            assert "replicas" not in workload["spec"], "an upgrade would undo its work"
        elif each["kind"] == "ServiceMonitor":
            labels = spec["selector"]["matchLabels"].items()
            services = [one for one in rendered if one["kind"] == "Service"]
            (service,) = (one for one in services if labels <= one["metadata"]["labels"].items())
            ports = {port["name"] for port in service["spec"]["ports"]}
            assert {one["port"] for one in spec["endpoints"]} <= ports


def names(found: list[Any]) -> set[str]:
    """The names that the cluster's DNS has."""
    known: set[str] = set()
    for each in found:
        if each["kind"] == "Service":
            known.add(f"{each['metadata']['name']}.{chart.NAMESPACE}.svc.cluster.local")
        elif each["kind"] == "StatefulSet":
            service = each["spec"]["serviceName"]
            assert named(found, "Service", service)["spec"]["clusterIP"] == "None"
            known |= {
                f"{each['metadata']['name']}-{number}.{service}.{chart.NAMESPACE}.svc.cluster.local"
                for number in range(each["spec"].get("replicas", 10))
            }
    return known


def test_addresses_are_names_that_resolve(rendered: list[Any]) -> None:
    known, outside = names(rendered), 0
    for name, _, _, variables in programs(rendered):
        texts = [variables.get(f"QUAFKA_{key}", "") for key in (
            "ADVERTISED_LISTENERS", "MESH_PEERS", "MESH_ROUTES", "CONSOLE_BROKERS",
            "CONSOLE_OPERATIONS")]  # fmt: skip
        found = re.findall(r"([a-zA-Z0-9.$()_-]+\.[a-z]+):[0-9]+", ",".join(texts))
        assert found or name == "broker" or variables["QUAFKA_BROKERS"]
        for host in found:
            assert host in known or host.endswith("example.org"), host
            outside += host.endswith("example.org")
        if variables.get("QUAFKA_MESH_ADVERTISED"):
            assert variables["QUAFKA_MESH_ADVERTISED"] == "10.0.0.7:9192"
    services = [each["metadata"]["name"] for each in rendered if each["kind"] == "Service"]
    assert bool(outside) == any(re.search("-(outside|nodes)(-|$)", each) for each in services)


def test_files_that_settings_name_are_mounted(rendered: list[Any]) -> None:
    for name, pod, container, variables in programs(rendered):
        mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        assert {each["name"] for each in mounts.values()} - set(volumes) <= {"data"}
        for key, value in variables.items():
            # The image names a data folder, which only brokers use.
            unused = key == "QUAFKA_DATA" and name != "broker"
            if value.startswith("/") and key.startswith("QUAFKA_") and not unused:
                folder = next(at for at in mounts if value.startswith(f"{at}/"))
                written = key in ("QUAFKA_DATA", "QUAFKA_CACHE")
                assert mounts[folder].get("readOnly", False) is not written
                volume = volumes.get(mounts[folder]["name"], {})
                assert value.removeprefix(f"{folder}/") in files_of(volume, value)


def files_of(volume: Any, asked: str) -> set[str]:
    """The files of a Secret's volume, as far as it is known; other volumes have what is asked."""
    secret = volume.get("secret", {})
    if "items" in secret:
        return {each["path"] for each in secret["items"]}
    if volume.get("name") == "keys":
        return KEYS_OF_THE_JOB
    return {asked.rpartition("/")[2]}


def test_pods_are_hardened(rendered: list[Any]) -> None:
    for each, pod in pods(rendered):
        spec = pod["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is (each["kind"] == "Job")
        assert spec["enableServiceLinks"] is False, "QUAFKA_PORT of a Service is no setting"
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_pods_have_time_to_stop() -> None:
    found = objects(render())
    gateway = template(named(found, "Deployment", "try-quafka-gateway"))["spec"]
    (sleep, seconds) = gateway["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    answers = 10  # docs/operations.md
    assert (sleep, gateway["terminationGracePeriodSeconds"] > int(seconds) + answers) == (
        "sleep", True,
    )  # fmt: skip


def test_brokers_are_upgraded_before_gateways() -> None:
    def images(values: dict[str, Any]) -> dict[str, set[str]]:
        return {
            each["metadata"]["name"]: {one["image"] for one in containers(pod)}
            for each, pod in pods(objects(render({"image": {"tag": "2"}, **values})))
        }

    new, old = {"quafka:2"}, {"quafka:1"}
    assert images({"gateway": {"imageTag": "1"}}) == {
        "try-quafka-gateway": old, "try-quafka-broker": new, "try-quafka-keys": new,
        "try-quafka-test": new,
    }  # fmt: skip
    assert images({"broker": {"imageTag": "1"}})["try-quafka-broker"] == old


def test_a_certificate_has_the_names_that_clients_use() -> None:
    public = {"outside": OUTSIDE, "internal": {"protocol": "PLAINTEXT"}}
    values = {"tls": CERTIFICATES, "test": {"enabled": False}}
    names_of = [
        named(
            objects(render({**values, "gateway": {"listeners": {**public, **more}}})),
            "Certificate", "try-quafka-tls",
        )["spec"]["dnsNames"]
        for more in ({}, {"internal": {"protocol": "SSL"}})
    ]  # fmt: skip
    assert names_of[0] == ["kafka.example.org"], "a public issuer would refuse another name"
    assert "try-quafka.data.svc.cluster.local" in names_of[1]


def test_clients_begin_at_a_name_in_the_certificate() -> None:
    found = objects(render(MATRIX["names of pods"]))
    test = named(found, "Pod", "try-quafka-test")["spec"]["containers"][0]
    assert environment(found, test)["QUAFKA_BROKERS"] == "kafka-0.example.org:443"
    dns = named(found, "Certificate", "try-quafka-tls")["spec"]["dnsNames"]
    assert dns == [f"kafka-{number}.example.org" for number in range(3)]


def test_names_fit_with_the_longest_release() -> None:
    values = {**MATRIX["names of pods"], "monitoring": MONITORING}
    for each in objects(render(values, release="r" * 53)):
        name = each["metadata"]["name"]
        longest = 63 - len("-0123456789") if each["kind"] == "StatefulSet" else 63
        assert len(name) <= longest
        for value in each["metadata"]["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value)


def test_alerts_and_dashboards_are_those_of_the_repository() -> None:
    found = objects(render(MATRIX["monitored"]))
    rule = named(found, "PrometheusRule", "try-quafka")
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    assert rule["spec"] == yaml.safe_load(alerts)
    for file in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        one = named(found, "ConfigMap", f"try-quafka-dashboard-{file.stem}")
        assert json.loads(one["data"][file.name]) == json.loads(file.read_text())
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
    jobs = {
        rule["replacement"]
        for each in found if each["kind"] == "ServiceMonitor"
        for endpoint in each["spec"]["endpoints"]
        for rule in endpoint["relabelings"] if rule["targetLabel"] == "job"
    }  # fmt: skip
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert jobs == {each["job_name"] for each in scraped["scrape_configs"]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"storge": "disk"}, "'storge' not allowed"),
    ({"storage": "disks"}, "value must be one of 'disk', 'store'"),
    ({"storage": "store"}, "store.url: set it, such as s3://bucket/prefix"),
    ({"store": {"url": "s3://b/p"}}, "set storage: store"),
    ({"broker": {"config": {"log.retentoin.ms": 1}}}, "'log.retentoin.ms' not allowed"),
    ({"gateway": {"config": {"listeners": "X://:1"}}}, "'listeners' not allowed"),
    ({"gateway": {"config": {"mesh.routes": ["*=a:1"]}}}, "set broker.routes"),
    ({"gateway": {"replicas": "two"}}, "got string, want integer"),
    ({"gateway": {"listeners": {"internal": None}}}, "gateway.listeners is empty"),
    ({"gateway": {"listeners": {"out": {"port": 9092}}}}, "9092 is the port of the listener"),
    ({"gateway": {"listeners": {"out": {"port": 9093}}}}, "the port of the operations pages"),
    ({"gateway": {"listeners": {"out": {}}}}, "missing property 'port'"),
    ({"gateway": {"listeners": {"internal": {"protocol": "SSL"}}}}, "set tls.secret"),
    ({"gateway": {"listeners": {"internal": {"protocol": "SASL_PLAINTEXT"}}}}, "clear text"),
    ({"gateway": {"listeners": {"internal": {"clientAuth": "required"}}}}, "needs protocol SSL"),
    ({"gateway": {"listeners": {"out": {"port": 1, "expose": {"type": "NodePort"}}}}},
     "set host:port at which clients outside reach it"),
    ({"gateway": {"listeners": {"out": {**OUTSIDE, "expose": {"port": 443}}}}},
     "properties 'type' required, if 'port' exists"),
    ({"gateway": {"perPod": True, "listeners": {"out": {**OUTSIDE, "protocol": "PLAINTEXT"}}}},
     "kafka-{pod}.example.org"),
    ({"gateway": {"listeners": {"internal": {"advertised": "k-{pod}.x:1"}}}},
     "needs gateway.perPod"),
    ({"gateway": {"env": [{"name": "QUAFKA_LOG_LEVEL", "value": "x"}]}},
     "set it in gateway.config"),
    ({"broker": {"replicas": 2}}, "brokers with disks do not share topics"),
    ({"broker": {"replicas": 2, "routes": [{"match": "a", "broker": 2}]}}, "there is no broker 2"),
    ({"broker": {"gatewayRights": {"may": "rule"}}}, "/broker/gatewayRights/may"),
    ({"broker": {"allow": [{"node": "ab"}]}}, "/broker/allow/0/node"),
    ({"broker": {"config": {"log": {"level": "debug"}}}}, "'log' not allowed"),
    ({"broker": {"config": {"log.level": {"a": 1}}}}, "/broker/config/log.level"),
    ({"keys": {"create": False}}, "set keys.gatewaySecret and keys.brokerSecret"),
    ({"tls": {"certManager": {"enabled": True}}}, "name an Issuer"),
    ({"tls": CERTIFICATES, "gateway": {"listeners": {"internal": {"protocol": "SASL_SSL"}}}},
     "set test.commandConfigSecret"),
    ({"tls": CERTIFICATES, "gateway": {"listeners": {"outside": OUTSIDE}}}, "User:ANONYMOUS"),
    ({"console": {"enabled": True, "listener": "web"}}, "there is no listener web"),
    ({"console": {"ingress": {"enabled": True}}}, "set the name that browsers use"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_wrong_values_are_refused_with_the_reason(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(chart.RefusedError, match=re.escape(reason)):
        render(values)


PAGE = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_values_on_the_page_are_accepted(example: str) -> None:
    for name, _, _, variables in programs(objects(render(yaml.safe_load(example)))):
        load(PROGRAMS[name], {}, variables, known_to_any())


def test_a_packaged_chart_is_complete(tmp_path: Path) -> None:
    subprocess.run(
        [program("helm"), "package", CHART, "--destination", tmp_path],
        capture_output=True, check=True,
    )  # fmt: skip
    (package,) = tmp_path.glob("*.tgz")
    values = MATRIX["monitored"]
    assert render(values, source=package) == render(values)


def test_the_plain_manifest_is_the_chart() -> None:
    assert chart.MANIFEST.read_text() == chart.manifest(), "python -m tests.support.chart"


@pytest.mark.needs("helm", "go", fetch=fetch_schemas)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_the_plain_manifest(version: str) -> None:
    found = objects(chart.MANIFEST.read_text())
    assert [each for one in found for each in problems(one, version)] == []
    assert "helm" not in chart.MANIFEST.read_text().partition("\n---\n")[2].lower()


def test_the_keys_job_may_do_what_it_does_and_no_more() -> None:
    found = objects(render())
    role = named(found, "Role", "try-quafka-keys")
    job = json.loads(environment(
        found, template(named(found, "Job", "try-quafka-keys"))["spec"]["containers"][0]
    )["KEYS"])  # fmt: skip
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]] == [
        ([job["gatewaySecret"], job["brokerSecret"]], ["get", "patch"]),
        (None, ["create"]),
    ]
    mounted = {
        volume["secret"]["secretName"]
        for _, pod in pods(found)
        for volume in pod["spec"].get("volumes", []) if volume["name"] == "keys"
    }  # fmt: skip
    assert mounted == {job["gatewaySecret"], job["brokerSecret"]}
