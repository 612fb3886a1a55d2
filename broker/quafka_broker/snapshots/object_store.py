"""An object store through `obstore` (extra `quafka[s3]`): S3, and what speaks like it.

Credentials and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL, ...).

The lock is an object that its holder writes anew every few seconds. Who finds one that does not
change for long enough, by his own clock, takes it over with a conditional write; a holder who was
only slow finds that out by his next write, and publishes nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from quafka_broker.snapshots.store import LOCK, Lock

if TYPE_CHECKING:
    from obstore import ObjectMeta

_RENEWALS = 6  # in the time after which a lock is taken over
_POLL_SECONDS = 0.5
_MEANT = {
    # Where a machine's role would be asked for, which is tried last.
    "169.254.169.254": "no credentials, as in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "403 Forbidden": "access is denied",
    "404 Not Found": "there is no such bucket",
    "Unable to recognise URL": "it names no bucket",
}
"""What the library's messages stand for."""

# Its type is known only where an Arrow library is installed.
_list = cast("Callable[..., Iterable[Sequence[ObjectMeta]]]", getattr(obstore, "list"))  # noqa: B009


class ObjectStore:
    """The objects under one URL."""

    def __init__(self, url: str, dead_seconds: float) -> None:
        self._url = url
        self._dead_seconds = dead_seconds
        endpoint = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", ""))
        with _said(url):
            self._store = from_url(
                url, client_options={"allow_http": endpoint.startswith("http://")}
            )

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        with _said(f"{self._url}/{path}"):
            if size is not None:
                return bytes(obstore.get_range(self._store, path, start=at, length=size))
            return self._content(path)[at:]

    def files(self, folder: str) -> dict[str, int]:
        with _said(f"{self._url}/{folder}"):
            pages = _list(self._store, prefix=folder)
            return {item["path"]: item["size"] for page in pages for item in page}

    def put(self, path: str, data: Iterable[bytes]) -> None:
        with _said(f"{self._url}/{path}"):
            obstore.put(self._store, path, iter(data))

    def publish(self, path: str, data: bytes) -> None:
        with _said(f"{self._url}/{path}"):
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                # The answer to a first try may have been lost, and a second one refused.
                if self._content(path) != data:
                    raise

    def _content(self, path: str) -> bytes:
        return bytes(obstore.get(self._store, path).bytes())

    def link(self, source: Path, path: str) -> bool:
        return False

    def remove(self, path: str) -> None:
        with _said(f"{self._url}/{path}"):
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                return

    @contextmanager
    def locked(self) -> Generator[Lock]:
        try:
            with _said(f"{self._url}/{LOCK}"):
                held = _Held(self, self._taken())
        except FileNotFoundError as e:
            raise FileNotFoundError("there is no such bucket") from e
        try:
            yield held
        finally:
            held.end()

    # --- the lock ---------------------------------------------------------------------------

    def write_lock(self, e_tag: str | None) -> str:
        """Write the lock object: as a new one, or in place of one that is known."""
        token = os.urandom(16)
        try:
            mode: Any = "create" if e_tag is None else {"e_tag": e_tag}
            return obstore.put(self._store, LOCK, token, mode=mode)["e_tag"] or ""
        except (AlreadyExistsError, PreconditionError):
            found = obstore.get(self._store, LOCK)
            if bytes(found.bytes()) != token:
                raise
            return found.meta["e_tag"] or ""  # as in `publish`

    @property
    def renew_seconds(self) -> float:
        """How often the lock is written."""
        return self._dead_seconds / _RENEWALS

    def _taken(self) -> str:
        try:
            return self.write_lock(None)
        except AlreadyExistsError:
            pass
        first = self._lock_e_tag()
        until = time.monotonic() + self._dead_seconds
        while first is not None and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            now = self._lock_e_tag()
            if now is not None and now != first:
                raise BlockingIOError(f"another command holds {self._url}/{LOCK}")
            if now is None:
                first = None
        try:
            return self.write_lock(first)
        except (AlreadyExistsError, PreconditionError) as e:
            raise BlockingIOError(f"another command holds {self._url}/{LOCK}") from e

    def _lock_e_tag(self) -> str | None:
        try:
            return obstore.head(self._store, LOCK)["e_tag"]
        except FileNotFoundError:
            return None


class _Held:
    """Our lock object, renewed in a thread."""

    def __init__(self, store: ObjectStore, e_tag: str) -> None:
        self._store = store
        self._e_tag = e_tag
        self._lost = ""
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="snapshot-lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        with _said(LOCK):
            self._write()

    def _write(self) -> None:
        if self._lost:
            raise OSError(f"the lock was lost: {self._lost}")
        with self._writing:
            try:
                self._e_tag = self._store.write_lock(self._e_tag)
            except (PreconditionError, AlreadyExistsError, FileNotFoundError) as e:
                self._lost = _first_line(e)
                raise OSError(f"the lock was lost: {self._lost}") from e

    def end(self) -> None:
        """Stop renewing; remove the object if it is still ours."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):  # else it is taken over some time later
            self.check()
            self._store.remove(LOCK)

    def _renew(self) -> None:
        failing_since: float | None = None
        while not self._ended.wait(self._store.renew_seconds):
            try:
                self._write()
                failing_since = None
            except OSError:
                return
            except BaseError as e:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > self._store.renew_seconds * 3:
                    self._lost = _first_line(e)
                    return


@contextmanager
def _said(what: str) -> Generator[None]:
    """The store's errors as OSErrors."""
    try:
        yield
    except AlreadyExistsError as e:
        raise FileExistsError(f"{what} exists already") from e
    except FileNotFoundError as e:
        raise FileNotFoundError(f"there is no {what}") from e
    except (PermissionDeniedError, UnauthenticatedError) as e:
        raise PermissionError(f"{what}: access is denied: {_first_line(e)}") from e
    except BaseError as e:
        raise OSError(f"{what}: {_first_line(e)}") from e


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    meant = next((_MEANT[text] for text in _MEANT if text in line), None)
    return f"{meant} ({line})" if meant else line
