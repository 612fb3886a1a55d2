"""A simulated broker: it takes a shard over when it may, appends, writes checkpoints, collects.

Its log is a list of numbers, some of which are entries of copy jobs (`ledger`). An entry in the
chain is a number, so a position in a segment is the number's place in the list.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from quafka_broker.chain.attempts import Attempts
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collector
from quafka_broker.chain.errors import FencedError, StoreUnavailableError
from quafka_broker.chain.lease import LeaseWatch, keep_lease
from quafka_broker.chain.manifest import read_manifest
from quafka_broker.chain.objects import (
    list_chain,
    read_headers,
    read_objects,
    valid_objects,
)
from quafka_broker.chain.store import ChainStore
from quafka_broker.chain.takeover import Seen, look, take_over
from quafka_objects.errors import ObjectNotFoundError
from quafka_proto.chain_format import (
    ChainHeader,
    Owner,
    ShardManifest,
    StoredFile,
    decode_directory,
    directory_path,
    encode_directory,
    file_path,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE
from tests.sim.shards.copier import Position, RefusedError
from tests.sim.shards.history import History
from tests.sim.shards.ledger import Entry, Kind, Ledger, encode
from tests.sim.shards.store import Process, SimulatedStore

SHARD = 0
_ENTRY = 8
_GRACE_S = 0.5
_LEASE_MS = 1_500


@dataclass(frozen=True)
class Pace:
    """How often a broker does what; seconds."""

    append_s: float = 0.15
    checkpoint_s: float = 1.5
    collect_s: float = 1.0
    watch_s: float = 0.5


class SimulatedBroker:
    """One life of a broker, from its start to `stop`, a release or its death."""

    def __init__(
        self, process: Process, store: SimulatedStore, history: History, pace: Pace, random: Random
    ) -> None:
        self.process = process
        self._store = store
        self._history = history
        self._pace = pace
        self._random = random
        self._watch = LeaseWatch(_LEASE_MS)
        self._known_manifest: ShardManifest | None = None
        self._log: list[int] = []
        self._planned = Ledger()
        self._done: tuple[int, int] = (0, 0)
        self._tasks: list[asyncio.Task[None]] = []
        self._uploads: set[str] = set()
        self._over = asyncio.Event()
        self.chain: Chain | None = None
        self.is_hasty = False
        """Whether it takes over without regard to the lease, once."""

    async def run(self) -> None:
        """Take the shard over whenever that is due, and serve it while it is ours."""
        while True:
            known = self._random.choice((self._known_manifest, None))
            seen = await look(self._store, SHARD, known)
            manifest = self._known_manifest = seen.manifest.manifest if seen.manifest else None
            now = asyncio.get_running_loop().time()
            if self.is_hasty or self._watch.is_over(manifest, now):
                self.is_hasty = False
                with suppress(FencedError, StoreUnavailableError):
                    await self._own(seen)
            await asyncio.sleep(self._random.uniform(0, self._pace.watch_s))

    def kill(self) -> None:
        """End this life: what was sent is under way still."""
        self.process.is_dead = True

    async def release(self) -> None:
        """Give the shard up in order."""
        if self.chain is not None:
            self._end_tasks(but_lease=True)
            with suppress(FencedError):
                await self.chain.release()
                self._over.set()

    # --- as the owner -------------------------------------------------------------------------

    async def _own(self, seen: Seen) -> None:
        owner = Owner(self.process.name, "")
        taken = await take_over(
            self._store,
            SHARD,
            owner,
            self.process.wall_clock,
            seen=seen,
            lease_ms=_LEASE_MS,
            random=self._random,
        )
        chain = taken.chain
        chain.on_fenced = lambda reason: self._fenced(chain.epoch, reason)
        try:
            self._log = await _recover(self._store, chain.manifest, taken.objects)
        except ObjectNotFoundError as e:
            found = await read_manifest(self._store, SHARD)
            if found is None or found.manifest.epoch == chain.epoch:
                raise AssertionError(f"an owner misses a part of its log: {e}") from e
            raise FencedError("a later owner has deleted what this one reads") from e
        self._history.recovered(chain.epoch, self._log)
        last = taken.objects[-1][0] + 1 if taken.objects else chain.manifest.chain_start
        self._done = (len(self._log), last)
        self._planned = self._known(self._log)
        self.chain = chain
        loop = asyncio.get_running_loop()
        work = [
            keep_lease(chain, self.process.wall_clock, _LEASE_MS, _LEASE_MS / 3000),
            self._append(chain),
            self._checkpoint(chain),
            self._collect(chain),
        ]
        self._tasks = [loop.create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(self._history.ended)
        await self._over.wait()
        self._over.clear()
        self.chain = None
        self._end_tasks()
        await chain.close()

    @staticmethod
    def _known(log: list[int]) -> Ledger:
        """What a new owner knows of jobs."""
        return Ledger(log)

    def _fenced(self, epoch: int, reason: str) -> None:
        self._history.fenced(epoch, reason)
        self._over.set()

    def _end_tasks(self, *, but_lease: bool = False) -> None:
        for task in self._tasks[1 if but_lease else 0 :]:
            task.cancel()

    async def _append(self, chain: Chain) -> None:
        """Append one number at a time, or several objects in one turn."""
        while True:
            for _ in range(self._random.choice((1, 1, 2, 5))):
                await chain.room()
                count = self._random.choice((1, 3))
                self._put(chain, [self._history.next_value() for _ in range(count)])
            await asyncio.sleep(self._random.expovariate(1 / self._pace.append_s))

    def _put(self, chain: Chain, values: list[int]) -> asyncio.Future[None]:
        first = len(self._log)
        self._log.extend(values)
        for value in values:
            self._planned.add(value)
        done = chain.append(
            0,
            _ENTRY * first,
            first,
            chain.epoch,
            [value.to_bytes(_ENTRY, "big") for value in values],
            bytes(INDEX_ROW_SIZE * len(values)),
            len(values),
        )
        after = (first + len(values), chain.next_seq)
        done.add_done_callback(partial(self._appended, first, values, after))
        return done

    def _appended(
        self, first: int, values: list[int], after: tuple[int, int], done: asyncio.Future[None]
    ) -> None:
        if not done.cancelled() and done.exception() is None and not self.process.is_dead:
            self._history.acknowledged(first, values)
            self._done = after

    # --- for copy jobs ------------------------------------------------------------------------

    async def begin(self, job: int) -> Position:
        """See `copier.Owner`."""
        await self.process.step()
        chain = await self._room()
        known = self._planned.job(job)
        position = Position(known.ended + 1, known.offset)
        await self._write(chain, [encode(Entry(Kind.ABORTED, job, position.ended))])
        await self.process.step()
        return position

    async def _room(self) -> Chain:
        """The chain, with room for an object. Raises FencedError."""
        if self.chain is not None:
            await self.chain.room()
        if self.chain is None:  # or not any more
            raise FencedError("this broker is no owner")
        return self.chain

    async def write(self, entries: Sequence[Entry]) -> None:
        """See `copier.Owner`."""
        await self.process.step()
        chain = await self._room()
        if self._has(entries[0]):
            await self._repeated(chain)
        else:
            await self._write(chain, [encode(entry) for entry in entries])
        await self.process.step()

    def _has(self, entry: Entry) -> bool:
        """Whether an entry was written before. Raises RefusedError."""
        job = self._planned.job(entry.job)
        if entry.transaction == job.ended + 1:
            return entry.kind == Kind.COPIED and entry.value in job.open
        if job.ends.get(entry.transaction) == entry.kind:
            return True
        raise RefusedError(f"transaction {job.ended} was the last one")

    @staticmethod
    async def _repeated(chain: Chain) -> None:
        """What is there already may be under way still."""
        await chain.drained()
        if chain.failure is not None:
            raise FencedError(chain.failure)

    async def _write(self, chain: Chain, values: list[int]) -> None:
        """One object has the end of a transaction and the offset that it commits."""
        await self._put(chain, values)

    async def _checkpoint(self, chain: Chain) -> None:
        """Write what is acknowledged into a file, and let the chain begin behind it."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._pace.checkpoint_s))
            with suppress(FencedError):
                await self._write_checkpoint(chain)

    async def _write_checkpoint(self, chain: Chain) -> None:
        count, start = self._done
        path = file_path(SHARD, "checkpoint", chain.epoch, self._random.getrandbits(64))
        listing = directory_path(SHARD, chain.epoch, self._random.getrandbits(64))
        data = json.dumps(self._log[:count]).encode()
        self._uploads |= {path, listing}
        names = encode_directory([StoredFile("checkpoint", path, len(data))])
        await Attempts("checkpoint").until_answered(lambda: self._store.put(path, data))
        await Attempts("list").until_answered(lambda: self._store.put(listing, names))
        await chain.update(lambda now: replace(now, directory=listing, chain_start=start))
        self._uploads -= {path, listing}

    async def _collect(self, chain: Chain) -> None:
        def kept() -> set[str]:
            return set(self._uploads)

        collector = Collector(self._store, SHARD, chain.epoch, kept, grace_s=_GRACE_S)
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._pace.collect_s))
            try:
                await collector.collect(asyncio.get_running_loop().time())
            except ObjectNotFoundError:  # a later owner has deleted the list
                found = await read_manifest(self._store, SHARD)
                assert found is not None
                assert found.manifest.epoch > chain.epoch, "the list of files is missing"


async def read_log(store: ChainStore) -> list[int] | None:
    """The log as a reader beside the brokers sees it; None: there is none, or it has moved on."""
    found = await read_manifest(store, SHARD)
    if found is None:
        return None
    try:
        seqs = [each.seq for each in await list_chain(store, SHARD, found.manifest.chain_start)]
        headers = await read_headers(store, SHARD, seqs)
        objects = [(each.seq, each) for each in valid_objects(headers)]
        return await _recover(store, found.manifest, objects)
    except ObjectNotFoundError:
        return None
    except Malformed:
        if await read_manifest(store, SHARD) == found:
            raise
        return None


async def _recover(
    store: ChainStore, manifest: ShardManifest, objects: Sequence[tuple[int, ChainHeader]]
) -> list[int]:
    log: list[int] = []
    if manifest.directory:
        names = await Attempts("").until_answered(lambda: store.read(manifest.directory))
        (file,) = decode_directory(names)
        log = json.loads(await Attempts("").until_answered(lambda: store.read(file.path)))
    async for header, data in read_objects(store, SHARD, [seq for seq, _ in objects]):
        assert header.first_id == len(log), f"object {header.seq} does not follow on {len(log)}"
        entries = data[header.offset_of(header.position) : header.rows_at]
        log.extend(
            int.from_bytes(entries[at : at + _ENTRY], "big")
            for at in range(0, len(entries), _ENTRY)
        )
    return log
