"""Token shards and their manifest, as src/data reads them: NAME-00000.npy (1-D uint16 or uint32), NAME.json.

The split rule, the cutting into shards and the manifest are those of src/data/random.h, shard_writer.cpp and
manifest.cpp: the same tokens give the same files.
"""

import errno
import glob
import json
import os
import re
import shutil
from pathlib import Path

import numpy
import xxhash

from mhar.errors import InputError

FORMAT, VERSION = "mhar-tokens", 1
_MASK = (1 << 64) - 1
_GOLDEN_STEP = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def draw(seed: int, index: int) -> int:
    """Number `index` of the 64-bit random sequence of `seed`."""
    return _mix(_mix(seed) + (index + 1) * _GOLDEN_STEP)


def in_validation(seed: int, document: int, fraction: float) -> bool:
    """Whether non-empty document number `document` belongs to the validation split."""
    if not fraction > 0.0:
        return False
    if document < 2:
        return (document == 0) == (draw(seed, 0) <= draw(seed, 1))
    return (draw(seed, document) >> 11) * 2.0**-53 < fraction


class _Split:
    """One split's tokens, written as FOLDER/STEM-00000.npy and so on, each full before the next begins."""

    def __init__(self, folder: Path, stem: str, dtype: numpy.dtype, shard_tokens: int):
        self.folder, self.stem, self.dtype, self.shard_tokens = folder, stem, dtype, shard_tokens
        self.documents = self.bytes = self.tokens = 0
        self.shards: list[dict] = []
        self._file = None

    def _header(self, count: int) -> bytes:
        text = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (self.dtype.str, count)
        # 128 bytes hold every count, so the true header fits into the first one's place.
        return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"

    def append(self, ids: numpy.ndarray) -> None:
        self.tokens += len(ids)
        while len(ids):
            if self._file is None:
                self.shards.append({"file": f"{self.stem}-{len(self.shards):05}.npy", "tokens": 0, "hash": ""})
                self._file = open(self.folder / self.shards[-1]["file"], "wb")
                self._file.write(self._header(0))
                self._hash = xxhash.xxh3_128()
            shard = self.shards[-1]
            piece, ids = numpy.split(ids, [self.shard_tokens - shard["tokens"]])
            data = piece.astype(self.dtype).tobytes()
            self._file.write(data)
            self._hash.update(data)
            shard["tokens"] += len(piece)
            if shard["tokens"] == self.shard_tokens:
                self.finish()

    def finish(self) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        self._file.write(self._header(self.shards[-1]["tokens"]))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self.shards[-1]["hash"] = self._hash.hexdigest()

    def manifest(self) -> dict:
        return {"tokens": self.tokens, "documents": self.documents, "bytes": self.bytes, "shards": self.shards}


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


class ShardSet:
    """Takes documents in order and replaces the set `prefix` when all are written; used as a context manager.

    Nothing of the old set is touched before finish(). Write errors come out as OSError.
    """

    def __init__(self, prefix: str, tokenizer: dict, fraction: float, seed: int, shard_tokens: int):
        path = Path(os.path.abspath(prefix))
        name = path.name.removesuffix(".json")
        if not prefix or not name or name.endswith("-validation"):
            raise InputError("option --out", prefix, "DIR/NAME whose name does not end in -validation",
                             f"the name '{name}'", "choose another name")
        self.folder, self.name, self.tokenizer = path.parent, name, tokenizer
        self.fraction, self.seed, self.shard_tokens = fraction, seed, shard_tokens
        self._temporary = self.folder / f".tmp-{name}-{os.getpid()}"
        self._hash = xxhash.xxh3_128()
        self._counts = numpy.zeros(tokenizer["vocabulary"], numpy.int64)
        self._first = None
        self.documents = 0

    def __enter__(self) -> "ShardSet":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
        for path in self.folder.glob(f".tmp-{glob.escape(self.name)}-*"):
            process = path.name.rpartition("-")[2]
            # What a killed process left; a living one is still writing its own.
            if process.isdecimal() and (int(process) == os.getpid() or not _alive(int(process))):
                shutil.rmtree(path, ignore_errors=True)
        self._temporary.mkdir()
        dtype = numpy.dtype("<u2" if self.tokenizer["vocabulary"] <= 65536 else "<u4")
        self._train, self._validation = (
            _Split(self._temporary, stem, dtype, self.shard_tokens) for stem in (self.name, f"{self.name}-validation")
        )
        return self

    def __exit__(self, *_) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def add(self, ids: list[int], text: bytes) -> None:
        """One document: its tokens without end-of-text, and the bytes they stand for. No tokens, no document."""
        if not ids:
            return
        self._hash.update(text)
        self._hash.update(b"\0")
        tokens = numpy.array([*ids, self.tokenizer["end_of_text"]], dtype=numpy.int64)
        numpy.add.at(self._counts, tokens, 1)
        self.documents += 1
        if self.documents == 1:
            self._first = (tokens, len(text))
            return
        self._write_first(in_validation(self.seed, 0, self.fraction))
        self._write(tokens, len(text), in_validation(self.seed, self.documents - 1, self.fraction))

    def _write_first(self, validation: bool) -> None:
        # The first document waits for a second: alone, it is training text whatever the rule says of the pair.
        if self._first is not None:
            self._write(*self._first, validation)
        self._first = None

    def _write(self, tokens: numpy.ndarray, size: int, validation: bool) -> None:
        split = self._validation if validation else self._train
        split.append(tokens)
        split.documents += 1
        split.bytes += size

    def finish(self) -> dict:
        """Puts the set in its place and returns its manifest."""
        self._write_first(False)
        for split in (self._train, self._validation):
            split.finish()
        counts = self._counts[self._counts > 0]
        bits = -float((counts * numpy.log2(counts / counts.sum())).sum())
        manifest = {
            "format": FORMAT, "version": VERSION, "tokenizer": self.tokenizer, "seed": self.seed,
            "validation_fraction": self.fraction,
            "unigram_bits_per_byte": bits / max(1, self._train.bytes + self._validation.bytes),
            "source_hash": self._hash.hexdigest(),
            "train": self._train.manifest(), "validation": self._validation.manifest(),
        }
        self._replace(manifest)
        return manifest

    def _replace(self, manifest: dict) -> None:
        written = self._temporary / f"{self.name}.json"
        with open(written, "w", encoding="utf-8") as file:
            file.write(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        aside = self._temporary / ".old"
        aside.mkdir()
        target = self.folder / written.name
        pattern = re.compile(re.escape(self.name) + r"(-validation)?-\d{5,}\.npy")
        old = [path for path in self.folder.iterdir() if pattern.fullmatch(path.name)]
        new = [shard["file"] for split in (self._train, self._validation) for shard in split.shards]
        # The manifest goes first and comes last: without one the files are no set, and old and new are never mixed.
        moves = [(target, aside / target.name)] if target.exists() else []
        moves += [(path, aside / path.name) for path in old]
        moves += [(self._temporary / file, self.folder / file) for file in new] + [(written, target)]
        done = []
        try:
            for source, destination in moves:
                os.rename(source, destination)
                done.append((source, destination))
        except BaseException:
            for source, destination in reversed(done):
                os.rename(destination, source)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
