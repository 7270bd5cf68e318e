"""Small corpora and tokenizers for the tests of data preparation."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SENTENCES = [f"Sentence {i}: the depth of layer {i * 7 % 31} reads größe, naïve and 深さ; it's {i}.\n"
             for i in range(60)]


def qwen_like(path: Path, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>")) -> tokenizers.Tokenizer:
    """A byte-level BPE built as Qwen3's tokenizer.json is, with special tokens after the vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(QWEN_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet,
                                                                 show_progress=False))
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(path))
    return tokenizer


def parquet(path: Path, texts: list, column: str = "text") -> Path:
    table = pyarrow.table({column: pyarrow.array(texts, pyarrow.string()), "number": list(range(len(texts)))})
    pyarrow.parquet.write_table(table, path, row_group_size=7)
    return path


def jsonl(path: Path, texts: list, column: str = "text") -> Path:
    content = "".join(json.dumps({"id": i, column: text}, ensure_ascii=i % 2 == 0) + "\n"
                      for i, text in enumerate(texts))
    opened = gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else open(path, "w", encoding="utf-8")
    with opened as file:
        file.write(content)
    return path
