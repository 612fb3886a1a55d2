"""From the name that a client gives to its org and credential. Pure.

A name without an account gets a credential all the same: made up, always the same for the same
name, and shaped like those of the org. So an exchange with an unknown name costs what one with a
known name costs, looks like it, and fails at the proof.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.org_of import NO_ORG, OrgUser, org_of, org_of_token
from quafka_gateway.security.sasl.passwords import HASHES
from quafka_mesh_ops.ops.security import ScramCredential, SecurityChange

ACTIVE = "active"
_BASE36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SAMPLE = 1_000
_MOST_SHAPES = 10_000


class Candidate(NamedTuple):
    """The account that a client claims.

    Attributes:
        known: whether it exists; if not, no proof fits.
        org_name: see OrgUser.
    """

    org_id: int
    name: str
    credential: ScramCredential
    known: bool
    org_name: str = ""


class _Shape(NamedTuple):
    """What an exchange shows of a credential before the proof."""

    mechanism: str
    iterations: int
    salt_length: int
    base36: bool  # Kafka's Java clients make such salts


_USUAL = _Shape("SCRAM-SHA-256", 4_096, 26, base36=True)


class Accounts:
    """Finds accounts in the gateway's copy of the users."""

    def __init__(self, directory: Directory, own_org: int, secret: bytes) -> None:
        """`own_org`: of names that name no org. `secret`: of the credentials that are made up
        while the cluster's is not known, which is the same for all gateways."""
        self._directory = directory
        self._own_org = own_org
        self._secret = secret
        self._shapes: dict[tuple[int, Sequence[str]], _Shape] = {}
        directory.listen(self._changed)

    @property
    def ready(self) -> bool:
        """Whether users can be known at all."""
        return self._directory.complete

    def place(self, name: str, org: str = "") -> OrgUser:
        """The org and the name in it. `org`: the id or name of the listener's, if it has one."""
        return org_of(self._directory, self._own_org, org, name)

    def place_of_token(self, name: str, claimed_org: str, org: str = "") -> OrgUser:
        """As `place`, for a token. `claimed_org`: the org that it names; "": none."""
        return org_of_token(self._directory, self._own_org, org, claimed_org, name)

    def active(self, org_id: int) -> bool:
        """Whether members of the org may log in; an org without a record may be in the settings."""
        record = self._directory.org(org_id)
        return org_id != NO_ORG and (record is None or record.state == ACTIVE)

    def find(self, name: str, mechanisms: tuple[str, ...], org: str = "") -> Candidate:
        """The account of a name, with its credential for the first of these SCRAM mechanisms."""
        org_id, name, org_name = self.place(name, org)
        made_up = self._make_up(org_id, name, mechanisms)
        user = self._directory.user(org_id, name)
        active = self.active(org_id)
        # From here on both take the same path: a difference of a microsecond would tell them apart.
        credentials = [made_up] if user is None else user.credentials
        held = {each.mechanism: each for each in credentials}
        found = next((held[each] for each in mechanisms if each in held), None)
        if found is None or not active:
            return Candidate(org_id, name, made_up, False, org_name)
        return Candidate(org_id, name, found, user is not None, org_name)

    def holds(self, org_id: int, name: str, credential: ScramCredential) -> bool:
        """Whether this is still a credential of the user."""
        user = self._directory.user(org_id, name)
        active = self.active(org_id)
        credentials = [credential] if user is None else user.credentials
        return credential in credentials and active and user is not None

    # --- credentials of unknown names -------------------------------------------------------

    def _make_up(self, org_id: int, name: str, mechanisms: tuple[str, ...]) -> ScramCredential:
        shape = self._shape(org_id or self._own_org, mechanisms)
        hash_name = HASHES[shape.mechanism]
        about = f"{org_id}/{shape.mechanism}/{name}".encode()
        secret = self._directory.secret or self._secret
        stream = hashlib.shake_256(hmac.digest(secret, about, "sha512"))
        length = hashlib.new(hash_name).digest_size
        made = stream.digest(shape.salt_length + 2 * length)
        salt = made[: shape.salt_length]
        if shape.base36:
            salt = bytes(_BASE36[each % 36] for each in salt)
        keys = made[shape.salt_length :]
        return ScramCredential(
            mechanism=shape.mechanism,
            salt=salt,
            iterations=shape.iterations,
            stored_key=keys[:length],
            server_key=keys[length:],
        )

    def _shape(self, org_id: int, mechanisms: tuple[str, ...]) -> _Shape:
        """The most frequent shape of the org's credentials for these mechanisms."""
        shape = self._shapes.get((org_id, mechanisms))
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[org_id, mechanisms] = self._frequent(org_id, mechanisms)
        return shape

    def _frequent(self, org_id: int, mechanisms: tuple[str, ...]) -> _Shape:
        counts: Counter[_Shape] = Counter()
        for user in islice(self._directory.users(org_id), _SAMPLE):
            held = {each.mechanism: each for each in user.credentials}
            found = next((held[each] for each in mechanisms if each in held), None)
            if found is not None:
                counts[_shape_of(found)] += 1
        if not counts:
            return _USUAL._replace(mechanism=mechanisms[0])
        return max(counts, key=lambda shape: (counts[shape], shape))

    def _changed(self, changes: list[SecurityChange] | None) -> None:
        if changes is None:
            self._shapes.clear()
        else:
            orgs = {change.user.org_id for change in changes if change.user is not None}
            for key in [key for key in self._shapes if key[0] in orgs]:
                del self._shapes[key]


def _shape_of(credential: ScramCredential) -> _Shape:
    salt = credential.salt
    base36 = all(each in _BASE36 for each in salt)
    return _Shape(credential.mechanism, credential.iterations, len(salt), base36)
