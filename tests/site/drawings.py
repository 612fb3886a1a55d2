"""The drawings in docs/images. `python -m tests.site.drawings` writes them again.

Each is SVG without scripts or fonts. It has colours for light and dark pages: as a picture it uses
those of the reader's system; in the site, where it is a part of its page, `site.css` sets them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs" / "images"

_LINE = 17
_STYLE = """\
.qd{--ink:#1f2937;--line:#64748b;--plain:#f8fafc;--accent:#e0e7ff;--store:#dcfce7;--third:#fef3c7;
font:13px system-ui,sans-serif}
@media(prefers-color-scheme:dark){.qd{--ink:#e5e7eb;--line:#94a3b8;--plain:#1e293b;--accent:#312e81;
--store:#14532d;--third:#713f12}}
.qd text{fill:var(--ink)}.qd .small{font-size:12px}.qd .bold{font-weight:600}
.qd rect{stroke:var(--line)}.qd path{stroke:var(--line);stroke-width:1.5;fill:none}
.qd .head{fill:var(--line);stroke:none}.qd .plain{fill:var(--plain)}.qd .accent{fill:var(--accent)}
.qd .store{fill:var(--store)}.qd .third{fill:var(--third)}"""


class Drawing:
    """Boxes, arrows and words, at positions in pixels."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self._name, self._size = name, (width, height)
        self._parts: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, words: str, kind: str = "plain") -> None:
        """A box with its words in its middle; the first line is bold."""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )
        lines = words.split("\n") if words else []
        top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 4.5
        for n, line in enumerate(lines):
            self.words(x + width / 2, top + n * _LINE, line, "middle", "small" if n else "bold")

    def words(
        self, x: float, y: float, line: str, anchor: str = "start", kind: str = "small"
    ) -> None:
        """One line of text."""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(line)}</text>'
        )

    def arrow(self, *points: tuple[int, int], words: str = "", dashed: bool = False) -> None:
        """A line through points with a head at its end, and words above its first part."""
        path = " L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self._parts.append(f'<path d="M{path}" marker-end="url(#{self._name}-head)"{dash}/>')
        if words:
            (x, y), (to_x, to_y) = points[:2]
            self.words((x + to_x) / 2, (y + to_y) / 2 - 6, words, "middle")

    def svg(self) -> str:
        """The whole file."""
        width, height = self._size
        parts = "\n".join(self._parts)
        return (
            f'<svg class="qd" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">\n<style>{_STYLE}</style>\n'
            f'<defs><marker id="{self._name}-head" viewBox="0 0 8 8" refX="7" refY="4" '
            f'markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n{parts}\n</svg>\n'
        )


def overview() -> Drawing:
    """The programs, and what travels between them."""
    d = Drawing("overview", 760, 270)
    d.box(10, 60, 140, 70, "Kafka clients\nany language,\nunmodified")
    d.box(260, 60, 150, 70, "gateway\nspeaks Kafka,\nkeeps no data", "accent")
    d.box(550, 60, 150, 70, "broker\nkeeps all topics\nof all orgs", "accent")
    d.arrow((150, 95), (258, 95), words="Kafka, TCP")
    d.arrow((410, 95), (548, 95), words="ops over QUIC")
    d.box(550, 190, 150, 64, "one log\na disk, or\nan object store", "store")
    d.arrow((625, 130), (625, 188))
    d.words(633, 164, "fsync, or PUT")
    d.box(260, 190, 150, 64, "Spark\nreads snapshots,\nor the bucket", "third")
    d.arrow((548, 222), (412, 222), words="no consumer")
    d.box(10, 190, 140, 64, "console, Jaeger, …\nthe trace of\neach request", "third")
    d.arrow((300, 130), (300, 160), (80, 160), (80, 188), dashed=True)
    d.words(190, 154, "spans (OTLP)", "middle")
    d.words(260, 24, "close to the clients", "start", "small")
    d.words(550, 24, "close to the disk", "start", "small")
    d.words(260, 44, "one or many", "start", "small")
    d.words(550, 44, "one, or many on one store", "start", "small")
    return d


def produce() -> Drawing:
    """A produce and a waiting fetch, from top to bottom."""
    d = Drawing("produce", 760, 330)
    columns = {"producer": 70, "gateway": 270, "broker": 470, "log": 650}
    kinds = {"gateway": "accent", "broker": "accent", "log": "store"}
    for name, x in columns.items():
        d.box(x - 55, 10, 110, 32, name, kinds.get(name, "plain"))
        d.arrow((x, 42), (x, 318), dashed=True)
    producer, gateway, broker, log = columns.values()
    d.arrow((producer, 75), (gateway, 75), words="1  Produce")
    d.arrow((gateway, 105), (broker, 105), words="2  op PRODUCE")
    d.arrow((broker, 135), (log, 135), words="3  append")
    d.arrow((broker, 165), (log, 165), words="4  fsync for all that wait")
    d.arrow((log, 195), (broker, 195), words="5  durable")
    d.arrow((broker, 225), (gateway, 225), words="6  offset; new high watermark")
    d.arrow((gateway, 255), (producer, 255), words="7  response")
    d.words(gateway + 8, 285, "8  a fetch that has waited")
    d.words(gateway + 8, 303, "    gets the record, too")
    return d


def log() -> Drawing:
    """Entries of many partitions in one log, and a bitmap for each partition."""
    d = Drawing("log", 760, 250)
    d.words(
        10,
        24,
        "the log: one file after the other, entries in the order of their arrival",
        kind="bold",
    )
    kinds = {"orders 0": "accent", "orders 1": "store", "clicks 0": "third"}
    order = ["orders 0", "clicks 0", "orders 1", "orders 0", "orders 0", "clicks 0", "orders 1"]
    for n, name in enumerate(order):
        d.box(10 + n * 104, 40, 98, 44, f"{name}\nposition {n}", kinds[name])
    d.words(10, 122, "the index: for each partition, the positions of its entries", kind="bold")
    for row, (name, kind) in enumerate(kinds.items()):
        y = 138 + row * 36
        d.box(10, y, 98, 28, name, kind)
        for n, each in enumerate(order):
            d.box(
                130 + n * 44,
                y,
                38,
                28,
                "1" if each == name else "0",
                kind if each == name else "plain",
            )
    d.words(460, 160, "A fetch of one partition reads")
    d.words(460, 178, "only the entries of its row.")
    d.words(460, 206, "A produce to any number of")
    d.words(460, 224, "partitions is one append.")
    return d


def store() -> Drawing:
    """A chain of objects, its owner, and the broker that takes over."""
    d = Drawing("store", 760, 260)
    d.words(10, 24, "the bucket", kind="bold")
    d.box(10, 36, 170, 54, "manifest\nowner, epoch, lease", "third")
    for n in range(4):
        d.box(220 + n * 104, 36, 90, 54, f"log/{7 + n}\na commit", "store")
    d.box(636, 36, 114, 54, "log/11\na fence", "third")
    d.box(220, 180, 150, 54, "broker A\nepoch 3", "accent")
    d.box(560, 180, 190, 54, "broker B\ntakes over: epoch 4", "accent")
    d.arrow((295, 178), (577, 94))
    d.words(220, 120, "creates the next object:")
    d.words(220, 138, "that is the commit")
    d.arrow((690, 178), (690, 94))
    d.words(682, 128, "creates fences:", "end")
    d.words(682, 146, "A’s next object is refused", "end")
    d.arrow((560, 207), (372, 207), dashed=True)
    d.words(466, 226, "no connection needed", "middle")
    return d


def tenants() -> Drawing:
    """Two orgs with equal names at one gateway."""
    d = Drawing("tenants", 760, 220)
    d.box(10, 20, 170, 60, "alice@acme\ntopic orders")
    d.box(10, 130, 170, 60, "alice@globex\ntopic orders")
    d.box(
        300,
        20,
        190,
        170,
        "gateway\nlogin decides the org\nrules and quotas\nper org, fair turns",
        "accent",
    )
    d.arrow((180, 50), (298, 50), words="SASL, TLS")
    d.arrow((180, 160), (298, 160), words="SASL, TLS")
    d.box(590, 20, 160, 60, "org acme\norders, users, groups", "store")
    d.box(590, 130, 160, 60, "org globex\norders, users, groups", "third")
    d.arrow((490, 50), (588, 50), words="ops for acme")
    d.arrow((490, 160), (588, 160), words="ops for globex")
    return d


def moving() -> Drawing:
    """The three ways from Apache Kafka to Quafka."""
    d = Drawing("moving", 760, 270)
    d.box(10, 20, 150, 230, "Apache Kafka\ntopics, groups", "third")
    d.box(600, 20, 150, 230, "Quafka\nthe same topics", "accent")
    ways = (
        (
            "serve its folders in place",
            "quafka broker --adopt",
            "read-only, at once; Kafka may run",
            45,
        ),
        ("import its folders", "quafka import", "same ids and offsets; Kafka stops once", 125),
        (
            "copy over the network",
            "quafka mirror, or MirrorMaker",
            "both run; new offsets; also the way back",
            205,
        ),
    )
    for title, command, words, y in ways:
        d.box(240, y - 22, 280, 62, f"{title}\n{command}\n{words}")
        d.arrow((160, y + 9), (238, y + 9))
        d.arrow((520, y + 9), (598, y + 9))
    return d


DRAWINGS = (overview, produce, log, store, tenants, moving)


def main() -> None:
    """Write all drawings."""
    for drawing in DRAWINGS:
        (IMAGES / f"{drawing.__name__}.svg").write_text(drawing().svg(), "utf-8")


if __name__ == "__main__":
    main()
