"""Addresses of schema registries."""

from __future__ import annotations

from urllib.parse import urlsplit


def registry_url(text: str) -> str:
    """Parse the URL of a registry, without a user: flags and settings are no place for passwords.

    Raises ValueError.
    """
    parts = urlsplit(text)
    known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not known or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(text)
    return text.rstrip("/")
