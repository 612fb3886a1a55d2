"""The files that restrict the operations pages: what the settings know of page_access.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files that restrict the pages; None: that way is not used.

    Attributes:
        token: bearer tokens.
        certificate: certificates of the server, PEM; with it the pages are HTTPS.
        key: the certificate's key, PEM; None: it is in the same file.
        authorities: who signs the certificates of clients that may read the pages, PEM.
    """

    token: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
