"""Who may read the operations pages: everyone, or whoever has a token or a certificate.

The file of tokens has one per line, so that a new one can be introduced before the old one is
removed. The files are read again after they have changed: certificates and authorities into a new
context, because OpenSSL only adds authorities to one, and removes none.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from pathlib import Path
from weakref import WeakSet

from quafka_loop import file_modes
from quafka_telemetry.page_files import PageFiles
from quafka_telemetry.startup import StartupError

logger = logging.getLogger("quafka.operations")

_SHORTEST_TOKEN = 16
_MOST_TOKENS = 8
_LONGEST_FILE = 64 << 10
_SCHEME = b"bearer "

Version = tuple[int, int, int]
"""What shows that a file has changed."""


class PageAccess:
    """The rules of one operations port."""

    def __init__(self, files: PageFiles | None = None) -> None:
        """Read the files.

        Raises:
            StartupError: one cannot be used.
        """
        files = files or PageFiles()
        if files.authorities is not None and files.certificate is None:
            raise StartupError(
                "ops.ssl.ca.file needs ops.ssl.certfile: certificates are shown over TLS only"
            )
        self._files = files
        self._tokens: tuple[bytes, ...] = ()
        self._versions: dict[Path, Version] = {}
        self.context: ssl.SSLContext | None = None
        """For new connections; None: HTTP."""
        self._trusting: WeakSet[ssl.SSLContext] = WeakSet()  # with the present authorities
        try:
            self._read()
        except (OSError, ValueError) as e:
            raise StartupError(f"the operations pages: {_reason(e)}") from e

    @property
    def guarded(self) -> bool:
        """Whether the pages are not for everyone."""
        return self._files.token is not None or self._files.authorities is not None

    @property
    def encrypted(self) -> bool:
        """Whether the pages are HTTPS."""
        return self._files.certificate is not None

    def allows(self, authorization: bytes, *, certified_by: ssl.SSLContext | None) -> bool:
        """Whether a request may read every page.

        `authorization`: the header, b"" without one; `certified_by`: the context that has verified
        the client's certificate; None: the client has shown none.
        """
        self.refresh()
        if not self.guarded:
            return True
        token = authorization[len(_SCHEME) :].strip()
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            token = b""
        # Every token is compared, and each in constant time: timing reveals nothing.
        known = [hmac.compare_digest(token, each) for each in self._tokens]
        return any(known) or (certified_by is not None and certified_by in self._trusting)

    # --- files ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read again what has changed; keep what is valid if that fails."""
        try:
            if any(_version(path) != known for path, known in self._versions.items()):
                self._read()
        except (OSError, ValueError) as e:
            logger.warning("the last valid token and certificates stay in force: %s", _reason(e))

    def _read(self) -> None:
        files = self._files
        every = (files.token, files.certificate, files.key, files.authorities)
        paths = [each for each in every if each]
        before = self._versions
        self._versions = {path: _version(path) for path in paths}
        if files.token is not None:
            self._tokens = _read_tokens(files.token)
        if files.certificate is None:
            return
        context = _context(files.certificate, files.key, files.authorities)
        files = files or PageFiles()
        if files.authorities is not None:
            if before.get(files.authorities) != self._versions[files.authorities]:
                self._trusting.clear()
            self._trusting.add(context)
        self.context = context


def _read_tokens(path: Path) -> tuple[bytes, ...]:
    with path.open("rb") as file:
        found = [line.strip() for line in file.read(_LONGEST_FILE).splitlines() if line.strip()]
    if not 0 < len(found) <= _MOST_TOKENS:
        raise ValueError(f"{path} must have 1 to {_MOST_TOKENS} tokens, one per line")
    if any(len(token) < _SHORTEST_TOKEN for token in found):
        raise ValueError(f"a token in {path} is shorter than {_SHORTEST_TOKEN} characters")
    if file_modes.open_to_others(path, path.stat().st_mode):
        logger.warning("others may read the tokens in %s; chmod 600 it", path)
    return tuple(found)


def _context(certificate: Path, key: Path | None, authorities: Path | None) -> ssl.SSLContext:
    """A server's context. Raises OSError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as e:
        where = f"{certificate}" if key is None else f"{certificate} with {key}"
        raise ValueError(f"{where} is not a certificate and its key in PEM") from e
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except ssl.SSLError as e:
            raise ValueError(f"{authorities} is not a PEM file of certificates") from e
        # Optional: probes have no certificate, and read /livez and /readyz only.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _version(path: Path) -> Version:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)
