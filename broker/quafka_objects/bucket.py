"""A bucket of an object store, through `obstore` (extra `quafka[s3]`): S3, GCS, Azure and alike.

Credentials and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL, ...), from the machine's role, or from the options of the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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

from quafka_objects.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
)
from quafka_objects.store import Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

if TYPE_CHECKING:
    from obstore import ObjectMeta

_REASONS = {
    # The address at which the client asks for a machine's role, which it tries last.
    "169.254.169.254": "no credentials, as in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "403 Forbidden": "access is denied",
    "404 Not Found": "there is no such bucket",
    "Unable to recognise URL": "it names no bucket",
}
"""Reasons by a part of the library's message."""

# The function's type is known only where an Arrow library is installed.
_list = cast("Callable[..., Iterable[Sequence[ObjectMeta]]]", getattr(obstore, "list"))  # noqa: B009


class BucketStore(ObjectStore):
    """The objects below one URL."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """`options`: settings, by obstore's names, that take precedence over the environment.

        Raises:
            ObjectStoreError: the URL names no bucket, or an option is not known.
        """
        options = dict(options or {})
        endpoint = options.get("endpoint") or os.environ.get(
            "AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")
        )
        self.where = url
        with _translated(url):
            self._client = from_url(
                url,
                config=cast("Any", options),
                client_options={"allow_http": endpoint.startswith("http://")},
            )

    @property
    def is_remote(self) -> bool:
        return True

    # --- reads --------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return bytes(self.view(path, start, length))

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        if length == 0:
            return memoryview(b"")
        with self._translated(path):
            if length is None:
                return memoryview(obstore.get(self._client, path).bytes())[start:]
            return memoryview(obstore.get_range(self._client, path, start=start, length=length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]
        with self._translated(path):
            found = obstore.get_ranges(self._client, path, starts=starts, lengths=lengths)
            return [bytes(data) for data in found]

    def get(self, path: str) -> StoredObject:
        with self._translated(path):
            found = obstore.get(self._client, path)
            return StoredObject(bytes(found.bytes()), found.meta["e_tag"] or "")

    def exists(self, path: str) -> bool:
        try:
            with self._translated(path):
                obstore.head(self._client, path)
        except ObjectNotFoundError:
            return False
        return True

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        with self._translated(folder):
            for page in _list(self._client, prefix=folder or None, offset=after or None):
                for item in page:
                    yield ObjectInfo(item["path"], item["size"])

    def list_folders(self, folder: str) -> list[str]:
        with self._translated(folder):
            found = obstore.list_with_delimiter(self._client, f"{folder}/")
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    # --- writes -------------------------------------------------------------------------------

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        with self._translated(path):
            if isinstance(data, Buffer):
                obstore.put(self._client, path, bytes(data))
            else:
                obstore.put(self._client, path, (bytes(chunk) for chunk in data))

    def create(self, path: str, data: Buffer) -> ETag:
        return self._put_if(path, data, "create")

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        try:
            return self._put_if(path, data, {"e_tag": expected})
        except ObjectNotFoundError as e:
            raise ObjectChangedError(f"{self.where}/{path} does not exist any more") from e

    def _put_if(self, path: str, data: Buffer, mode: Any) -> ETag:
        """Put on a condition; a refusal is settled by what the object has."""
        with self._translated(path):
            try:
                return obstore.put(self._client, path, bytes(data), mode=mode)["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError):
                found = self._get_if_any(path)
                if found is None or found.data != data:
                    raise
                return found.etag

    def _get_if_any(self, path: str) -> StoredObject | None:
        try:
            return self.get(path)
        except ObjectNotFoundError:
            return None

    def delete(self, path: str) -> None:
        try:
            with self._translated(path):
                obstore.delete(self._client, path)
        except ObjectNotFoundError:
            return

    def _translated(self, path: str) -> AbstractContextManager[None]:
        return _translated(f"{self.where}/{path}" if path else self.where)


@contextmanager
def _translated(what: str) -> Generator[None]:
    """Raise the library's errors as those of `errors`."""
    try:
        yield
    except ObjectStoreError:
        raise
    except AlreadyExistsError as e:
        raise ObjectExistsError(f"{what} exists already") from e
    except PreconditionError as e:
        raise ObjectChangedError(f"{what} was changed by another writer: {_reason(e)}") from e
    except FileNotFoundError as e:
        raise ObjectNotFoundError(f"there is no {what}") from e
    except (PermissionDeniedError, UnauthenticatedError) as e:
        raise AccessDeniedError(f"{what}: access is denied ({_first_line(e)})") from e
    except BaseError as e:
        raise ObjectStoreError(f"{what}: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    line = _first_line(error)
    reason = next((_REASONS[text] for text in _REASONS if text in line), None)
    return f"{reason} ({line})" if reason else line


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(": <?xml")[0]
