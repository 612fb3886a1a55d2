"""A tenant's administrator with a certificate of name@org, while its org is renamed or deleted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema import quafka
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch, produce, values
from tests.support.raw_client import RawClient
from tests.support.sasl_users import seconds_until_closed

pytestmark = pytest.mark.long

LISTENERS = "INSIDE://127.0.0.1:0,MUTUAL://127.0.0.1:0"
SECONDS = 5.0
"""In which a connection is closed, on a busy machine."""


class Site:
    """A cluster whose own org has a secret topic, and alice of the org acme."""

    def __init__(self, cluster: Cluster, tls: ssl.SSLContext) -> None:
        self.cluster = cluster
        self._tls = tls

    def alter(self, **changes: object) -> None:
        """Change acme as an operator."""
        with RawClient(self.cluster.address_of("INSIDE")) as operator:
            request = quafka.AlterOrgRequest(**{"org": "acme", **changes})  # type: ignore[arg-type]
            answer = operator.call(request, quafka.AlterOrgResponse, 0)
            assert answer.error_code == 0, answer.error_message

    def connect(self) -> RawClient:
        """Connect as alice@acme."""
        return RawClient(self.cluster.address_of("MUTUAL"), tls=self._tls)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    ca = Authority(tmp_path)
    tls = ssl.create_default_context(cafile=ca.file)
    tls.load_cert_chain(ca.issue("alice@acme"))
    args = (
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,MUTUAL:SSL"),
        *("--ssl-certfile", str(ca.issue("server", ("127.0.0.1",)))),
        *("--ssl-ca-file", str(ca.file), "--ssl-client-auth", "none,MUTUAL:required"),
        *("--ssl-principal-mapping-rules", "RULE:^CN=(.*)$/$1/"),
        *("--super-users", "User:ANONYMOUS;User:alice@acme"),
    )
    with Cluster(tmp_path, gateway_args=args, listeners=LISTENERS) as cluster:
        with RawClient(cluster.address_of("INSIDE")) as operator:
            create_topic(operator, "operators")
            produce(operator, "operators", b"secret")
        yield Site(cluster, tls)


def _assert_refused(site: Site) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError)), site.connect() as client:
        client.call(quafka.DescribeOrgsRequest(), quafka.DescribeOrgsResponse, 0)


@pytest.mark.parametrize("change", [{"new_name": "other"}, {"state": "deleting"}])
def test_what_is_a_super_user_of_its_org_is_nobody_without_it(
    site: Site, change: dict[str, str]
) -> None:
    _assert_refused(site)  # the org was never there
    site.alter(create=True)
    with site.connect() as alice:
        create_topic(alice, "mine")
        produce(alice, "mine", b"v")
        assert values(fetch(alice, "mine", 0)) == [b"v"]
        orgs = alice.call(quafka.DescribeOrgsRequest(), quafka.DescribeOrgsResponse, 0)
        assert orgs.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert fetch(alice, "operators", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        site.alter(**change)
        assert seconds_until_closed(alice) < SECONDS
    _assert_refused(site)
