"""fuzz_seeds.py FOLDER: small valid files of every format that we read, for the fuzzers to start from."""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def main(folder):
    folder.mkdir(parents=True)
    for width in ("<u2", "<u4"):
        np.save(folder / f"tokens-{width[1:]}.npy", np.arange(70, dtype=width))
    np.save(folder / "foreign.npy", np.zeros((2, 3), dtype="<f4"))
    tensors = {"model.norm.weight": np.ones(4, np.float32), "model.embed_tokens.weight": np.zeros((5, 4), np.float16)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({}, folder / "empty.safetensors")
    manifest = {"format": 1, "tokenizer": {"kind": "bytes", "vocabulary": 257}, "train": {"shards": [{"file": "a.npy"}]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for config in sorted((Path(__file__).parents[1] / "configs").glob("*.toml")):
        (folder / config.name).write_bytes(config.read_bytes())
    (folder / "one.toml").write_text('design = "mhar"\nsteps = 10\nrate = 1e-3\ntied = true # a comment\r\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
