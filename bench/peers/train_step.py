#!/usr/bin/env python3
"""Training steps of PyTorch models on the shape of `mhar bench step --peers`, which starts this script: one JSON line
a peer.

  default           residual stream, torch.compile of the whole model
  reduce-overhead   the same in that mode, which records CUDA graphs
  tuned             as reduce-overhead, with the attention back end that is fastest on the shape, measured alone
  per-site          depth reads by the published scheme, sublayers compiled
  composed          depth reads of tensor operations, torch.compile of the whole model
  eager             residual stream, uncompiled; only where it is asked for

A step is forward, backward, clipping to a norm of 1 and a fused AdamW. A peer that fails is a line with its error. Each
runs in a process of its own, so that neither its memory nor its fault is left to the next.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

GRAPHS = "reduce-overhead"


@dataclass
class Peer:
    label: str
    residual: str  # as train_model.Decoder has it
    mode: str | None  # of torch.compile; "sublayers" compiles those alone
    headline: bool = False  # one of the two that ours are held against first
    unasked: bool = True  # runs where none is named


PEERS = {
    "default": Peer("standard, torch.compile (default)", "stream", "default", headline=True),
    GRAPHS: Peer(f"standard, torch.compile ({GRAPHS})", "stream", GRAPHS, headline=True),
    "tuned": Peer(f"standard, torch.compile ({GRAPHS}), fastest attention", "stream", GRAPHS),
    "per-site": Peer("mhar, published scheme (Triton), compiled sublayers", "per_site", "sublayers"),
    "composed": Peer("mhar, composed, torch.compile (default)", "composed", "default"),
    "eager": Peer("standard, eager", "stream", None, unasked=False),
}


class ListPeers(argparse.Action):
    """Needs no shape."""

    def __call__(self, parser, *_):
        print("\n".join(PEERS))
        parser.exit()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("vocabulary", "width", "layers", "heads", "kv-heads", "head-dim", "ffn", "routing-heads", "sequence",
                 "microbatch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--without-qk-norm", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: PyTorch's own choice")
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="", help="peers, with commas between")
    parser.add_argument("--limit-seconds", type=float, default=0, help="for all peers together; 0: none")
    parser.add_argument("--list", action=ListPeers, nargs=0, help="names the peers, one a line, and ends")
    parser.add_argument("--one", choices=PEERS, help="measures one peer in this process")
    return parser.parse_args()


class Timer:
    """Milliseconds between marks: events of the device's stream, or the wall clock on the CPU."""

    def __init__(self, gpu):
        import torch

        self.torch, self.gpu, self.marks = torch, gpu, []

    def mark(self):
        if self.gpu:
            self.marks.append(self.torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def gaps(self):
        if self.gpu:
            self.torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [1e3 * (b - a) for a, b in zip(self.marks, self.marks[1:])]


def fastest_attention(shape, microbatch, options):
    """The back end whose forward and backward pass take least at the model's own shape."""
    import torch
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def heads(count):
        x = torch.randn(microbatch, shape.sequence, count, shape.head_dim, **options)
        return x.transpose(1, 2).requires_grad_(True)

    q, k, v = heads(shape.heads), heads(shape.kv_heads), heads(shape.kv_heads)
    times = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                timer = Timer(q.is_cuda)
                for i in range(13):
                    if i >= 3:
                        timer.mark()
                    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                    enable_gqa=shape.heads != shape.kv_heads)
                    mixed.backward(mixed.detach())
                times[backend] = sorted(timer.gaps())[4]
        except RuntimeError:
            continue
    if not times:
        raise RuntimeError("no fused attention takes this shape")
    return min(times, key=times.get)


def measure(name, asked):
    """The line of a peer."""
    from contextlib import nullcontext

    import torch
    from torch.nn.attention import sdpa_kernel
    from train_model import Decoder, Shape

    peer = PEERS[name]
    mode = peer.mode
    shape = Shape(asked.vocabulary, asked.width, asked.layers, asked.heads, asked.kv_heads, asked.head_dim, asked.ffn,
                  asked.routing_heads, asked.sequence, not asked.untied, not asked.without_qk_norm)
    gpu = asked.device != "cpu"
    if asked.threads:
        torch.set_num_threads(asked.threads)
    if gpu:
        torch.cuda.set_device(asked.device)
    options = dict(device=asked.device, dtype=torch.bfloat16 if asked.precision == "bf16" else torch.float32)
    torch.manual_seed(1)
    line = {"name": peer.label, "headline": peer.headline}
    attention = nullcontext()
    if name == "tuned":
        backend = fastest_attention(shape, asked.microbatch, options)
        line["attention"] = backend.name.removesuffix("_ATTENTION").lower()
        attention = sdpa_kernel(backend)
        if gpu:
            torch.cuda.empty_cache()
    model = Decoder(shape, peer.residual).to(**options)
    if mode == "sublayers":
        model.compile_sublayers()
    run = torch.compile(model, mode=mode, dynamic=False) if mode in ("default", GRAPHS) else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(asked.vocabulary, (asked.microbatch, asked.sequence + 1), device=asked.device)
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    # A graph's own gradients are gone with its next replay, so sums over microbatches need buffers that stay.
    fresh = asked.accumulate == 1

    def step():
        for _ in range(asked.accumulate):
            if mode == GRAPHS:
                torch.compiler.cudagraph_mark_step_begin()
            loss = run(ids, targets)
            (loss if fresh else loss / asked.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=fresh)
        return loss

    with attention:
        if not fresh:
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        start = time.perf_counter()
        line["first_loss"] = step().item()
        for _ in range(asked.warm_up):
            step()
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        line["warm_up_s"] = time.perf_counter() - start
        timer = Timer(gpu)
        for _ in range(asked.steps):
            timer.mark()
            last = step()
        timer.mark()
        times = sorted(timer.gaps())
    half = len(times) // 2
    line["ms"] = times[half] if len(times) % 2 else (times[half - 1] + times[half]) / 2
    line["least"], line["most"] = times[0], times[-1]
    line["tokens_per_s"] = asked.accumulate * tokens.shape[0] * asked.sequence / (line["ms"] * 1e-3)
    line["last_loss"] = last.item()
    if gpu:
        line["peak_bytes"] = torch.cuda.max_memory_allocated()
        line["reserved_bytes"] = torch.cuda.max_memory_reserved()
    return line


def failed(name, reason):
    return json.dumps({"name": PEERS[name].label, "error": reason.splitlines()[0][:300] if reason else "no reason given"})


def in_own_process(name, seconds):
    """Prints the line of a peer, or of why it has none. A time limit ends its compilers with it."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return failed(name, "stopped at the time limit")
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return lines[-1] if lines else failed(name, f"its process ended with code {child.returncode}")


def chosen(only):
    if not only:
        return [name for name, peer in PEERS.items() if peer.unasked]
    wanted = only.split(",")
    for word in wanted:
        if word not in PEERS:
            sys.exit(f"train_step.py: option --only: wanted some of {', '.join(PEERS)}, got '{word}'; correct it")
    return wanted


def main():
    asked = arguments()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    if asked.one:
        try:
            print(json.dumps(measure(asked.one, asked)), flush=True)
        except Exception as error:  # no fault of a peer may cost the others their figures
            print(failed(asked.one, f"{type(error).__name__}: {error}"), flush=True)
        return
    end = time.monotonic() + asked.limit_seconds if asked.limit_seconds else None
    for name in chosen(asked.only):
        left = end - time.monotonic() if end else None
        late = left is not None and left <= 0
        print(failed(name, "left out at the time limit") if late else in_own_process(name, left), flush=True)


if __name__ == "__main__":
    main()
