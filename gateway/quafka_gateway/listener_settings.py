"""The settings about listeners: addresses, protocols and TLS."""

from __future__ import annotations

from pathlib import Path

from quafka_gateway import principal_rules
from quafka_gateway.listeners import (
    BY_LISTENER,
    CLIENT_AUTH,
    DEFAULT_MAP,
    ENDPOINTS,
    PROTOCOL_MAP,
    TLS_VERSIONS,
    ByListener,
    Endpoint,
    KafkaListener,
    MappedProtocol,
    SecurityProtocol,
    TlsSettings,
    by_listener,
    check_names,
    listener_table,
    parse_endpoints,
    parse_org,
    parse_protocol_map,
    parse_tls_versions,
    value_for,
)
from quafka_gateway.principal_rules import PrincipalRule
from quafka_mesh_ops import settings
from quafka_mesh_ops.settings import OpsSettings, setting, settings_class
from quafka_telemetry.startup import StartupError

_LISTEN = "127.0.0.1:9092"
_PATHS = "a path for all listeners, or NAME:path, separated by commas"


@settings_class
class ListenerSettings(OpsSettings):
    """Where and how Kafka clients connect."""

    listen: str = setting(
        _LISTEN, "TCP address for Kafka clients if listeners is not set: one listener, "
        "PLAINTEXT; port 0 takes a free one", settings.address, settings.ADDRESS,
        brief="address for Kafka clients",
    )  # fmt: skip
    listeners: tuple[Endpoint, ...] = setting(
        (), "TCP addresses for Kafka clients, instead of listen; without a host: all interfaces; "
        "port 0 takes a free one", parse_endpoints, ENDPOINTS,
        brief="several addresses, with TLS or SASL, instead of listen",
    )  # fmt: skip
    advertised_listener: str = setting(
        "", "address that clients connect to, as Metadata returns it; default: the listen "
        "address, or this host's name if the listen address is all interfaces",
        settings.optional_address, settings.ADDRESS,
        brief="address that clients connect to, if not the listen address",
    )  # fmt: skip
    advertised_listeners: tuple[Endpoint, ...] = setting(
        (), "advertised.listener of each of listeners", parse_endpoints,
        ENDPOINTS,
    )  # fmt: skip
    listener_security_protocol_map: tuple[MappedProtocol, ...] = setting(
        DEFAULT_MAP, "protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL; a listener named as a protocol needs no entry",
        parse_protocol_map, PROTOCOL_MAP,
    )  # fmt: skip
    listener_org: tuple[ByListener[str], ...] = setting(
        (), "org of all clients of a listener, by id or name",
        by_listener(parse_org), BY_LISTENER,
    )  # fmt: skip
    listener_allow_plaintext_sasl: bool = setting(
        False, "allow listeners of protocol SASL_PLAINTEXT that other hosts reach: passwords and "
        "tokens cross the network in clear text", settings.boolean, "true, false",
    )  # fmt: skip
    ssl_certfile: tuple[ByListener[Path], ...] = setting(
        (), "PEM file of a TLS listener's certificate and its intermediate certificates; reread "
        "when it changes", by_listener(settings.path), _PATHS,
        brief="PEM file of the certificates of TLS listeners",
    )  # fmt: skip
    ssl_keyfile: tuple[ByListener[Path], ...] = setting(
        (), "PEM file of the certificate's key, not encrypted; default: it is in ssl.certfile",
        by_listener(settings.path), _PATHS,
        brief="PEM file of their key",
    )  # fmt: skip
    ssl_ca_file: tuple[ByListener[Path], ...] = setting(
        (), "PEM file of the authorities whose client certificates are accepted",
        by_listener(settings.path), _PATHS,
    )  # fmt: skip
    ssl_client_auth: tuple[ByListener[str], ...] = setting(
        (ByListener("", "none"),), "whether TLS clients need a certificate: none, requested or "
        "required; at a SASL_SSL listener only if the entry names it",
        by_listener(settings.choice(*CLIENT_AUTH)), BY_LISTENER,
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = setting(
        TLS_VERSIONS, "versions of TLS", parse_tls_versions, ", ".join(TLS_VERSIONS)
    )
    ssl_ciphers: str = setting(
        "ECDHE+AESGCM:ECDHE+CHACHA20", "ciphers of TLS 1.2; those of TLS 1.3 are fixed", str,
        "OpenSSL's names, separated by colons",
    )  # fmt: skip
    ssl_principal_mapping_rules: tuple[PrincipalRule, ...] = setting(
        principal_rules.DEFAULT, "how the name of a client's certificate becomes its principal",
        principal_rules.parse_rules, principal_rules.RULES,
    )  # fmt: skip

    def listener_table(self) -> tuple[KafkaListener, ...]:
        """The listeners, none of which has a bound address yet.

        Raises:
            StartupError: the settings about listeners contradict one another.
        """
        if self.advertised_listener and (self.listeners or self.advertised_listeners):
            raise StartupError(
                "advertised.listener belongs to listen: with listeners set advertised.listeners"
            )
        if self.listeners and self.listen != _LISTEN:
            raise StartupError("listen and listeners are both set; exactly one is needed")
        first = Endpoint("PLAINTEXT", *settings.split_address(self.listen))
        told = self.advertised_listeners
        if self.advertised_listener:
            at = settings.split_address(self.advertised_listener)
            told = (Endpoint("PLAINTEXT", *at),)
        endpoints = self.listeners or (first,)
        names = [each.name for each in endpoints]
        for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_file", "ssl_client_auth"):
            own = [each.name for each in getattr(self, name) if each.name]
            check_names(name.replace("_", "."), own, names)
        found = listener_table(
            endpoints, told, self.listener_security_protocol_map, self.listener_org, self._tls
        )
        for each in found:
            if each.protocol is SecurityProtocol.SASL_PLAINTEXT and not each.loopback:
                self._check_plaintext_sasl(each)
        return found

    def _check_plaintext_sasl(self, listener: KafkaListener) -> None:
        if not self.listener_allow_plaintext_sasl:
            raise StartupError(
                f"{listener.endpoint} is SASL_PLAINTEXT beyond loopback: passwords would cross the "
                "network in clear; use SASL_SSL, or set listener.allow.plaintext.sasl"
            )

    def _tls(self, name: str, protocol: SecurityProtocol) -> TlsSettings | None:
        """The TLS settings of a listener. Raises StartupError."""
        if not protocol.tls:
            return None
        certificate = value_for(self.ssl_certfile, name, None)
        if certificate is None:
            raise StartupError(f"listener {name} is {protocol}: it needs ssl.certfile")
        own = [each for each in self.ssl_client_auth if each.name or not protocol.sasl]
        client_auth = value_for(own, name, "none")
        authorities = value_for(self.ssl_ca_file, name, None)
        if client_auth != "none" and authorities is None:
            raise StartupError(
                f"listener {name}: ssl.client.auth = {client_auth} needs ssl.ca.file"
            )
        return TlsSettings(
            certificate,
            value_for(self.ssl_keyfile, name, certificate),
            None if client_auth == "none" else authorities,
            client_auth,
            self.ssl_enabled_protocols,
            self.ssl_ciphers,
            self.ssl_principal_mapping_rules,
        )
