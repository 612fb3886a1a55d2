"""`make fuzz`: coverage-guided fuzzing of every target with atheris.

Each target runs in a process of its own, for `--seconds`. Inputs that reached something new are
kept in `.fuzz/TARGET/corpus`, and the next run begins with them; an input that breaks a target is
written to `.fuzz/TARGET` and named.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import FunctionType

from tests.fuzz.corpus import seeds
from tests.fuzz.targets import TARGETS

HOME = Path(".fuzz")
MAX_INPUT = 4096
"""Bytes; at 1 ms per KB, an input that takes a second is a hang."""
HANG_SECONDS = 2
RESIDENT_MIB = 768


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", choices=[*TARGETS], action="append", help="default: all")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: `make fuzz` installs the dependency group `fuzz`. It has\n"
            "wheels for Linux x86-64 only; `make test-all` runs half a million mutations without\n"
            "it.",
            file=sys.stderr,
        )
        return 2
    if args.here:
        fuzz(args.target[0], args.seconds)  # does not return
    failed = [name for name in args.target or TARGETS if not run(name, args.seconds)]
    print(f"fuzz: {', '.join(failed)} broke" if failed else "fuzz: nothing broke")
    return 1 if failed else 0


def run(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own, which libFuzzer ends when it is done."""
    print(f"--- {name}", flush=True)
    command = [sys.executable, "-m", "tests.fuzz", "--here", "--target", name]
    done = subprocess.run([*command, "--seconds", str(seconds)], check=False)
    return done.returncode == 0


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, until libFuzzer ends it."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    home = HOME / name
    corpus = home / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for index, data in enumerate(seeds(name)):
        (corpus / f"seed-{index}").write_bytes(data)
        TARGETS[name](data)  # compiles what is compiled on first use
    instrument(atheris)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT}",
        f"-timeout={HANG_SECONDS}",
        f"-rss_limit_mb={RESIDENT_MIB}",
        f"-artifact_prefix={home}/",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: TARGETS[name](data) and None)
    atheris.Fuzz()


def instrument(atheris: object) -> None:
    """Count the branches of all functions of protocol and mesh, the compiled ones included."""
    mark = getattr(atheris, "instrument_func")  # noqa: B009 - the library has no types
    for item in gc.get_objects():
        if isinstance(item, FunctionType):
            module = item.__globals__.get("__name__") or ""
            ours = module.startswith(("quafka_proto", "quafka_mesh_ops", "quafka_broker"))
            if ours or item.__name__ == "compiled":
                mark(item)


if __name__ == "__main__":
    sys.exit(main())
