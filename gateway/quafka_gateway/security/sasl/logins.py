"""The clients that are logged in with a password, so that a change of it ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.mechanism import Account
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.security import SecurityChange

_SLICE = 32
"""Connections closed in one turn: each takes some ten microseconds."""


class Login:
    """One client. `close` ends its connection, with a reason."""

    __slots__ = ("account", "close")

    def __init__(self, account: Account, close: Callable[[str], None]) -> None:
        self.account = account
        self.close = close


class Logins:
    """Closes the connections of users whose credential was changed or removed."""

    def __init__(self, accounts: Accounts, directory: Directory) -> None:
        self._accounts = accounts
        self._by_user: dict[tuple[int, str], dict[Login, None]] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        directory.listen(self._changed)

    def __len__(self) -> int:
        return sum(map(len, self._by_user.values()))

    def add(self, login: Login) -> None:
        """Watch a client's account. A client without a password is not watched."""
        if login.account.credential is not None:
            self._by_user.setdefault(login.account[:2], {})[login] = None

    def remove(self, login: Login) -> None:
        """The client is gone, or has logged in again."""
        user = login.account[:2]
        logins = self._by_user.get(user, {})
        logins.pop(login, None)
        if not logins:
            self._by_user.pop(user, None)

    def close(self) -> None:
        """Stop ending connections."""
        for task in self._closing:
            task.cancel()

    def _changed(self, changes: list[SecurityChange] | None) -> None:
        users: Iterable[tuple[int, str]]
        if changes is None:
            users = list(self._by_user)
        else:
            named = (change.user for change in changes if change.user is not None)
            asked = dict.fromkeys((user.org_id, user.name) for user in named)
            users = [user for user in asked if user in self._by_user]
        if users:
            task = asyncio.get_running_loop().create_task(self._revoke(users))
            self._closing[task] = None
            task.add_done_callback(self._closing.pop)

    async def _revoke(self, users: Iterable[tuple[int, str]]) -> None:
        slices = Slices(_SLICE)
        for user in users:
            for login in list(self._by_user.get(user, ())):
                credential = login.account.credential
                assert credential is not None, "others are not watched"
                if not self._accounts.holds(*user, credential):
                    login.close("the user's credential was changed or removed")
                await slices.done()
