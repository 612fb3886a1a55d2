"""The programs and their settings."""

from __future__ import annotations

from quafka.sources import declared
from quafka_broker.config.settings import BROKER_OPERATIONS, BrokerConfig, LogSettings
from quafka_console.settings import ConsoleConfig, ConsoleSettings
from quafka_gateway.config import GATEWAY_OPERATIONS, EdgeSettings, GatewayConfig
from quafka_mesh_ops import settings
from quafka_mesh_ops.settings import CommonSettings, Setting, setting, settings_class

AUTO, ALWAYS, NEVER = "auto", "true", "false"
"""Whether `quafka up` runs the console."""


@settings_class
class UpConfig(LogSettings, EdgeSettings, ConsoleSettings):
    """The settings of `quafka up`: those of its programs, except how they find each other."""

    mesh_listen: str = setting(
        "127.0.0.1:0", "UDP address between gateway and broker; port 0 takes a free one",
        settings.address, settings.ADDRESS,
    )  # fmt: skip
    mesh_datagram_size: int | None = settings.mesh_datagram_size_setting()
    mesh_batched: bool = settings.mesh_batched_setting()
    mesh_records: str = settings.mesh_records_setting()
    mesh_bulk: str = settings.mesh_bulk_setting()
    gateway_ops_listen: str = settings.ops_listen_setting(GATEWAY_OPERATIONS, "the gateway's ")
    broker_ops_listen: str = settings.ops_listen_setting(BROKER_OPERATIONS, "the broker's ")
    console: str = setting(
        AUTO, "whether quafka up runs the console; auto: if the extra quafka[console] is installed",
        settings.choice(AUTO, ALWAYS, NEVER), "auto, true, false",
        brief="whether the web console runs: auto, true, false",
    )  # fmt: skip


PROGRAMS: dict[str, type[CommonSettings]] = {
    "up": UpConfig,
    "gateway": GatewayConfig,
    "broker": BrokerConfig,
    "console": ConsoleConfig,
}


def known_to_any() -> dict[str, Setting]:
    """The settings of all programs, which may share one file and one environment."""
    known: dict[str, Setting] = {}
    for config in PROGRAMS.values():
        known |= declared(config)
    return known
