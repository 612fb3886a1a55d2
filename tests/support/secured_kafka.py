"""An Apache Kafka that asks its clients who they are: TLS, SASL and StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority
from tests.support.ports import lasting_port

ADMIN, PASSWORD = "admin", "adm in#1"
"""The super user."""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class SecuredKafka:
    """Listeners by security.protocol; each SASL listener takes all mechanisms."""

    def __init__(self, folder: Path, users: Sequence[str] = ()) -> None:
        """`users` may log in by PLAIN; the password of each is its name."""
        self.authority = Authority(folder / "ca")
        self.certificate = self.authority.issue("kafka", ("localhost", "127.0.0.1"))
        names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
        ports = {name: lasting_port() for name in names}
        settings = _settings(self.certificate, self.authority.file, users)
        self.kafka = ApacheKafka(folder / "kafka")
        ports["PLAINTEXT"] = self.kafka.port
        self.addresses = {name: f"localhost:{port}" for name, port in ports.items()}
        listeners = [f"{name}://localhost:{port}" for name, port in ports.items()]
        text = self.kafka.settings.read_text()
        controller = text.partition("listeners=")[2].partition(",CONTROLLER://")[2].split("\n")[0]
        settings["listeners"] = ",".join([*listeners, f"CONTROLLER://{controller}"])
        settings["advertised.listeners"] = ",".join(listeners)
        kinds = [f"{name}:{name}" for name in ports]
        settings["listener.security.protocol.map"] = ",".join([*kinds, "CONTROLLER:PLAINTEXT"])
        more = "\n".join(f"{name}={value}" for name, value in settings.items())
        self.kafka.settings.write_text(f"{text}\n{more}\n")

    def start(self) -> None:
        """Format with one user, and start."""
        scram = [f'SCRAM-SHA-{bits}=[name={ADMIN},password="{PASSWORD}"]' for bits in (256, 512)]
        self.kafka.format(*(word for each in scram for word in ("--add-scram", each)))
        self.kafka.start()


def _settings(certificate: Path, authority: Path, users: Sequence[str]) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "ssl.client.auth": "requested",
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS;User:CN=client",
        "connections.max.reauth.ms": "60000",
    }
    more = "".join(f' user_{name}="{name}"' for name in users)
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{_PLAIN} required user_{ADMIN}="{PASSWORD}"{more};'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_SCRAM} required;"
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = (
            f'{_BEARER} required unsecuredLoginStringClaim_sub="x";'
        )
    return settings


@contextmanager
def secured_kafka(folder: Path, users: Sequence[str] = ()) -> Generator[SecuredKafka]:
    """A started one."""
    secured = SecuredKafka(folder, users)
    secured.start()
    try:
        yield secured
    finally:
        secured.kafka.kill()
