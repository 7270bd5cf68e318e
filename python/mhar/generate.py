"""Samples from a checkpoint that was trained with a Hugging Face tokenizer:
`python -m mhar.generate --checkpoint DIR --tokenizer TOKENIZER.json --prompt TEXT`. The sampling is `mhar generate`'s; this
turns text into token ids for it and back. Options that are not named here are handed on to it."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import xxhash

from mhar.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mhar.generate", allow_abbrev=False,
                                     usage="%(prog)s --checkpoint DIR --tokenizer FILE --prompt TEXT [--mhar PATH] [--json] "
                                     "[option of mhar generate]...", description="Sample text from a checkpoint that was trained with a tokenizer. "
                                     "Further options (--tokens, --temperature, --top-k, --seed ...) are those of mhar generate.")
    parser.add_argument("--checkpoint", required=True, help="checkpoint, run folder or Hugging Face model folder")
    parser.add_argument("--tokenizer", required=True, type=Path, help="the tokenizer.json the data was prepared with")
    parser.add_argument("--prompt", required=True, help="text to go on from, not empty")
    parser.add_argument("--mhar", type=Path, help="the program; default build/mhar of this repository, else the one on PATH")
    parser.add_argument("--json", action="store_true", help="print the program's JSON line with the text in it")
    chosen, handed_on = parser.parse_known_args(arguments)
    try:
        tokenizer = load_tokenizer(chosen.tokenizer)
        # As in the data: a special token spelled in text is text.
        tokenizer.encode_special_tokens = True
        ids = tokenizer.encode(chosen.prompt, add_special_tokens=False).ids
        if not ids:
            raise InputError("generate", "--prompt", "text of at least one token", repr(chosen.prompt), "give a prompt")
        command = [str(find_program(chosen.mhar)), "generate", "--checkpoint", chosen.checkpoint,
                   "--prompt-tokens", ",".join(map(str, ids)), "--json", *handed_on]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        except OSError as error:
            raise InputError("run mhar", command[0], "a program that starts", error.strerror or str(error),
                             "build it with make build, or name it with --mhar") from error
        if done.returncode != 0:
            return done.returncode
        sample = read_sample(done.stdout)
        check_tokenizer(chosen.tokenizer, sample.get("tokenizer", {}))
    except InputError as error:
        print(f"mhar.generate: {error}", file=sys.stderr)
        return 2
    text = tokenizer.decode(sample["token_ids"], skip_special_tokens=False)
    print(json.dumps({**sample, "prompt": chosen.prompt, "text": text}) if chosen.json else chosen.prompt + text)
    return 0


def load_tokenizer(path: Path):
    """A tokenizers.Tokenizer. Throws InputError for a file that is missing or is none."""
    from tokenizers import Tokenizer  # here: the rest of the module needs no tokenizers package

    if not path.is_file():
        raise InputError("read tokenizer", path, "a tokenizer.json", "a folder" if path.is_dir() else "no such file",
                         "give the file the data was prepared with")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for whatever it finds
        raise InputError("read tokenizer", path, "a Hugging Face tokenizer.json", str(error),
                         "give the file the data was prepared with") from error


def check_tokenizer(path: Path, trained: dict) -> None:
    """Refuses a tokenizer other than the one the checkpoint names; a foreign model names none."""
    if trained.get("kind") == "bytes":
        raise InputError("generate", path, "no tokenizer: the checkpoint was trained on bytes", path.name,
                         "use mhar generate")
    stored, given = trained.get("hash", ""), xxhash.xxh3_128_hexdigest(path.read_bytes())
    if stored and stored != given:
        raise InputError("generate", path, f"the checkpoint's tokenizer {trained.get('name')} ({stored[:12]})",
                         f"another one ({given[:12]})", "give the tokenizer.json the data was prepared with")


def find_program(given: Path | None) -> Path:
    """The mhar program: as given, else build/mhar of the repository this file lies in, else the one on PATH."""
    built = Path(__file__).resolve().parents[2] / "build" / "mhar"
    found = given or (built if built.is_file() else shutil.which("mhar"))
    if found is None or not Path(found).is_file():
        raise InputError("run mhar", given or built, "the mhar program", "no such file",
                         "build it with make build, or name it with --mhar")
    return Path(found)


def read_sample(output: str) -> dict:
    """The program's last JSON line that carries token ids."""
    for line in reversed(output.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("token_ids"), list):
            return event
    raise InputError("run mhar", "its output", "a JSON line with token_ids", repr(output[-80:]),
                     "build program and package from the same sources")


if __name__ == "__main__":
    sys.exit(main())
