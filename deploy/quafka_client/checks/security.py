"""Checks of security: certificates, open listeners, rules and operators."""

from __future__ import annotations

from datetime import UTC, datetime

from quafka_client.checks.findings import Report
from quafka_client.connection import ClientConnection
from quafka_loop import clock
from quafka_proto.schema.quafka import DescribeGatewayResponse

_SOON_DAYS = 14
_DAY = 86_400


def check_certificate(report: Report, connection: ClientConnection) -> None:
    """Check when the certificate of a TLS connection expires."""
    ends = connection.certificate_ends
    if ends is None:
        return
    days = (ends - clock.time()) / _DAY
    when = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
    message = f"the certificate of {connection.address} expires at {when}"
    if days < _SOON_DAYS:
        fix = "renew it; a gateway reads a new file without a restart"
        report.warn("certificate", f"{message}, in {max(days, 0):.0f} days", fix)
    else:
        report.ok("certificate", message)


def check_security(report: Report, gateway: DescribeGatewayResponse) -> None:
    """Check the gateway's report of its listeners and rules, which only operators may read."""
    for each in gateway.listeners:
        if each.open and not each.loopback:
            report.warn(
                "listeners",
                f"the listener {each.name} at {each.address} accepts everyone who reaches it: "
                f"{each.protocol} does not authenticate clients",
                "use SASL_SSL, or SSL with ssl.client.auth=required, or a loopback address",
            )
    closed = [each.name for each in gateway.listeners if not each.open]
    if closed and not gateway.authorizer:
        report.warn(
            "authorizer",
            f"clients of {', '.join(closed)} log in, but ACLs are not enforced: "
            "all of them may do everything",
            "remove authorizer=none from the settings of the gateway",
        )
    elif gateway.authorizer and not gateway.super_users:
        report.warn(
            "authorizer",
            "ACLs are enforced, and there is no super user, who could change them regardless of "
            "them",
            "set super.users of the gateway, for example to User:admin",
        )
    if gateway.security_problem:
        report.warn(
            "users",
            f"the gateway gets no updates of users, ACLs and quotas: {gateway.security_problem}",
            "start the broker of the last route, which keeps them, and let the gateway's node "
            "serve the org",
        )
    if len(closed) == len(gateway.listeners) and not gateway.security_problem:
        rules = "are" if gateway.authorizer else "are not"
        report.ok("security", f"every listener authenticates clients; ACLs {rules} enforced")
