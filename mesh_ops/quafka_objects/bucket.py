"""A bucket of an object store, through `obstore` (extra `quafka[s3]`): S3, GCS, Azure and others.

Credentials and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL, ...), from the machine's role, or from the options of the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

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
    TransientStoreError,
)
from quafka_objects.store import PART_BYTES, Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

if TYPE_CHECKING:
    from obstore import ObjectMeta

_DENIED = "403 Forbidden"
_REASONS = {
    # The client requests a machine's role from this address, which it tries last.
    "169.254.169.254": "no credentials, as in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    _DENIED: "access is denied",
    "404 Not Found": "there is no such bucket",
    "Unable to recognise URL": "it names no bucket",
}
"""Reasons, each by a part of the library's message."""
_TRANSIENT = re.compile(r"status code: (408|425|429|5\d\d)\b|HTTP error")
"""Parts of the library's messages about answers and connections that another attempt may not meet.
"""
_CONFLICT = "409 Conflict"
_CODE = re.compile(r"<Code>(\w+)</Code>")
_PARTS_AT_ONCE = 8

# The function's type is known only where an Arrow library is installed.
_list = cast("Callable[..., Iterable[Sequence[ObjectMeta]]]", getattr(obstore, "list"))  # noqa: B009


class BucketStore(ObjectStore):
    """The objects below one URL."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        attempt_seconds: float | None = None,
    ) -> None:
        """Open a bucket, without a request.

        Args:
            options: settings, by obstore's names, that take precedence over the environment.
            attempt_seconds: send each request once, with this timeout. Without it, the library
                repeats requests for up to three minutes.

        Raises:
            ObjectStoreError: the URL names no bucket, or an option is unknown.
        """
        options = dict(options or {})
        endpoint = options.get("endpoint") or os.environ.get(
            "AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")
        )
        self.where = url
        # A directory bucket of S3 Express lists its objects in any order.
        self._lists_unordered = urlsplit(url).netloc.endswith("--x-s3")
        client: dict[str, Any] = {"allow_http": endpoint.startswith("http://")}
        more: dict[str, Any] = {}
        if attempt_seconds is not None:
            client["timeout"] = timedelta(seconds=attempt_seconds)
            more["retry_config"] = {"max_retries": 0, "retry_timeout": client["timeout"]}
        with _translated(url):
            self._client = from_url(
                url, config=cast("Any", options), client_options=cast("Any", client), **more
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
        found = self._list(folder, after)
        return iter(sorted(found)) if self._lists_unordered else found

    def _list(self, folder: str, after: str) -> Iterator[ObjectInfo]:
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
            obstore.put(
                self._client,
                path,
                bytes(data) if isinstance(data, Buffer) else (bytes(chunk) for chunk in data),
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def create(self, path: str, data: Buffer) -> ETag:
        return self._put_if(path, data, "create", None)

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        try:
            return self._put_if(path, data, {"e_tag": expected}, expected)
        except ObjectNotFoundError as e:
            raise ObjectChangedError(f"{self.where}/{path} does not exist any more") from e
        except ObjectExistsError as e:  # the library's name for a conflict of two writers
            raise ObjectChangedError(f"{self.where}/{path} was changed by another writer") from e

    def _put_if(self, path: str, data: Buffer, mode: Any, expected: ETag | None) -> ETag:
        """Put on a condition; after a refusal, the object's content decides.

        A store may report a conflict of two simultaneous writers before either has written: then
        the object is as the caller expects it, and the call may be repeated.
        """
        with self._translated(path):
            try:
                return obstore.put(self._client, path, bytes(data), mode=mode)["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError) as e:
                found = self._get_if_any(path)
                if found is not None and found.data == data:
                    return found.etag
                if _CONFLICT in str(e) and (found.etag if found else None) == expected:
                    message = f"{self.where}/{path}: another write is under way"
                    raise TransientStoreError(message) from e
                raise

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
        if _DENIED in str(e):  # a list's refusal has no class of its own
            raise AccessDeniedError(f"{what}: {_reason(e)}") from e
        transient = _known(line := _first_line(e)) is None and _TRANSIENT.search(line)
        raise (TransientStoreError if transient else ObjectStoreError)(
            f"{what}: {_reason(e)}"
        ) from e


def _reason(error: Exception) -> str:
    line = _first_line(error)
    reason = _known(line)
    return f"{reason} ({line})" if reason else line


def _known(line: str) -> str | None:
    return next((_REASONS[text] for text in _REASONS if text in line), None)


def _first_line(error: Exception) -> str:
    """The library's message, with the store's own code in place of its whole answer."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0].partition(": <Error")[0]
    code = _CODE.search(str(error))
    return f"{line}: {code[1]}" if code is not None else line
