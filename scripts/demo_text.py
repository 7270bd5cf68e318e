#!/usr/bin/env python3
"""demo_text FOLDER [FILE]: text for the demo, as files in FOLDER. Of FILE: its lines in parts, for a split into training and
validation goes by document. Without one, a few megabytes that every Python carries: the sources of the standard library's
top-level modules, and its language reference as pydoc has it."""

import sys
import sysconfig
from pathlib import Path

SOURCES = 5_000_000  # bytes of modules at most
DOCS = 1_000_000     # bytes of documentation at most
LEAST = 500_000      # less than this is no library to learn from
PARTS = 50           # of a single file


def modules() -> list[tuple[str, bytes]]:
    folder = Path(sysconfig.get_path("stdlib"))
    # _sysconfigdata is about one machine's build, not text that people wrote.
    files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_sysconfigdata")]
    return [(f"library/{path.name}", path.read_bytes()) for path in files]


def topics() -> list[tuple[str, bytes]]:
    from pydoc_data.topics import topics as known

    return [(f"reference/{name}.txt", known[name].encode()) for name in sorted(known)]


def first(documents: list[tuple[str, bytes]], limit: int) -> list[tuple[str, bytes]]:
    """As many as fit into `limit` bytes, from the first on, leaving out single ones that do not."""
    kept, size = [], 0
    for name, text in documents:
        if size + len(text) <= limit:
            kept.append((name, text))
            size += len(text)
    return kept


def parts(path: Path) -> list[tuple[str, bytes]]:
    """Cut after lines; text whose lines are longer than a part is cut inside them."""
    text = path.read_bytes()
    size, found, start = len(text) // PARTS + 1, [], 0
    while start < len(text):
        line_end = text.find(b"\n", start + size, start + 2 * size)
        end = line_end + 1 if line_end >= 0 else start + size
        found.append((f"part-{len(found):03}.txt", text[start:end]))
        start = end
    return found


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print("usage: demo_text.py FOLDER [FILE]", file=sys.stderr)
        return 2
    given = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    try:
        documents = parts(given) if given else first(modules(), SOURCES) + first(topics(), DOCS)
    except OSError as error:
        print(f"demo: read text: {error.filename}: wanted a readable file, got {error.strerror}; check its permissions",
              file=sys.stderr)
        return 2
    size = sum(len(text) for _, text in documents)
    if not given and size < LEAST:
        print(f"demo: text of the standard library: {sysconfig.get_path('stdlib')}: wanted {LEAST:,} bytes of sources, got "
              f"{size:,}; give a text of your own with --text", file=sys.stderr)
        return 2
    for name, text in documents:
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    origin = given or "Python's own library and documentation"
    print(f"demo: {len(documents)} files, {size:,} bytes of {origin}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
