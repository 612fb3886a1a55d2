"""`--command-config FILE` and the environment: how a client command connects and logs in.

The file has Kafka's properties, with Java's names or librdkafka's. The environment wins over it.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import ssl
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from quafka.commands import bearer, properties
from quafka.commands.options import UsageError
from quafka.sources import COMMAND_CONFIG_VARIABLE as FILE_VARIABLE
from quafka_client.sasl import MECHANISMS, OAUTHBEARER, PLAIN, Credentials, Token
from quafka_client.security import NONE, ClientProtocol, ClientSecurity, Pem, Tls
from quafka_loop import file_modes
from quafka_mesh_ops.suggestions import did_you_mean

VARIABLES = {
    "QUAFKA_SECURITY_PROTOCOL": "security.protocol",
    "QUAFKA_SASL_MECHANISM": "sasl.mechanism",
    "QUAFKA_SASL_USERNAME": "sasl.username",
    "QUAFKA_SASL_PASSWORD": "sasl.password",
    "QUAFKA_SASL_TOKEN": "sasl.oauthbearer.token",
    "QUAFKA_SSL_CA_LOCATION": "ssl.ca.location",
    "QUAFKA_SSL_KEY_PASSWORD": "ssl.key.password",
}
"""The variables, by what they stand for in a file."""
_SAME = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""Two names of one setting: Java's, and the one used here."""
_PEM_ONLY = ("ssl.truststore.type", "ssl.keystore.type")
_SECRET = frozenset(
    {
        "sasl.jaas.config", "sasl.password", "sasl.oauthbearer.token", "ssl.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret", "ssl.key.password",
        "ssl.keystore.password", "ssl.truststore.password",
    }
)  # fmt: skip
_NAME_CLAIM = "sasl.oauthbearer.sub.claim.name"
_KNOWN = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.username", "ssl.ca.location", "ssl.ca.pem",
        "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
        "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols",
        "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope",
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.config", _NAME_CLAIM,
        *_SECRET, *_SAME, *_PEM_ONLY,
    }
)  # fmt: skip
_IGNORED = frozenset(
    {
        "bootstrap.servers", "client.id", "ssl.protocol", "sasl.oauthbearer.method",
        "sasl.client.callback.handler.class",
        "config.providers", "ssl.provider", "ssl.secure.random.implementation",
        "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    }
)  # fmt: skip
_IGNORED_PREFIXES = ("config.providers.", "sasl.login.", "sasl.kerberos.")
"""Settings that such files also contain and that have no effect here."""
_ABOUT_SECURITY = ("security.", "sasl.", "ssl.")
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_MODULES = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The security of a command, and warnings for its user.

    `token_claim`: the claim that names a person who signs in with a bearer token; "": people do
    not, or with a password.
    """

    security: ClientSecurity
    warnings: Sequence[str]
    token_claim: str = ""


def load(
    path: Path | None, environment: Mapping[str, str] = os.environ, *, others_sign_in: bool = False
) -> Loaded:
    """Read the file and the environment.

    `others_sign_in`: a protocol that logs in needs no credentials, because people bring theirs.

    Raises:
        UsageError: a setting is unknown, missing or wrong.
        ClientError: a file of certificates cannot be used.
    """
    values: dict[str, str] = {}
    warnings: list[str] = []
    if path is not None:
        written = properties.parse(_read(path))
        values, others = _from_file(path, written, environment)
        if others:
            warnings.append(f"{path}: of no effect here: {', '.join(others)}")
        warnings += _too_open(path, written)
    jaas = _jaas(values, environment, path)
    values |= {key: environment[name] for name, key in VARIABLES.items() if environment.get(name)}
    if not values and not jaas:
        return Loaded(NONE, warnings)
    protocol = _protocol(values)
    tls = _tls(values) if protocol.encrypted else None
    security = ClientSecurity.of(protocol, tls, None)
    named = jaas | values
    claim = named.pop(_NAME_CLAIM, "sub")
    if not protocol.logs_in:
        return Loaded(security, warnings)
    if others_sign_in and _has_no_credentials(named):
        mechanism = named.get("sasl.mechanism")
        if mechanism is not None and mechanism not in MECHANISMS:
            raise UsageError(
                f"sasl.mechanism {mechanism} is unknown; it is one of {', '.join(MECHANISMS)}"
            )
        return Loaded(security, warnings, claim if mechanism == OAUTHBEARER else "")
    credentials = _credentials(named, security.context)
    return Loaded(ClientSecurity(protocol, security.tls, credentials, security.context), warnings)


def _has_no_credentials(values: Mapping[str, str]) -> bool:
    return not any(
        name == "sasl.username" or name.startswith(("sasl.oauthbearer.", "jaas."))
        for name in values
    )


def security_of(options: argparse.Namespace) -> Loaded:
    """The security that a command's options and the environment ask for."""
    path: Path | None = options.command_config
    if path is None and os.environ.get(FILE_VARIABLE):
        path = Path(os.environ[FILE_VARIABLE])
    return load(path)


def sends_password_in_clear(security: ClientSecurity, host: str) -> bool:
    """Whether the login sends its password or token to the host in readable form."""
    if security.protocol is not ClientProtocol.SASL_PLAINTEXT or security.credentials is None:
        return False
    return security.credentials.mechanism in (PLAIN, OAUTHBEARER) and not _is_here(host)


def is_readable_on_the_way(security: ClientSecurity, host: str) -> bool:
    """Whether data is readable on its way to the host."""
    return not security.protocol.encrypted and not _is_here(host)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- the file ---------------------------------------------------------------------------------


def _from_file(
    path: Path, written: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, str], Sequence[str]]:
    """The file's settings, each by one name, with references outside the JAAS config replaced;
    and the names of settings that are not about security."""
    found: dict[str, str] = {}
    others: list[str] = []
    for name, text in written.items():
        if name in _IGNORED or name.startswith(_IGNORED_PREFIXES):
            continue
        if name not in _KNOWN:
            _check_unknown(path, name)
            others.append(name)
            continue
        if name in _PEM_ONLY and text.upper() != "PEM":
            raise UsageError(
                f"{path}: {name} must be PEM; convert the store with `keytool -exportcert -rfc` "
                "or `openssl pkcs12`"
            )
        value = text if name == "sasl.jaas.config" else _expanded(path, name, text, environment)
        found[_SAME.get(name, name)] = value
    for store, kind in (
        ("ssl.ca.location", "truststore"),
        ("ssl.certificate.location", "keystore"),
    ):
        if found.get(store, "").endswith((".jks", ".p12", ".pfx")):
            raise UsageError(f"{path}: the {kind} must be PEM; convert it with keytool or openssl")
    return found, others


def _check_unknown(path: Path, name: str) -> None:
    """Raise UsageError about an unknown setting, unless it is one of Kafka's other clients."""
    hint = did_you_mean(name, _KNOWN)
    if not hint and not name.startswith(_ABOUT_SECURITY):
        return
    raise UsageError(
        f"{path}: {name} is not a setting of the client commands{hint or '.'} "
        f"They are: {', '.join(sorted(_KNOWN))}"
    )


def _expanded(path: Path, name: str, text: str, environment: Mapping[str, str]) -> str:
    def read(other: str) -> str:
        return _read(path.parent / other)

    try:
        return properties.expand(text, environment, read)
    except ValueError as e:
        raise UsageError(f"{path}: {name}: {e}") from e


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {getattr(e, 'strerror', None) or 'not text'}") from e


def _too_open(path: Path, written: Mapping[str, str]) -> list[str]:
    """Warnings about the files with secrets that other users may read."""
    secrets: list[str] = []
    for name, text in written.items():
        if name == "sasl.jaas.config":
            secrets += _secrets_of_jaas(text)
        elif _SAME.get(name, name) in _SECRET:
            secrets.append(text)
    files = [
        path.parent / name if name else path
        for each in secrets
        for name in properties.files_of(each)
    ]
    found: list[str] = []
    for file in dict.fromkeys(files):
        try:
            mode = stat.S_IMODE(file.stat().st_mode)
        except OSError:
            continue
        if file_modes.open_to_others(file, mode):
            found.append(
                f"{file} has secrets, and its mode {mode:o} lets others read it; chmod 600 it"
            )
    return found


def _secrets_of_jaas(text: str) -> list[str]:
    try:
        options = properties.parse_jaas(text).options
    except ValueError:
        return [text]  # refused below
    return [options[name] for name in ("password", "clientSecret") if name in options]


def _jaas(
    values: dict[str, str], environment: Mapping[str, str], path: Path | None
) -> dict[str, str]:
    """Remove sasl.jaas.config from the values; return its options by our names."""
    text = values.pop("sasl.jaas.config", None)
    if text is None or path is None:
        return {}
    try:
        module, options = properties.parse_jaas(text)
    except ValueError as e:
        raise UsageError(f"{path}: sasl.jaas.config: {e}") from e
    if module not in _MODULES:
        raise UsageError(
            f"{path}: sasl.jaas.config: {module} is not supported; use {', '.join(_MODULES)}"
        )
    names = {
        "username": "sasl.username",
        "password": "sasl.password",
        "clientId": "sasl.oauthbearer.client.credentials.client.id",
        "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
        "scope": "sasl.oauthbearer.scope",
        "unsecuredLoginStringClaim_sub": "jaas.subject",
    }
    found = {
        names[name]: _expanded(path, "sasl.jaas.config", value, environment)
        for name, value in options.items()
        if name in names
    }
    return found | {"jaas.module": module}


# --- interpretation ---------------------------------------------------------------------------


def _protocol(values: Mapping[str, str]) -> ClientProtocol:
    text = values.get("security.protocol")
    if text is None:
        raise UsageError(
            f"security.protocol is not set; it is one of {', '.join(ClientProtocol)}, in "
            "--command-config or QUAFKA_SECURITY_PROTOCOL"
        )
    try:
        return ClientProtocol(text.upper())
    except ValueError as e:
        raise UsageError(
            f"security.protocol {text!r} is unknown; it is one of {', '.join(ClientProtocol)}"
        ) from e


def _tls(values: Mapping[str, str]) -> Tls:
    algorithm = values.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise UsageError("ssl.endpoint.identification.algorithm is https, or none for no check")
    names = values.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").replace(" ", "").split(",")
    if unknown := [name for name in names if name not in _TLS_VERSIONS]:
        raise UsageError(
            f"ssl.enabled.protocols: {unknown[0]!r} is not one of {', '.join(_TLS_VERSIONS)}"
        )
    versions = sorted(_TLS_VERSIONS[name] for name in names)
    return Tls(
        _pem(values, "ssl.ca"),
        _pem(values, "ssl.certificate"),
        _pem(values, "ssl.key"),
        values.get("ssl.key.password", ""),
        algorithm == "https",
        versions[0],
        versions[-1],
    )


def _pem(values: Mapping[str, str], what: str) -> Pem | None:
    path, text = values.get(f"{what}.location", ""), values.get(f"{what}.pem", "")
    return Pem("" if text else path, text) if path or text else None


def _credentials(values: Mapping[str, str], tls: ssl.SSLContext | None) -> Credentials:
    mechanism = values.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise UsageError(
            f"sasl.mechanism {mechanism or 'is not set'}; it is one of {', '.join(MECHANISMS)}"
        )
    module = values.get("jaas.module")
    if module is not None and mechanism not in _MODULES[module]:
        raise UsageError(f"sasl.jaas.config has {module}, which is not for {mechanism}")
    if mechanism == OAUTHBEARER:
        return Credentials(mechanism, token=_token(values, tls))
    for name in ("sasl.username", "sasl.password"):
        if not values.get(name):
            known = name.removeprefix("sasl.")
            raise UsageError(
                f"{mechanism} needs a {known}: {name}, sasl.jaas.config, or "
                f"QUAFKA_SASL_{known.upper()}"
            )
    return Credentials(mechanism, values["sasl.username"], values["sasl.password"])


def _token(values: Mapping[str, str], tls: ssl.SSLContext | None) -> Callable[[], Token]:
    if value := values.get("sasl.oauthbearer.token"):
        return bearer.fixed(value)
    subject = values.get("jaas.subject") or _unsecured(values.get("sasl.oauthbearer.config", ""))
    if subject:
        return bearer.unsigned(subject)
    url = urlsplit(values.get("sasl.oauthbearer.token.endpoint.url", ""))
    if url.scheme == "file" and not url.netloc:
        return bearer.from_file(Path(unquote(url.path)))
    client = "sasl.oauthbearer.client.credentials.client."
    if url.scheme in ("http", "https"):
        if not values.get(f"{client}id"):
            raise UsageError(f"OAUTHBEARER needs {client}id and {client}secret")
        return bearer.Provider(
            url.geturl(),
            values[f"{client}id"],
            values.get(f"{client}secret", ""),
            values.get("sasl.oauthbearer.scope", ""),
            tls if url.scheme == "https" else None,
        )
    raise UsageError(
        "OAUTHBEARER needs a token: sasl.oauthbearer.token.endpoint.url (file:///PATH or https), "
        "sasl.oauthbearer.token, or QUAFKA_SASL_TOKEN"
    )


def _unsecured(config: str) -> str:
    """The principal of librdkafka's sasl.oauthbearer.config."""
    for part in config.split():
        name, _, value = part.partition("=")
        if name == "principal":
            return value
    return ""
