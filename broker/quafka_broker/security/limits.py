"""Limits of users, rules and quotas."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.config.settings import LogSettings


@dataclass(frozen=True, slots=True)
class SecurityLimits:
    """The maximum numbers of users, rules and quota entities of an org, and of orgs."""

    orgs: int = 10_000
    org_users: int = 10_000
    org_rules: int = 10_000
    org_quotas: int = 10_000

    @classmethod
    def of(cls, config: LogSettings) -> SecurityLimits:
        """The limits by the broker's settings."""
        return cls(
            config.security_max_orgs,
            config.security_max_users_per_org,
            config.security_max_acls_per_org,
            config.security_max_quotas_per_org,
        )
