"""Documents out of parquet and jsonl files, one after the other: a corpus is never held in memory."""

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet

from mhar.errors import InputError

ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")
_WANTED = ".parquet, .jsonl or .jsonl.gz"


def one_line(error: object) -> str:
    """What a library says about a fault, which may run over several lines, on one."""
    return " ".join(str(error).split())


def collect(paths: list[str]) -> list[Path]:
    """The corpus files that `paths` name, each once: files as given, folders walked in sorted order."""
    found: dict[Path, Path] = {}
    for given in paths:
        path = Path(given)
        try:
            path.stat()
            files = _walk(path) if path.is_dir() else [path]
        except OSError as error:
            raise InputError("read text", error.filename or given, "a file or folder", error.strerror,
                             "check the path and its permissions") from None
        for file in files:
            if not file.name.endswith(ENDINGS):
                raise InputError("read text", file, _WANTED, f"'{file.suffix}'",
                                 "convert it, or use mhar data for plain text")
            found.setdefault(file.resolve(), file)
    if not found:
        raise InputError("read text", paths[0], f"at least one {_WANTED}", "none",
                         "name files or folders that hold some")
    return list(found.values())


def _walk(folder: Path) -> list[Path]:
    def fail(error: OSError):
        raise error

    files = []
    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(root, name) for name in names if name.endswith(ENDINGS) and not name.startswith(".")]
    return sorted(files)


def read(path: Path, column: str) -> Iterator[str]:
    """The texts of one file in order; a null is an empty text."""
    try:
        yield from (_parquet if path.name.endswith(".parquet") else _jsonl)(path, column)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError("read text", path, "a whole gzip file", one_line(error), "fetch or pack it again") from None
    except OSError as error:
        raise InputError("read text", path, "a readable file", error.strerror or one_line(error),
                         "check the file") from None


def _parquet(path: Path, column: str) -> Iterator[str]:
    try:
        with open(path, "rb") as source:
            file = pyarrow.parquet.ParquetFile(source)
            names = file.schema_arrow.names
            if column not in names:
                raise InputError("read text", path, f"the column '{column}'", f"the columns {', '.join(names)}",
                                 "name one of them with --column")
            kind = file.schema_arrow.field(column).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise InputError("read text", path, f"text in the column '{column}'", kind,
                                 "name a text column with --column")
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for text in batch.column(0).to_pylist():
                    yield text or ""
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError("read text", path, "a parquet file", one_line(error),
                         "check the file, or fetch it again") from None


def _jsonl(path: Path, column: str) -> Iterator[str]:
    with gzip.open(path, "rb") if path.name.endswith(".gz") else open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            where = f"{path}:{number}"
            try:
                # A lone surrogate is legal JSON and no text: encoding finds it here, where the line is known.
                record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                text = record.get(column, record) if isinstance(record, dict) else record
                if isinstance(text, str) and isinstance(record, dict):
                    text.encode()
            except (ValueError, RecursionError) as error:
                raise InputError("read text", where, "one JSON object in UTF-8", one_line(error),
                                 "mend or remove the line") from None
            if not isinstance(record, dict):
                raise InputError("read text", where, "a JSON object", type(record).__name__, "mend or remove the line")
            if column not in record:
                raise InputError("read text", where, f"the column '{column}'", f"the columns {', '.join(record)}",
                                 "name one of them with --column")
            if not isinstance(text, str | None):
                raise InputError("read text", where, f"text in the column '{column}'", type(text).__name__,
                                 "name a text column with --column")
            yield text or ""
