"""A shop's topics, groups and transactions, for pictures of the console and for trying it out.

    python -m tests.console.seed 127.0.0.1:9092     seeds a cluster, and keeps clients until Ctrl-C

The names and values come from a seeded generator, so two runs make the same data set.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quafka_client import configs
from quafka_client.cluster import ClientCluster
from quafka_client.configs import ConfigResourceKind

_HOUR = 3_600.0
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "shop.orders": (12, {"retention.ms": "604800000"}),
    "shop.payments": (6, {"retention.ms": "2592000000", "min.insync.replicas": "1"}),
    "shop.shipments": (6, {}),
    "shop.customers": (3, {"cleanup.policy": "compact"}),
    "shop.notifications": (2, {}),
    "shop.orders.dlq": (1, {"retention.ms": "2592000000"}),
    "inventory.stock": (6, {"cleanup.policy": "compact"}),
    "inventory.prices": (3, {"cleanup.policy": "compact"}),
    "web.clicks": (12, {"retention.ms": "86400000", "compression.type": "zstd"}),
    "web.sessions": (6, {"retention.ms": "86400000"}),
    "iot.temperature": (4, {"retention.bytes": "1073741824"}),
    "audit.logins": (1, {"retention.ms": "31536000000"}),
}
_ORDERS = 6_000
_CITIES = ("Lisbon", "Porto", "Ghent", "Lyon", "Graz", "Malmö", "Gdańsk", "Turin")
_ITEMS = ("espresso machine", "desk lamp", "rain jacket", "road bike", "headphones", "tent")


@dataclass(slots=True)
class Seeded:
    """What keeps running: consumers that poll, and transactions that stay open."""

    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list["threading.Thread"])
    open: list[Producer] = field(default_factory=list["Producer"])


@contextmanager
def seeded(bootstrap: str) -> Generator[Seeded]:
    """Seed a cluster; its clients run within the block."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(name, partitions, config=configs)
        for name, (partitions, configs) in _TOPICS.items()
    ]
    for created in admin.create_topics(wanted).values():
        created.result(30)
    _produce(bootstrap)
    running = Seeded()
    _start(running, partial(_orders, running, bootstrap))
    _groups(bootstrap, running)
    _transactions(bootstrap, running)
    try:
        yield running
    finally:
        running.stop.set()
        for thread in running.threads:
            thread.join(15)


# --- records --------------------------------------------------------------------------------------


def _produce(bootstrap: str) -> None:
    chance = random.Random(20_261_128)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "shop-web", "linger.ms": 5,
         "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    now = time.time()
    for number in range(_ORDERS):
        at = now - 1.5 * _HOUR * (1 - number / _ORDERS)
        order, customer = f"ord-{81_000 + number}", f"cus-{chance.randrange(2_400):04}"
        _order(producer, chance, order, customer, at)
        for _ in range(3):
            page = f"/items/{chance.choice(_ITEMS).replace(' ', '-')}"
            value = {"customer": customer, "page": page, "ms": chance.randrange(40, 900)}
            _send(producer, "web.clicks", customer, value, at)
        if number % 4 == 0:
            reading = {"sensor": f"dock-{number % 16}", "celsius": round(chance.gauss(4.5, 0.8), 2)}
            _send(producer, "iot.temperature", str(reading["sensor"]), reading, at)
        if number % 50 == 0:
            producer.poll(0)
    for number in range(400):
        stock = {"item": f"sku-{number}", "left": chance.randrange(120)}
        _send(producer, "inventory.stock", f"sku-{number}", stock, now - chance.random() * _HOUR)
    producer.flush(60)


def _orders(running: Seeded, bootstrap: str) -> None:
    """New orders and clicks while it runs."""
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop-web", "linger.ms": 20})
    number = _ORDERS
    while not running.stop.wait(0.15):
        number += 1
        order, customer = f"ord-{81_000 + number}", f"cus-{chance.randrange(2_400):04}"
        _order(producer, chance, order, customer, time.time())
        for _ in range(chance.randrange(8)):
            page = f"/items/{chance.choice(_ITEMS).replace(' ', '-')}"
            click: dict[str, object] = {"customer": customer, "page": page}
            _send(producer, "web.clicks", customer, click, time.time())
        producer.poll(0)
    producer.flush(10)


def _order(producer: Producer, chance: random.Random, order: str, customer: str, at: float) -> None:
    bought = [
        (chance.choice(_ITEMS), chance.randrange(1, 4), round(chance.uniform(9, 600), 2))
        for _ in range(chance.randrange(1, 4))
    ]
    lines = [{"item": item, "count": count, "price": price} for item, count, price in bought]
    total = round(sum(count * price for _, count, price in bought), 2)
    address = {"city": chance.choice(_CITIES), "street": f"Rua {chance.randrange(1, 200)}"}
    value = {
        "order": order, "customer": customer, "placed": _iso(at), "total": total,
        "currency": "EUR", "lines": lines, "ship_to": address, "express": chance.random() < 0.2,
    }  # fmt: skip
    _send(producer, "shop.orders", order, value, at)
    paid = {"order": order, "amount": total, "method": chance.choice(["card", "iban", "voucher"])}
    _send(producer, "shop.payments", order, paid, at + 2)
    if chance.random() < 0.3:
        mail = {"to": customer, "template": "order-confirmed", "order": order}
        _send(producer, "shop.notifications", customer, mail, at + 3)
    if chance.random() < 0.02:
        failed = {"order": order, "error": "address cannot be resolved"}
        _send(producer, "shop.orders.dlq", order, failed, at + 5)
    profile = {"customer": customer, "city": address["city"], "orders": chance.randrange(1, 40)}
    _send(producer, "shop.customers", customer, profile, at)


def _send(producer: Producer, topic: str, key: str, value: Mapping[str, object], at: float) -> None:
    trace = hashlib.blake2b(f"{topic} {key}".encode(), digest_size=8).hexdigest()
    headers: list[tuple[str, str | bytes | None]] = [
        ("content-type", b"application/json"),
        ("source", b"shop-web"),
        ("correlation-id", trace.encode()),
    ]
    data = json.dumps(value, ensure_ascii=False).encode()
    while True:
        try:
            producer.produce(
                topic, data, key.encode(), timestamp=round(at * 1_000), headers=headers
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


# --- groups ---------------------------------------------------------------------------------------


def _groups(bootstrap: str, running: Seeded) -> None:
    """Groups that follow, one that falls behind, two without members, and a share group."""
    for group, topic, behind in (
        ("warehouse-sync", "shop.shipments", 0),
        ("monthly-report", "shop.orders", 180),
        ("fraud-check", "shop.payments", 90),
        ("billing", "shop.payments", 12),
        ("search-index", "inventory.stock", 0),
        ("recommendations", "web.clicks", 400),
    ):
        _commit(bootstrap, group, topic, behind)
    live: tuple[tuple[str, str, int, str, float], ...] = (
        ("billing", "shop.payments", 2, "consumer", 0.2),
        ("fraud-check", "shop.payments", 1, "consumer", 0.9),
        ("search-index", "inventory.stock", 1, "classic", 0.1),
        ("recommendations", "web.clicks", 3, "classic", 0.12),
    )
    for group, topic, members, protocol, pause in live:
        for number in range(members):
            client = f"{group}-{number + 1}"
            work = partial(_consume, running, bootstrap, group, topic, client, protocol, pause)
            _start(running, work)
    _start(running, partial(_share, running, bootstrap, "mail-sender", "shop.notifications"))


def _start(running: Seeded, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    running.threads.append(thread)


def _commit(bootstrap: str, group: str, topic: str, behind: int) -> None:
    """Commit offsets that lie `behind` records before the end of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partitions = _TOPICS[topic][0]
    places: list[TopicPartition] = []
    for number in range(partitions):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
        places.append(TopicPartition(topic, number, max(0, end - behind)))
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def _consume(
    running: Seeded, bootstrap: str, group: str, topic: str, client: str, protocol: str,
    pause: float,
) -> None:  # fmt: skip
    config = {
        "bootstrap.servers": bootstrap, "group.id": group, "client.id": client,
        "group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "queued.max.messages.kbytes": 1_024,
    }  # fmt: skip
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not running.stop.is_set():
        found = consumer.consume(2, 0.5)
        good = [message for message in found if not message.error()]
        if good:
            with suppress(Exception):  # the group rebalances: the next commit has these, too
                consumer.commit(message=good[-1], asynchronous=False)
        running.stop.wait(pause)
    consumer.close()


def _share(running: Seeded, bootstrap: str, group: str, topic: str) -> None:
    """A worker that accepts records, except one that it never can process."""
    from confluent_kafka import AcknowledgeType

    asyncio.run(_share_from_the_start(bootstrap, group))
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "mail-sender-1",
         "share.acknowledgement.mode": "explicit"}
    )  # fmt: skip
    consumer.subscribe([topic])
    while not running.stop.is_set():
        for message in consumer.poll(0.5) or ():
            bad = (message.offset() or 0) % 97 == 41
            kind = AcknowledgeType.RELEASE if bad else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
        running.stop.wait(6.0)  # so that a released record is not delivered too often at once
    consumer.close()


async def _share_from_the_start(bootstrap: str, group: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    async with ClientCluster([(host, int(port))]) as cluster:
        changes = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
        await configs.alter(cluster, ConfigResourceKind.GROUP, group, changes)


# --- transactions ---------------------------------------------------------------------------------


def _transactions(bootstrap: str, running: Seeded) -> None:
    """Two that have ended, one open, and one that is open for long."""
    for name, ends, timeout_ms in (
        ("payments-writer-1", True, 60_000), ("payments-writer-2", True, 60_000),
        ("stock-reserver", False, 600_000), ("invoice-export", False, 900_000),
    ):  # fmt: skip
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "client.id": name,
             "transaction.timeout.ms": timeout_ms}
        )  # fmt: skip
        producer.init_transactions(20)
        producer.begin_transaction()
        topic = "shop.payments" if "payments" in name else "shop.shipments"
        for number in range(8):
            data = json.dumps({"by": name, "number": number}).encode()
            producer.produce(topic, data, f"{name}-{number}".encode())
        producer.flush(20)
        if ends:
            producer.commit_transaction(20)
        else:
            running.open.append(producer)


def main() -> None:
    """Seed the cluster of the first argument until Ctrl-C."""
    with seeded(sys.argv[1]), suppress(KeyboardInterrupt):
        print("seeded; Ctrl-C ends its clients", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
