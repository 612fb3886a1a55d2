"""ACLs: who may do what; rules are added and removed one by one."""

from __future__ import annotations

from nicegui import ui

from quafka_client.acls import Acl
from quafka_client.errors import ClientError, RequestRefusedError
from quafka_console.data.access import (
    AccessQuery,
    acl_page,
    add_rule,
    described,
    remove_rule,
)
from quafka_console.data.paging import PageOf
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed, discard
from quafka_console.views.parts.table import Column, Shown
from quafka_console.views.searched import SearchedList
from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from quafka_proto.errors import ErrorCode

PATH = "/acls"
_COLUMNS = (
    Column("principal", "Principal", wide=True),
    Column("permission", "Permission"),
    Column("operation", "Operation"),
    Column("kind", "Resource"),
    Column("resource", "Name", wide=True),
    Column("pattern", "Pattern"),
    Column("host", "From host"),
)
_NOT_RULES = {"UNKNOWN", "ANY", "MATCH"}


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    try:
        await acl_page(session.cluster, AccessQuery("", 0))
    except RequestRefusedError as e:
        if e.code != ErrorCode.SECURITY_DISABLED:
            raise
        states.empty(
            "No authorizer is configured",
            "Every client may do everything. To have rules, start gateways with authorizer=acl.",
        )
        return

    async def read(search: str, number: int) -> PageOf[Acl]:
        return await acl_page(session.cluster, AccessQuery(search, number))

    async def remove(rule: Acl) -> None:
        sure = await confirmed(
            "Remove this rule?", rule.resource,
            [formats.shown(described(rule), 400), "It counts at all gateways within a second."],
            "Remove the rule",
        )  # fmt: skip
        if sure:
            await _try(session, "remove ACL", rule)
            await found.refresh()

    found = SearchedList(
        PATH, "rules", _COLUMNS, read, _row,
        ("No rules", "Only super users may do anything, unless the authorizer is off."),
        pick=remove if session.may_write else None, picks="Select a rule to remove it.",
    )  # fmt: skip
    if session.may_write:

        async def add() -> None:
            await _rule_dialog(session)
            await found.refresh()

        ui.button("Add a rule", icon="add", on_click=add).props("outline dense no-caps")
    await found.build(query)


async def _try(session: ConsoleSession, act: str, rule: Acl) -> None:
    try:
        with audited(session, act, described(rule)):
            await (remove_rule if act == "remove ACL" else add_rule)(session.cluster, rule)
    except ClientError as e:
        ui.notify(formats.shown(str(e), 300), type="negative")


def _row(rule: Acl) -> list[str | Shown]:
    return [
        formats.shown(rule.principal),
        Shown(rule.permission.lower(), bad=rule.permission == "DENY"),
        rule.operation.lower().replace("_", " "),
        rule.resource_type.lower().replace("_", " "),
        formats.shown(rule.resource),
        rule.pattern.lower(),
        formats.shown(rule.host),
    ]


async def _rule_dialog(session: ConsoleSession) -> None:
    kinds = [each.name for each in ResourceKind if each.name not in _NOT_RULES]
    operations = [each.name for each in Operation if each.name not in _NOT_RULES]
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label("Add a rule").classes("text-h6")
        principal = ui.input(label="principal", value="User:").props("outlined dense autofocus")
        kind = ui.select(kinds, value="TOPIC", label="resource")
        resource = ui.input(label="name, or * for all").props("outlined dense")
        pattern = ui.select([Pattern.LITERAL.name, Pattern.PREFIXED.name], value="LITERAL",
                            label="pattern")  # fmt: skip
        operation = ui.select(operations, value="READ", label="operation")
        permission = ui.select([Permission.ALLOW.name, Permission.DENY.name], value="ALLOW",
                               label="permission")  # fmt: skip
        host = ui.input(label="from host", value="*").props("outlined dense")
        for each in (principal, kind, resource, pattern, operation, permission, host):
            each.classes("w-full").props("outlined dense options-dense")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Add the rule", on_click=lambda: dialog.submit(True)).props("no-caps")
    if await dialog:
        rule = Acl(
            str(kind.value), _text(resource), str(pattern.value), _text(principal),
            _text(host), str(operation.value), str(permission.value),
        )  # fmt: skip
        await _try(session, "add ACL", rule)
    discard(dialog)


def _text(given: ui.input) -> str:
    return (given.value or "").strip()
