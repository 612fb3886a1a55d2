"""The distinguished name of a certificate's subject, as Kafka's mapping rules read it. Pure.

The form is RFC 2253's, as Java's `X500Principal.getName` prints it: the most specific part first;
nine attributes have keywords, others their OID and, in hexadecimal, their value in DER.
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography import x509

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""Tags of ASN.1's kinds of strings."""
_ESCAPED = frozenset(',=+<>#;"\\')


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        ValueError: the certificate cannot be read.
    """
    subject = x509.load_der_x509_certificate(certificate).subject.public_bytes()
    (_, names, _), *_ = _elements(subject)
    parts = [_relative_name(name) for _, name, _ in _elements(names)]
    return ",".join(reversed(parts))


def _relative_name(attributes: bytes) -> str:
    return "+".join(_attribute(content) for _, content, _ in _elements(attributes))


def _attribute(attribute: bytes) -> str:
    (_, oid, _), (tag, value, encoded) = _elements(attribute)
    name = _dotted(oid)
    if name not in _KEYWORDS:
        return f"{name}=#{encoded.hex()}"
    if tag not in _STRINGS:
        return f"{_KEYWORDS[name]}=#{encoded.hex()}"
    return f"{_KEYWORDS[name]}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    def escape(letter: str) -> str:
        if letter == "\0":
            return "\\00"
        return f"\\{letter}" if letter in _ESCAPED else letter

    kept = text.strip(" ")
    begin = len(text) - len(text.lstrip(" "))
    end = len(text) - begin - len(kept)
    return "\\ " * begin + "".join(map(escape, kept)) + "\\ " * end


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the elements of DER: the tag, the content, and the whole. Raises ValueError."""
    at = 0
    while at < len(data):
        start, tag = at, data[at]
        size, at = _length(data, at + 1)
        if at + size > len(data):
            raise ValueError("DER ends early")
        yield tag, data[at : at + size], data[start : at + size]
        at += size


def _length(data: bytes, at: int) -> tuple[int, int]:
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    count = first & 0x7F
    return int.from_bytes(data[at : at + count], "big"), at + count


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
