"""Kafka's `ssl.principal.mapping.rules`, and the names that they read."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from quafka_gateway.principal_rules import NoRuleError, parse_rules, principal_name
from quafka_gateway.security.certificate_names import distinguished_name

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DUKE),
        ("", DUKE),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@acme/L", "duke@acme"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1-$2/U, DEFAULT", "DUKE-SERVICEUSERS"),
        (r"RULE:^cn=(.*?),ou=.*$/$1/L , DEFAULT", DUKE),
        (r"RULE:^CN=(?<who>[^,]*),.*$/${who}/", "Duke"),
        (r"RULE:^CN=(?P<who>[^,]*),.*$/$10/", "Duke0"),
        (r"RULE:^CN=([^,]*),.*$/\$$2\/$1/", "$$2/Duke"),
        (r"RULE:^CN=([^,]*)(x)?,.*$/<$1$2>/", "<Duke>"),
        (r"RULE:.*/X/", "XX"),  # as Java: the empty match at the end is replaced, too
        (r"RULE:CN=Duke/no/,RULE:.*O=(\w+),.*/$1/", "Org"),  # a pattern matches the whole name
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules: str, name: str) -> None:
    parsed = parse_rules(rules)
    assert principal_name(parsed, DUKE) == name
    assert parse_rules(",".join(map(str, parsed))) == parsed


@pytest.mark.parametrize(
    "rules",
    [
        "default", "DEFAULT DEFAULT", "RULE:^CN=(.*?)/$1", "RULE:(/x/", "RULE:a/${b}/",
        "RULE:a/b/X", "DEFAULT/L", "RULE:a//b/",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_rules(rules)


@pytest.mark.parametrize("pattern", [r"CN=\w*", r"CN=\d\w", r"CN=.\s.", r"(?i:CN=\u00c4x)"])
def test_classes_and_cases_are_of_ascii_as_in_java(pattern: str) -> None:
    for name in ("CN=\u00e4x", "CN=\u0663x", "CN=a\u2003x"):
        with pytest.raises(NoRuleError):
            principal_name(parse_rules(f"RULE:^{pattern}$/x/"), name)


def test_a_name_without_a_rule_has_no_principal() -> None:
    with pytest.raises(NoRuleError, match="no rule"):
        principal_name(parse_rules("RULE:^UID=(.*)$/$1/"), DUKE)


@pytest.mark.parametrize(("rules", "subject"), [("DEFAULT", ""), (r"RULE:^CN=(x?).*$/$1/", DUKE)])
def test_an_empty_name_is_refused(rules: str, subject: str) -> None:
    with pytest.raises(NoRuleError, match="empty"):
        principal_name(parse_rules(rules), subject)


A = NameAttribute
SUBJECTS = [
    (
        Name([A(NameOID.COUNTRY_NAME, "DE"), A(NameOID.ORGANIZATION_NAME, "Acme, Inc.")]),
        r"O=Acme\, Inc.,C=DE",
    ),
    (
        Name([A(NameOID.DOMAIN_COMPONENT, "org"), A(NameOID.STREET_ADDRESS, "1 Way"),
              A(NameOID.STATE_OR_PROVINCE_NAME, "BY"), A(NameOID.LOCALITY_NAME, "M"),
              A(NameOID.ORGANIZATIONAL_UNIT_NAME, "ou"), A(NameOID.USER_ID, "u1")]),
        "UID=u1,OU=ou,L=M,ST=BY,STREET=1 Way,DC=org",
    ),
    (
        Name([A(NameOID.EMAIL_ADDRESS, "a@b.c"), A(NameOID.COMMON_NAME, ' #x=+<>;"\\ y ')]),
        r"CN=\ \#x\=\+\<\>\;\"\\ y\ ,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (
        Name([RelativeDistinguishedName([A(NameOID.COMMON_NAME, "bob"),
                                         A(NameOID.SERIAL_NUMBER, "12")]),
              RelativeDistinguishedName([A(NameOID.COMMON_NAME, "Zoë\0Ж *@&!")])]),
        "CN=Zoë\\00Ж *@&!,2.5.4.5=#13023132+CN=bob",
    ),
    (Name([]), ""),
    (Name([A(NameOID.ORGANIZATION_NAME, "  "), A(NameOID.BUSINESS_CATEGORY, "long" * 40)]),
     "2.5.4.15=#0c81a0" + (b"long" * 40).hex() + ",O=\\ \\ "),
]  # fmt: skip


def certificate(subject: Name) -> x509.Certificate:
    key = generate_private_key(SECP256R1())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(Name([A(NameOID.COMMON_NAME, "ca")]))
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2036, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )


@pytest.mark.parametrize(("subject", "name"), SUBJECTS)
def test_a_subject_is_written_as_java_writes_it(subject: Name, name: str) -> None:
    assert distinguished_name(certificate(subject).public_bytes(Encoding.DER)) == name


JAVA = """
import java.io.*; import java.security.cert.*;
public class Names { public static void main(String[] files) throws Exception {
    var out = new PrintStream(System.out, true, "UTF-8");
    var factory = CertificateFactory.getInstance("X.509");
    for (String file : files) {
        var found = (X509Certificate) factory.generateCertificate(new FileInputStream(file));
        out.println(found.getSubjectX500Principal().getName()); } } }
"""


@pytest.mark.needs("java")
def test_java_agrees(tmp_path: Path) -> None:
    (tmp_path / "Names.java").write_text(JAVA)
    files: list[str] = []
    for number, (subject, _) in enumerate(SUBJECTS):
        path = tmp_path / f"{number}.pem"
        path.write_bytes(certificate(subject).public_bytes(Encoding.PEM))
        files.append(str(path))
    command = ("java", str(tmp_path / "Names.java"), *files)
    done = subprocess.run(command, check=True, capture_output=True)
    assert done.stdout.decode().splitlines() == [name for _, name in SUBJECTS]


def test_what_is_no_certificate_has_no_name() -> None:
    with pytest.raises(ValueError, match=r".*"):
        distinguished_name(b"0")
