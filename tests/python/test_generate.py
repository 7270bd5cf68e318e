"""`python -m mhar.generate`: text in, the program's token ids between, text out. The program is a stand-in that repeats the
prompt's tokens backwards and notes how it was called."""

import json
import re
import stat
import sys

import pytest
import xxhash
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from mhar.errors import InputError
from mhar.generate import check_tokenizer, main

PROGRAM = """#!{python}
import json, sys
arguments = sys.argv[1:]
open({log!r}, "w").write(json.dumps(arguments))
if "--fail" in arguments:
    print("generate: refused", file=sys.stderr)
    sys.exit(2)
ids = [int(word) for word in arguments[arguments.index("--prompt-tokens") + 1].split(",")]
print(json.dumps({{"event": "sample", "prompt": "", "text": "", "tokens": len(ids), "seed": 1, "token_ids": ids[::-1]}}))
"""


@pytest.fixture
def tokenizer(tmp_path):
    words = {"one": 0, "two": 1, "three": 2, "[UNK]": 3}
    built = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = Whitespace()
    path = tmp_path / "tokenizer.json"
    built.save(str(path))
    return path


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "a folder" / "mhar"
    path.parent.mkdir()
    path.write_text(PROGRAM.format(python=sys.executable, log=str(tmp_path / "called.json")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def call(program, tokenizer, *more, prompt="one two three"):
    return main(["--checkpoint", "some/checkpoint", "--tokenizer", str(tokenizer), "--prompt", prompt, "--mhar", str(program),
                 *more])


def refused(capsys, code):
    message = capsys.readouterr().err
    assert code == 2 and message.count("\n") == 1 and message.startswith("mhar.generate: "), message
    return message


def test_tokenises_calls_the_program_and_decodes(program, tokenizer, tmp_path, capsys):
    assert call(program, tokenizer, "--tokens", "3", "--temperature", "0.5") == 0
    assert capsys.readouterr().out == "one two threethree two one\n"
    assert json.loads((tmp_path / "called.json").read_text()) == [
        "generate", "--checkpoint", "some/checkpoint", "--prompt-tokens", "0,1,2", "--json", "--tokens", "3",
        "--temperature", "0.5"]


def test_json_line_has_prompt_and_text(program, tokenizer, capsys):
    assert call(program, tokenizer, "--json") == 0
    sample = json.loads(capsys.readouterr().out)
    assert sample["prompt"] == "one two three" and sample["text"] == "three two one" and sample["tokens"] == 3


def test_one_token_is_enough(program, tokenizer, capsys):
    assert call(program, tokenizer, prompt="two") == 0
    assert capsys.readouterr().out == "twotwo\n"


def test_the_programs_refusal_is_handed_on(program, tokenizer, capfd):
    assert call(program, tokenizer, "--fail") == 2
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == "generate: refused\n"


def test_refuses_an_empty_prompt(program, tokenizer, capsys):
    assert "--prompt: wanted text of at least one token, got ''" in refused(capsys, call(program, tokenizer, prompt=""))


def test_refuses_a_missing_or_foreign_tokenizer(program, tokenizer, tmp_path, capsys):
    assert "none.json: wanted a tokenizer.json, got no such file" in refused(capsys, call(program, tmp_path / "none.json"))
    tokenizer.write_text('{"model": 3}')
    assert "wanted a Hugging Face tokenizer.json" in refused(capsys, call(program, tokenizer))


def test_refuses_a_missing_program(tmp_path, tokenizer, capsys):
    message = refused(capsys, call(tmp_path / "nowhere", tokenizer))
    assert "nowhere: wanted the mhar program, got no such file; build it with make build" in message


def test_refuses_output_that_is_no_sample(program, tokenizer, capsys):
    program.write_text("#!/bin/sh\necho hello\n")
    assert "wanted a JSON line with token_ids, got 'hello\\n'" in refused(capsys, call(program, tokenizer))


@pytest.mark.parametrize("trained, words", [
    ({"kind": "bytes", "name": "bytes", "hash": ""}, "trained on bytes"),
    ({"kind": "huggingface", "name": "other.json", "hash": "0" * 32}, "other.json (000000000000)"),
])
def test_refuses_another_tokenizer_than_the_checkpoints(tokenizer, trained, words):
    with pytest.raises(InputError, match=re.escape(words)):
        check_tokenizer(tokenizer, trained)


def test_takes_the_checkpoints_tokenizer_and_any_for_a_foreign_model(tokenizer):
    check_tokenizer(tokenizer, {"kind": "huggingface", "hash": xxhash.xxh3_128_hexdigest(tokenizer.read_bytes())})
    check_tokenizer(tokenizer, {"kind": "unknown", "hash": ""})
