"""--command-config: Java's properties, Kafka's JAAS configuration, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka.cli import main
from quafka.commands import properties
from quafka.commands.kafka_client import Troubles, config
from quafka.commands.options import UsageError
from quafka.commands.security import VARIABLES, load, sends_password_in_clear
from quafka.sources import CLIENT_VARIABLES
from quafka.sources import load as load_settings
from quafka_client.errors import ClientError
from quafka_client.security import ClientProtocol, ClientSecurity
from quafka_gateway.config import GatewayConfig
from tests.support.certificates import Authority

_JAAS = "org.apache.kafka.common.security"


# --- properties -------------------------------------------------------------------------------


def test_java_properties() -> None:
    text = (
        "# comment\n! comment\n\n a = 1 \nb:2\nc 3\nd\ne=x\\\n   y\\n\\u00fc\\=\n"
        "f\\ g = h\r\nlast=\\\\\\\n z"
    )
    assert properties.parse(text) == {
        "a": "1 ", "b": "2", "c": "3", "d": "", "e": "xy\nü=", "f g": "h", "last": "\\z",
    }  # fmt: skip


@given(st.text(max_size=200))
def test_any_text_is_properties(text: str) -> None:
    properties.parse(text)


def test_jaas() -> None:
    text = f'{_JAAS}.scram.ScramLoginModule required username="a" password="p\\"w;\\\\" x=1;'
    assert properties.parse_jaas(text) == ("ScramLoginModule", {
        "username": "a", "password": 'p"w;\\', "x": "1",
    })  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.M REQUIRED x="1";', {"x": "1"}),
        ('M required // who\n /* and * how */ x="//1" /**/ y=\'/*2*/\' ; // end', {
            "x": "//1", "y": "/*2*/",
        }),
        ('M required x="a\\tb\\101\\4\\477\\q\\v";', {"x": "a\tbA\x04\x277q\v"}),
        ("M required;", {}),
    ],
)  # fmt: skip
def test_jaas_is_read_as_by_java(text: str, options: dict[str, str]) -> None:
    assert properties.parse_jaas(text) == ("M", options)


@given(st.text("M required\"'\\=;/*xX01\n ", max_size=60))
def test_any_jaas_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        properties.parse_jaas(f"M required{text}")


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "M required", 'M required password="secret"', 'M required password="secret',
        'M required password="secret"; N required;', "M required =secret;",
    ],
)  # fmt: skip
def test_wrong_jaas_shows_no_value(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        properties.parse_jaas(text)
    assert "secret" not in str(raised.value)


# --- files ------------------------------------------------------------------------------------


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "client.properties"
    path.write_text(text)
    path.chmod(mode)
    return path


def security(folder: Path, text: str, **environment: str) -> ClientSecurity:
    return load(written(folder, text), environment).security


def test_names_of_java_and_of_librdkafka(tmp_path: Path) -> None:
    java = security(
        tmp_path,
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'{_JAAS}.plain.PlainLoginModule required \\\n username="a" password="${{env:PW}}";',
        PW='b" required; "',
    )
    rdkafka = security(
        tmp_path,
        "security.protocol=sasl_plaintext\nsasl.mechanisms=PLAIN\nsasl.username=a\n"
        "sasl.password=${env:PW}\nbootstrap.servers=x:1\n",
        PW='b" required; "',
    )
    assert java == rdkafka
    assert java.credentials is not None
    assert java.credentials.password == 'b" required; "'
    assert config([("h", 1)], java, Troubles())["sasl.password"] == 'b" required; "'


def test_values_from_other_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("first\n")
    (tmp_path / "more").write_text("pw=second")
    base = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=a\n"
    for reference, environment, expected in (
        ("${file:pw}", {}, "first"),
        ("${file:more:pw}", {}, "second"),
        (f"${{file:{tmp_path / 'pw'}}}", {}, "first"),
        ("${file:pw}", {"QUAFKA_SASL_PASSWORD": "third"}, "third"),
        ("", {"QUAFKA_SASL_PASSWORD": "third"}, "third"),
    ):
        found = load(written(tmp_path, f"{base}sasl.password={reference}"), environment).security
        assert found.credentials is not None
        assert found.credentials.password == expected
    found = load(None, {name: "SASL_PLAINTEXT" if "PROTOCOL" in name else "PLAIN" for name in (
        "QUAFKA_SECURITY_PROTOCOL", "QUAFKA_SASL_MECHANISM", "QUAFKA_SASL_USERNAME",
        "QUAFKA_SASL_PASSWORD",
    )}).security  # fmt: skip
    assert found.protocol is ClientProtocol.SASL_PLAINTEXT
    assert load(None, {}).security == ClientSecurity()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sasl.pasword=x", "did you mean sasl.password.*They are: sasl"),
        ("sasl.mechanism=PLAIN", "security.protocol is not set"),
        ("security.protocol=TLS", "'TLS' is unknown"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is not set"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "GSSAPI; it is one of PLAIN"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "PLAIN needs a username"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER", "OAUTHBEARER needs a token"),
        ("security.protocol=SSL\nssl.truststore.type=JKS", "must be PEM"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "truststore must be PEM"),
        ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", "'TLSv1.1' is not one of"),
        ("sasl.password=${env:NOT_SET}", "NOT_SET is not set"),
        ("sasl.password=${dir:/run}", "a file of the folder /run is not named"),
        ("secruity.protocol=SSL", "did you mean security.protocol"),
        ("ssl.cipher.suites=X", "ssl.cipher.suites is not a setting"),
        ("sasl.password=${file:none}", "cannot read .*none: No such file"),
        ("sasl.jaas.config=x.Krb5LoginModule required;", "Krb5LoginModule is not supported"),
        (
            (
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
                'sasl.jaas.config=x.ScramLoginModule required username="a" password="b";'
            ),
            "ScramLoginModule, which is not for PLAIN",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        security(tmp_path, text)


def test_settings_of_other_clients_are_of_no_effect(tmp_path: Path) -> None:
    text = (
        "bootstrap.servers=a:1\nclient.dns.lookup=use_all_dns_ips\nacks=all\n"
        "sasl.login.refresh.window.factor=0.8\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=${dir:secrets:a}\n"
    )
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "a").touch(0o600)
    (tmp_path / "secrets" / "a").write_text("hush\n")
    found = load(written(tmp_path, text), {})
    assert found.security.credentials is not None
    assert found.security.credentials.password == "hush"
    (warning,) = found.warnings
    assert warning.endswith("of no effect here: client.dns.lookup, acks")


def test_a_file_that_others_can_read_is_warned_about(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\n"
    for mode, password, warns in ((0o644, "sasl.password=b", 1), (0o600, "sasl.password=b", 0)):
        found = load(written(tmp_path, text + password, mode), {})
        assert len(found.warnings) == warns
    found = load(written(tmp_path, text, 0o644), {"QUAFKA_SASL_PASSWORD": "b"})
    assert not found.warnings
    for host, clear in (("127.0.0.1", False), ("localhost", False), ("::1", False), ("h", True)):
        assert sends_password_in_clear(found.security, host) == clear


def test_secrets_are_in_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path, "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\n"
        "sasl.password=hushhush\nsasl.jaas.config=hushhush", 0o644,
    )  # fmt: skip
    assert main(["topics", "list", "-b", "127.0.0.1:1", "--command-config", str(path)]) == 2
    path.write_text(path.read_text().replace("\nsasl.jaas.config=hushhush", ""))
    assert main(["topics", "list", "-b", "127.0.0.1:1", "--command-config", str(path)]) == 1
    shown = capsys.readouterr()
    assert "chmod 600" in shown.err
    assert "hushhush" not in shown.err + shown.out
    assert "hushhush" not in repr(load(path, {}))


JAAS = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "


@pytest.mark.parametrize(
    ("setting", "in_the_file", "elsewhere"),
    [
        ("sasl.password=hush", True, False),
        ("sasl.password=${file:secret}", False, True),
        ("sasl.password=${dir:.:secret}", False, True),
        ("sasl.password=${file:secret}-hush", True, True),
        ("sasl.password=${env:HUSH}", False, False),
        (JAAS + 'username="a" password="hush";', True, False),
        (JAAS + 'username="a" password="${file:secret}";', False, True),
        (JAAS + 'username="a" password="${env:HUSH}";', False, False),
    ],
)
def test_the_warning_names_the_file_that_has_the_secret(
    tmp_path: Path, setting: str, in_the_file: bool, elsewhere: bool
) -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\n{setting}\n"
    config, secret = written(tmp_path, text, 0o644), tmp_path / "secret"
    secret.write_text("hushhush\n")
    secret.chmod(0o644)
    wanted = {path for path, has in ((config, in_the_file), (secret, elsewhere)) if has}
    warned = load(config, {"HUSH": "hush"}).warnings
    assert {Path(each.partition(" has secrets")[0]) for each in warned} == wanted
    assert len(warned) == len(wanted)
    for path in (config, secret):
        path.chmod(0o600)
    assert load(config, {"HUSH": "hush"}).warnings == []


def test_programs_ignore_the_variables_of_the_commands() -> None:
    assert set(VARIABLES) < CLIENT_VARIABLES
    load_settings(GatewayConfig, {}, dict.fromkeys(VARIABLES, "x"))


# --- certificates and tokens ------------------------------------------------------------------


def test_certificates_in_files_and_in_the_configuration(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    sealed, other = authority.issue("sealed", password="pw"), authority.issue("other")
    inline = sealed.read_text().replace("\n", "\\n\\\n")
    ca = authority.file.read_text().replace("\n", "\\n\\\n")
    base = f"security.protocol=SSL\nssl.ca.location={authority.file}\n"
    found = security(tmp_path, f"{base}ssl.keystore.location={sealed}\nssl.key.password=pw")
    assert config([("h", 1)], found, Troubles())["ssl.key.location"] == str(sealed)
    security(
        tmp_path,
        f"security.protocol=SSL\nssl.truststore.certificates={ca}\n"
        f"ssl.keystore.certificate.chain={inline}\nssl.keystore.key={inline}\nssl.key.password=pw",
    )
    for more in (f"ssl.keystore.location={sealed}\nssl.key.password=no",
                 f"ssl.keystore.location={sealed}",
                 f"ssl.keystore.location={sealed}\nssl.key.location={other}",
                 f"ssl.keystore.location={tmp_path / 'none'}"):  # fmt: skip
        with pytest.raises(ClientError, match="client's certificate or key"):
            security(tmp_path, base + more)
    with pytest.raises(ClientError, match="certificate authorities"):
        security(tmp_path, f"security.protocol=SSL\nssl.ca.location={tmp_path / 'none'}")


def test_people_sign_in_with_what_the_file_names(tmp_path: Path) -> None:
    file = tmp_path / "console.properties"

    def claim(*lines: str) -> str:
        file.write_text("\n".join(("security.protocol=SASL_PLAINTEXT", *lines)))
        loaded = load(file, {}, others_sign_in=True)
        assert loaded.security.credentials is None
        return loaded.token_claim

    assert claim() == claim("sasl.mechanism=SCRAM-SHA-512") == ""
    assert claim("sasl.mechanism=OAUTHBEARER") == "sub"
    named = "sasl.oauthbearer.sub.claim.name=email"
    assert claim("sasl.mechanism=OAUTHBEARER", named) == "email"
    with pytest.raises(UsageError, match="OAUTHBEARRER"):
        claim("sasl.mechanism=OAUTHBEARRER")
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token=a.b.c\n"
    )
    assert load(file, {}, others_sign_in=True).security.credentials is not None
