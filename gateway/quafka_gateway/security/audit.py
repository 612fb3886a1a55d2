"""The audit log: administrative acts and logins, one JSON object per line.

A line records who did what, from where, and how it ended. A thread writes the queued lines, so a
slow disk delays no client. If the queue is full, lines are dropped and counted, and the next line
that is written has their number. The same holds for the lines of a client that is refused very
often (`line_limit`). docs/security.md describes the fields.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Collection
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Any, TextIO

from quafka_gateway.security.audit_details import errors_in, request_fields
from quafka_gateway.security.line_limit import FirstOf, LineLimit
from quafka_gateway.security.session import ClientSession
from quafka_loop import clock, threads
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import NO_SPAN, Span

logger = logging.getLogger("quafka.gateway.audit")

_QUEUED = 10_000
_CLOSE_SECONDS = 5.0
_QUIET_SECONDS = 60.0
_LINES_PER_SECOND, _BURST = 20, 500
_DENIED_SECONDS = 60.0
OFF, STDERR, AUTO = "off", "stderr", "auto"

E = ErrorCode
DENIALS = frozenset(
    {
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""Kafka's codes for what the authorizer does not allow."""


class AuditLog:
    """Where acts and logins are recorded. Without a handler it records nothing.

    Attributes:
        lines: lines handed to the writer.
        dropped: lines that the full queue did not take.
        limit: bounds the lines of failed acts of one org, and of logins from one host.
    """

    def __init__(self, handler: logging.Handler | None = None, queued: int = _QUEUED) -> None:
        self.lines = self.dropped = 0
        self.limit = LineLimit(_LINES_PER_SECOND, _BURST)
        self._denied = FirstOf(_DENIED_SECONDS)
        self._handler = handler
        self._reported = 0  # of the dropped lines
        self._queue: threads.SimpleQueue[dict[str, Any] | None] = threads.SimpleQueue()
        self._most_queued = queued
        self._writer: threads.Thread | None = None
        if handler is not None:
            self._writer = threads.Thread(target=self._write, name="audit", daemon=True)
            self._writer.start()

    def wants(self, span: Span) -> bool:
        """Whether an act is recorded anywhere: here, or in its trace."""
        return self._handler is not None or span.context is not None

    def act(
        self,
        session: ClientSession,
        request: Message,
        response: Message | None,
        errors: Collection[int],
        *,
        client_host: str,
        client_id: str | None = None,
        request_id: str = "",
        span: Span = NO_SPAN,
    ) -> None:
        """Record a request that changes something for more than its own client.

        `response` None: there is none to look into, and `errors` has what is known.
        """
        api = type(request).__name__.removesuffix("Request")
        outcome = outcome_of(errors)
        if span.context is not None:
            about = {
                semconv.OPERATION: api,
                semconv.OUTCOME: outcome,
                semconv.PRINCIPAL: session_name(session),
            }
            span.event(semconv.AUDIT, about)
        missing = 0
        if errors:  # what succeeds is bounded by what a broker can make durable
            passed = self.limit.take(session.tenant.org_id, clock.monotonic())
            if passed is None:
                return
            missing = passed
        failed = errors_in(response) if errors and response is not None else []
        self._put(
            {
                "event": "act",
                "act": api,
                "outcome": outcome,
                "errors": sorted(map(ErrorCode.name_of, errors)),
                **_who(session, client_host),
                "client_id": client_id or "",
                "request_id": request_id,
                "trace_id": "" if span.context is None else span.context.trace_hex,
                "request": request_fields(request),
                **({"failed": failed} if failed else {}),
            },
            missing,
        )

    def denied(
        self,
        session: ClientSession,
        request: Message,
        response: Message | None,
        errors: Collection[int],
        *,
        client_host: str,
        client_id: str | None = None,
    ) -> None:
        """Record that a request which changes nothing was denied, even in part.

        Of equal ones, by principal, API and resources, the first in a minute.
        """
        if self._handler is None:
            return
        api = type(request).__name__.removesuffix("Request")
        failed = errors_in(response) if response is not None else []
        about = {"failed": failed} if failed else {"request": request_fields(request)}
        org, now = session.tenant.org_id, clock.monotonic()
        if not self._denied.take((org, session.principal, api, repr(about)), now):
            return
        missing = self.limit.take(org, now)
        if missing is None:
            return
        line = {
            "event": "read",
            "act": api,
            "outcome": "denied",
            "errors": sorted(map(ErrorCode.name_of, errors)),
            **_who(session, client_host),
            "client_id": client_id or "",
            **about,
        }
        self._put(line, missing)

    def login(self, session: ClientSession, client_host: str) -> None:
        """Record that a client has authenticated, or has done so again."""
        self._put_login(
            client_host, {"event": "login", "outcome": "allowed", **_who(session, client_host)}
        )

    def login_refused(
        self, listener: str, mechanism: str, user: str, client_host: str, reason: str
    ) -> None:
        """Record that a client has not authenticated. `user`: the name that it gave, or ""."""
        self._put_login(
            client_host,
            {
                "event": "login",
                "outcome": "denied",
                "principal": f"User:{user[:_LONGEST_USER]}" if user else "",
                "mechanism": mechanism,
                "listener": listener,
                "from": client_host,
                "reason": reason,
            },
        )

    def close(self) -> None:
        """Write what is queued, for a few seconds at most."""
        if self._writer is None or self._handler is None:
            return
        self._queue.put(None)
        self._writer.join(_CLOSE_SECONDS)

    # --- writing ----------------------------------------------------------------------------

    def _put_login(self, client_host: str, line: dict[str, Any]) -> None:
        missing = self.limit.take(client_host, clock.monotonic())
        if missing is not None:
            self._put(line, missing)

    def _put(self, line: dict[str, Any], suppressed: int) -> None:
        if self._handler is None:
            return
        if suppressed:
            line["suppressed_before"] = suppressed
        if self._queue.qsize() >= self._most_queued:
            self.dropped += 1
            return
        now = clock.utc_now().isoformat(timespec="milliseconds")
        self._queue.put({"time": now, **line})
        self.lines += 1

    def _write(self) -> None:
        handler = self._handler
        assert handler is not None
        while (line := self._queue.get()) is not None:
            missing = self.dropped - self._reported
            if missing:
                self._reported += missing
                line = {**line, "dropped_before": missing}
            text = _one_line(line)
            handler.emit(logging.LogRecord("quafka.audit", logging.INFO, "", 0, text, None, None))
        handler.close()


_LONGEST_USER = 256


def _one_line(fields: dict[str, Any]) -> str:
    """JSON that every reader takes for one line: U+2028 in a client's name ends a line for some."""
    text = json.dumps(fields, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def outcome_of(errors: Collection[int]) -> str:
    """allowed, denied (in part, if other parts were allowed), or failed for another reason."""
    if any(code in DENIALS for code in errors):
        return "denied"
    return "failed" if errors else "allowed"


def session_name(session: ClientSession) -> str:
    """The principal, with its org."""
    return f"{session.principal}@{session.tenant.name}"


def _who(session: ClientSession, client_host: str) -> dict[str, Any]:
    return {
        "principal": str(session.principal),
        "org": session.tenant.name,
        "org_id": session.tenant.org_id,
        "mechanism": session.mechanism,
        "listener": session.listener,
        "from": client_host,
    }


# --- where lines go ---------------------------------------------------------------------------


def open_audit_log(where: str, *, authenticates: bool) -> AuditLog:
    """The audit log of a gateway: `where` is auto, off, stderr or the path of a file.

    `authenticates`: whether any listener authenticates clients; auto is stderr then.

    Raises:
        StartupError: the file cannot be opened.
    """
    if where == OFF or (where == AUTO and not authenticates):
        return AuditLog()
    if where in (AUTO, STDERR):
        return AuditLog(_Stream(sys.stderr))
    try:
        return AuditLog(_File(where, encoding="utf-8"))
    except OSError as e:
        reason = e.strerror or str(e)
        raise StartupError(f"cannot write the audit log {where}: {reason}") from e


class _Stream(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Lose the line: stderr's reader is gone, and there is nowhere to report it."""


class _File(WatchedFileHandler):
    """Appends to a file, which may be renamed at any time (logrotate): a new one is begun."""

    def __init__(self, path: str, encoding: str) -> None:
        self._failed_at = 0.0
        super().__init__(path, encoding=encoding)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)

    def emit(self, record: logging.LogRecord) -> None:
        """Append the line; a disk that is full or gone is reported once a minute."""
        try:
            super().emit(record)
        except OSError:  # the file's folder is gone
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Report that a line is lost."""
        if clock.monotonic() - self._failed_at > _QUIET_SECONDS or not self._failed_at:
            self._failed_at = clock.monotonic()
            reason = sys.exc_info()[1]
            logger.error("lines of the audit log %s are lost: %s", self.baseFilename, reason)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
