"""The files of tests/checkpoint that tie our safetensors writer and reader to the `safetensors` package.

The C++ tests check that our writer gives ours.safetensors byte for byte and that our reader takes theirs.safetensors;
here the package has to read the first and to give the content of the second.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

FOLDER = Path(__file__).resolve().parent.parent / "checkpoint"


def test_package_reads_our_file():
    path = FOLDER / "ours.safetensors"
    tensors = load_file(path)
    assert {name: str(t.dtype) for name, t in tensors.items()} == {
        "state": "torch.uint8",
        'weight "q"': "torch.float32",
        "gain": "torch.bfloat16",
        "half": "torch.float16",
        "step": "torch.int64",
        "none": "torch.int32",
        "scalar": "torch.float64",
    }
    assert tensors['weight "q"'].tolist() == [[0.5, -1.0, 2.0], [3.25, 0.0, -0.0]]
    assert tensors["gain"].tolist() == [1.0, -2.0]
    assert tensors["half"].tolist() == [1.0]
    assert tensors["state"].tolist() == [1, 2, 3]
    assert tensors["step"].tolist() == [2**40]
    assert tuple(tensors["none"].shape) == (0, 4)
    assert tensors["scalar"].item() == 0.1
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "note": "line\nbreak"}


def test_package_writes_the_file_that_we_read():
    tensors = {
        "weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "gain": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
        "step": torch.tensor([7]),
        "none": torch.zeros(0, 4, dtype=torch.int32),
    }
    stored = FOLDER / "theirs.safetensors"
    assert stored.read_bytes() == save(tensors, {"format": "pt"})
    assert all(torch.equal(load_file(stored)[name], t) for name, t in tensors.items())
