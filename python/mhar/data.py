"""Token shards out of parquet and jsonl with a Hugging Face tokenizer."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tokenizers
import xxhash

from mhar import documents
from mhar.errors import InputError
from mhar.shards import ShardSet

END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>", "[EOS]")
BATCH_DOCUMENTS, BATCH_CHARACTERS = 1024, 1 << 22


def load_tokenizer(path: str) -> tuple[tokenizers.Tokenizer, str]:
    """A tokenizer.json that encodes text and nothing but the text, and the file's hash."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError("read tokenizer", path, "a readable file", error.strerror, "check the path") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises plain Exception
        raise InputError("read tokenizer", path, "a Hugging Face tokenizer.json", documents.one_line(error),
                         "name the tokenizer.json of the model") from None
    # A file may carry settings of its last use; and text that spells a special token must not become one.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer, xxhash.xxh3_128_hexdigest(content)


def find_end_of_text(tokenizer: tokenizers.Tokenizer, path: str, asked: str | None) -> int:
    """The id of the end-of-text token: of `asked` (a token or an id), else of the first known name."""
    ids = set(tokenizer.get_vocab(with_added_tokens=True).values())
    if asked is not None:
        found = tokenizer.token_to_id(asked)
        if found is None and asked.isascii() and asked.isdigit() and int(asked) in ids:
            found = int(asked)
        if found is None:
            raise InputError("option --end-of-text", asked, f"a token or id of {path}", "neither",
                             "look the token up in the tokenizer.json")
        return found
    for token in END_OF_TEXT:
        if (found := tokenizer.token_to_id(token)) is not None:
            return found
    raise InputError("read tokenizer", path, f"an end-of-text token ({', '.join(END_OF_TEXT)})", "none of them",
                     "name the token with --end-of-text")


def batches(files: list[Path], column: str) -> Iterator[list[str]]:
    """Non-empty documents, as many at once as are worth encoding in parallel."""
    batch, characters = [], 0
    for file in files:
        for text in documents.read(file, column):
            if not text:
                continue
            batch.append(text)
            characters += len(text)
            if len(batch) == BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
    if batch:
        yield batch


def prepare(options: argparse.Namespace) -> dict:
    """Writes the shard set that `options` ask for and returns its manifest."""
    tokenizer, digest = load_tokenizer(options.tokenizer)
    end_of_text = find_end_of_text(tokenizer, options.tokenizer, options.end_of_text)
    # Ids may have holes, so the number of tokens says too little.
    least = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    vocabulary = least if options.vocabulary is None else options.vocabulary
    if not least <= vocabulary <= 1 << 32:
        raise InputError("option --vocabulary", "", f"at least the {least} ids of {options.tokenizer} and at most 2^32",
                         vocabulary, "raise it or leave it out")
    files = documents.collect(options.paths)
    description = {"kind": "huggingface", "name": Path(options.tokenizer).name, "hash": digest,
                   "vocabulary": vocabulary, "end_of_text": end_of_text}
    shards = ShardSet(options.out, description, options.validation_fraction, options.seed, options.shard_tokens)
    with shards:
        for batch in batches(files, options.column):
            for text, encoding in zip(batch, tokenizer.encode_batch(batch, add_special_tokens=False), strict=True):
                shards.add(encoding.ids, text.encode())
        if shards.documents == 0:
            raise InputError("prepare data", options.paths[0], f"at least one text in the column '{options.column}'",
                             "an empty corpus", "name files that hold text")
        return shards.finish()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise InputError("command line", "", "options as in --help", message, "see python -m mhar.data --help")


def _number(kind: type, least: float, below: float):
    def convert(text: str):
        value = kind(text)
        if not least <= value < below:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least} and below {below}")
        return value

    convert.__name__ = "whole number" if kind is int else "number"
    return convert


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m mhar.data", description=__doc__)
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="parquet, jsonl and jsonl.gz files, or folders of them")
    add("--out", required=True, metavar="DIR/NAME", help="the shard set: NAME.json and NAME-00000.npy ... in DIR")
    add("--tokenizer", required=True, metavar="FILE", help="a Hugging Face tokenizer.json")
    add("--column", default="text", help="the column that holds the text (default: %(default)s)")
    add("--end-of-text", metavar="TOKEN_OR_ID", help="the token after each document, by its text or else by its id "
        "(default: found in the tokenizer)")
    add("--vocabulary", type=_number(int, 1, 2**63), metavar="N", help="ids to record, where the model's embedding has more than the tokenizer (default: the tokenizer's)")
    add("--validation-fraction", type=_number(float, 0, 1), default=0.05, metavar="F",
        help="share of the documents kept for validation (default: %(default)s)")
    add("--seed", type=_number(int, 0, 2**63), default=42, metavar="S", help="chooses the validation documents (default: %(default)s)")
    add("--shard-tokens", type=_number(int, 1, 2**63), default=1 << 28, metavar="N",
        help="tokens in a shard at most (default: %(default)s)")
    add("--json", action="store_true", help="print the manifest on one line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    try:
        options = parse(arguments)
        manifest = prepare(options)
    except InputError as error:
        print(f"mhar.data: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        refusal = InputError("write shards", error.filename or options.out, "to write the shard set",
                             error.strerror or error, "make room there or choose another --out")
        print(f"mhar.data: {refusal}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(manifest, ensure_ascii=False))
        return 0
    print(f"{options.out}: vocabulary {manifest['tokenizer']['vocabulary']}, "
          f"end-of-text {manifest['tokenizer']['end_of_text']}, "
          f"unigram entropy {manifest['unigram_bits_per_byte']:.4f} bits per byte")
    for name in ("train", "validation"):
        split = manifest[name]
        print(f"{name:<11}{split['documents']:>10} documents {split['bytes']:>14} bytes {split['tokens']:>14} tokens "
              f"in {len(split['shards'])} shard{'' if len(split['shards']) == 1 else 's'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
