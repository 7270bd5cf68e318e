"""Hugging Face's models and ours are the same models: logits and losses agree, and folders go both ways."""

import json
import math

import numpy
import pytest
import torch
from program import checkpoint, copy
from safetensors import safe_open
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")
SEQUENCE, WINDOWS = 32, 8
SIZES = {"vocab_size": 300, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}


def windows(shards) -> torch.Tensor:
    """The first validation windows, [WINDOWS, SEQUENCE + 1]; neighbours share one token."""
    tokens = numpy.load(shards.with_name("text-validation-00000.npy")).astype(numpy.int64)
    return torch.stack([torch.from_numpy(tokens[w * SEQUENCE:w * SEQUENCE + SEQUENCE + 1]) for w in range(WINDOWS)])


def theirs(model, shards) -> tuple[torch.Tensor, float]:
    """Logits of the first window and the mean loss over all, by transformers."""
    batch = windows(shards)
    with torch.no_grad():
        logits = model(batch[:, :-1]).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(), batch[:, 1:].reshape(-1))
    return logits[0], loss.item()


def ours(mhar, folder, shards, tmp_path) -> tuple[torch.Tensor, float]:
    done = mhar("eval", "--checkpoint", folder, "--data", shards, "--windows", WINDOWS, "--sequence", SEQUENCE,
                "--json", "--logits", tmp_path / "logits.npy", "--threads", 1, "--device", "cpu")
    assert done.events[-1]["tokens"] == WINDOWS * SEQUENCE
    return torch.from_numpy(numpy.load(tmp_path / "logits.npy")), done.events[-1]["loss"]


def assert_same(mhar, model, folder, shards, tmp_path):
    logits, loss = ours(mhar, folder, shards, tmp_path)
    their_logits, their_loss = theirs(model, shards)
    assert logits.shape == their_logits.shape and (logits - their_logits).abs().max().item() < 1e-5
    assert loss == pytest.approx(their_loss, abs=1e-5)


def make_model(family="Qwen3", deviation=0.2, **config):
    """A random model, far enough from zero that scores, norms and positions matter."""
    torch.manual_seed(3)
    settings = getattr(transformers, f"{family}Config")(**SIZES | config)
    settings._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(settings).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=deviation)
    return model


def edited(folder, **keys) -> None:
    """Changes config.json; None removes a key."""
    path = folder / "config.json"
    config = {key: value for key, value in (json.loads(path.read_text()) | keys).items() if value is not None}
    path.write_text(json.dumps(config))


def refused(mhar, folder, shards) -> str:
    return mhar("eval", "--checkpoint", folder, "--data", shards, "--sequence", SEQUENCE, code=2).message


def test_our_standard_checkpoint_is_a_hugging_face_folder(mhar, shards, trained, tmp_path):
    folder = checkpoint(trained("standard"), 12)
    load = transformers.Qwen3ForCausalLM.from_pretrained
    model, report = load(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(report.values()), report
    assert_same(mhar, model.eval(), folder, shards, tmp_path)
    assert not any(key.startswith("attnres_") for key in json.loads((folder / "config.json").read_text()))
    assert transformers.AutoConfig.from_pretrained(folder).model_type == "qwen3"


@pytest.mark.parametrize("family, options", [("Qwen3", ["--tied", "false"]), ("Llama", ["--qk-norm", "false"])])
def test_our_other_standard_checkpoints(mhar, shards, tmp_path, family, options):
    mhar.train(shards, tmp_path / "run", *options, design="standard", steps=2)
    folder = checkpoint(tmp_path / "run", 2)
    kind = getattr(transformers, f"{family}ForCausalLM")
    model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(report.values()), report
    assert_same(mhar, model.eval(), folder, shards, tmp_path)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard_size", ["1GB", "20KB"])
def test_their_qwen3(mhar, shards, tmp_path, tied, shard_size):
    model = make_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "model", max_shard_size=shard_size)
    assert (tmp_path / "model" / "model.safetensors.index.json").exists() == (shard_size == "20KB")
    assert_same(mhar, model, tmp_path / "model", shards, tmp_path)


def test_their_llama_with_its_scaling(mhar, shards, tmp_path):
    plain = make_model("Llama", tie_word_embeddings=False)
    scaled = make_model("Llama", tie_word_embeddings=False, rope_parameters=LLAMA3)
    for name, model in {"plain": plain, "scaled": scaled}.items():
        model.save_pretrained(tmp_path / name)
        assert_same(mhar, model, tmp_path / name, shards, tmp_path)
    assert (theirs(plain, shards)[0] - theirs(scaled, shards)[0]).abs().max() > 1e-3, "the scaling matters here"


def test_rotary_base_flat_and_nested(mhar, shards, tmp_path):
    model = make_model(rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    model.save_pretrained(tmp_path / "model")
    for keys in ({"rope_theta": 1e6, "rope_parameters": None, "rope_scaling": None},
                 {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
                 {"rope_theta": 5.0, "rope_parameters": None, "rope_scaling": {"type": "default", "rope_theta": 1e6}}):
        edited(tmp_path / "model", **keys)
        assert_same(mhar, model, tmp_path / "model", shards, tmp_path)
    edited(tmp_path / "model", rope_theta=1e4, rope_parameters=None, rope_scaling=None)
    assert abs(ours(mhar, tmp_path / "model", shards, tmp_path)[1] - theirs(model, shards)[1]) > 1e-3


@pytest.mark.parametrize("keys, words", [
    ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ["rope_parameters.rope_type", "'yarn'", "llama3"]),
    ({"model_type": "mixtral"}, ["model_type", "'mixtral'", "qwen3"]),
    ({"attention_bias": True}, ["attention_bias", "wanted false"]),
    ({"use_sliding_window": True}, ["use_sliding_window", "wanted false"]),
    ({"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "silu"]),
    ({"hidden_size": None}, ["hidden_size", "got nothing"]),
    ({"num_key_value_heads": 3}, ["kv-heads", "3"]),
    ({"attnres_mode": "full"}, ["attnres_mode", "model_type"]),
    ({"tie_word_embeddings": False}, ["lm_head.weight", "none"]),
    ({"num_hidden_layers": 1}, ["unknown model.layers.1."]),
    ({"num_hidden_layers": 3}, ["none for model.layers.2."]),
    ({"intermediate_size": 96}, ["mlp.gate_proj.weight", "[96, 48]", "[80, 48]"])])
def test_refuses_what_it_cannot_compute(mhar, shards, tmp_path, keys, words):
    make_model().save_pretrained(tmp_path / "model")
    edited(tmp_path / "model", tie_word_embeddings=True)
    rename_head(tmp_path / "model")
    edited(tmp_path / "model", **keys)
    message = refused(mhar, tmp_path / "model", shards)
    assert all(word in message for word in words), message


def rename_head(folder) -> None:
    """Takes a stored head away: what a tied export looks like."""
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_head_stored_beside_the_tie_flag(mhar, shards, tmp_path):
    folder = tmp_path / "model"
    model = make_model(tie_word_embeddings=True)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    assert_same(mhar, model, folder, shards, tmp_path)
    head = tensors["model.embed_tokens.weight"].clone()
    head[7, 7] += 1e-3
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors")
    assert "lm_head.weight: wanted the bits of the embedding" in refused(mhar, folder, shards)


def test_index_that_disagrees_with_its_shards(mhar, shards, tmp_path):
    make_model(tie_word_embeddings=True).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    index = tmp_path / "model" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    names = sorted(set(listed["weight_map"].values()))
    for changes, word in [({"lm_head.weight": names[0]}, "lm_head.weight"),
                          ({"model.norm.weight": names[0]}, "model.norm.weight"),
                          ({"model.norm.weight": "other.safetensors"}, "other.safetensors")]:
        assert listed["weight_map"].get(next(iter(changes))) != names[0]
        index.write_text(json.dumps(listed | {"weight_map": listed["weight_map"] | changes}))
        assert word in refused(mhar, tmp_path / "model", shards)


def test_one_shard_without_an_index(mhar, shards, tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "model-00001-of-00001.safetensors")
    assert_same(mhar, model, tmp_path / "model", shards, tmp_path)


@pytest.mark.parametrize("design", ["standard", "single", "mhar"])
def test_stored_tensors_have_the_published_names(trained, design):
    with safe_open(checkpoint(trained(design), 12) / "model.safetensors", framework="pt") as file:
        names, shapes = set(file.keys()), {name: file.get_slice(name).get_shape() for name in file.keys()}
        assert {file.get_slice(name).get_dtype() for name in names} == {"F32"}
    assert "lm_head.weight" not in names and shapes["model.embed_tokens.weight"] == [257, 32]
    config = json.loads((checkpoint(trained(design), 12) / "config.json").read_text())
    modes = {"standard": ("qwen3", None), "single": ("qwen3_attnres", "full"), "mhar": ("qwen3_attnres", "full_mh")}
    assert (config["model_type"], config.get("attnres_mode")) == modes[design]
    reads = {name for name in names if "_res_" in name}
    if design == "standard":
        assert not reads
    else:
        assert len(reads) == 2 * 5 and shapes["model.layers.1.mlp_res_proj.weight"] == [1, 32]
        assert shapes["model.final_res_norm.weight"] == [32]


def test_vocabulary_is_stored_as_it_is(mhar, shards, tmp_path):
    mhar.train(shards, tmp_path / "run", design="standard", steps=2, vocabulary=1000, precision="bf16")
    embedding = load_file(checkpoint(tmp_path / "run", 2) / "model.safetensors")["model.embed_tokens.weight"]
    assert list(embedding.shape) == [1000, 32] and embedding.dtype == torch.bfloat16
    assert json.loads((checkpoint(tmp_path / "run", 2) / "config.json").read_text())["vocab_size"] == 1000


def test_copied_folder_without_our_files_evaluates(mhar, shards, trained, tmp_path):
    folder = copy(checkpoint(trained("mhar"), 12), tmp_path / "only")
    for name in ("state.json", "optimizer.safetensors", "files.json"):
        (folder / name).unlink()
    assert math.isclose(ours(mhar, folder, shards, tmp_path)[1],
                        ours(mhar, checkpoint(trained("mhar"), 12), shards, tmp_path)[1], abs_tol=0)
