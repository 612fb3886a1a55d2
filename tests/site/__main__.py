"""`python -m tests.site [FOLDER]`: build the site (default: `site`), and check what it loads."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.site.build import ROOT, BuildError, build
from tests.site.checks import problems


def main() -> int:
    """Build and check; return the exit code."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    try:
        build(target)
    except BuildError as e:
        print(e, file=sys.stderr)
        return 1
    found = problems(target)
    for each in found:
        print(each, file=sys.stderr)
    print(f"{target / 'index.html'}: {len(list(target.rglob('*.html')))} pages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
