#!/usr/bin/env python3
"""Depth reads of others on the shape of `mhar bench read --peers`, which starts this script: one JSON line a peer.

  per site   the published scheme in Triton (per_site.py), with the RMSNorm that follows a read
  fla        fla-core's fused_attnres, where that package is installed: one head
  liger      liger-kernel's attention residuals, where that package is installed: one head

A peer that fails is a line with its error. Sites are timed with a cleared L2 cache (total_ms) and without (warm).
"""

import argparse
import gc
import json
from dataclasses import dataclass

import torch
import torch.nn.functional as functional

SWEEP_BYTES = 256 << 20  # as in the program's own measurement
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass
class Shape:
    """`counts[r]` sources are read by site r."""

    tokens: int
    width: int
    heads: int
    counts: list

    def random_keys(self, **options):
        """Keys [R, D] whose logits have a standard deviation of about 1.5."""
        scale = 1.5 / (self.width // self.heads) ** 0.5
        return scale * torch.randn(len(self.counts), self.width, **options)


class OneHead:
    """A library's read of a list of sources, through autograd; each site is a graph of its own."""

    apart = True

    def __init__(self, shape, options, read):
        self.read, self.counts, self.steps = read, shape.counts, len(shape.counts)
        single = Shape(shape.tokens, shape.width, 1, shape.counts)
        self.sources = [torch.randn(1, shape.tokens, shape.width, **options).requires_grad_(True)
                        for _ in range(shape.counts[-1])]
        self.queries = [key.requires_grad_(True) for key in single.random_keys(**options)]
        self.gain = torch.ones(shape.width, **options).requires_grad_(True)
        self.norm = torch.ones(shape.width, **options).requires_grad_(True)
        self.dy = torch.randn(1, shape.tokens, shape.width, **options)
        self.outputs = [None] * self.steps

    def restore(self):
        for one in (*self.sources, *self.queries, self.gain, self.norm):
            one.grad = None

    def forward(self, site):
        mix = self.read(self.sources[:self.counts[site]], self.queries[site], self.gain)
        self.outputs[site] = functional.rms_norm(mix, (mix.shape[-1],), self.norm, 1e-6)

    def backward(self, site):
        self.outputs[site].backward(self.dy)
        self.outputs[site] = None


def per_site(shape, options):
    from per_site import PerSite

    check_per_site(shape, options)
    return PerSite(shape, options)


def fla(shape, options):
    from fla.ops.attnres import fused_attnres

    return OneHead(shape, options, lambda sources, query, gain: fused_attnres(query, sources, gain))


def liger(shape, options):
    from liger_kernel.ops.attn_res import LigerAttnResFunction

    return OneHead(shape, options, lambda sources, query, gain: LigerAttnResFunction.apply(
        torch.stack(sources), query, gain, 1e-6))


PER_SITE = "per site (Triton)"
PEERS = {PER_SITE: per_site, "fla, one head": fla, "liger, one head": liger}


def check_per_site(shape, options):
    """Raises where the kernels disagree with the same reads in fp64 on a few tokens."""
    from per_site import PerSite

    small = PerSite(Shape(5, shape.width, shape.heads, shape.counts), options)
    sources = [s.double().requires_grad_(True) for s in small.sources]
    keys = small.keys.double()
    outputs = []
    for count, key in zip(shape.counts, keys):
        stacked = torch.stack(sources[:count])
        heads = (count, 5, shape.heads, -1)
        rho = torch.rsqrt(stacked.square().mean(-1, keepdim=True) + small.eps)
        weights = (stacked * rho * key).view(heads).sum(-1).softmax(0)
        mix = (weights.unsqueeze(-1) * stacked.view(heads)).sum(0).reshape(5, -1)
        outputs.append(functional.rms_norm(mix, (shape.width,), small.norm.double(), small.eps))
    torch.autograd.backward(outputs, [small.dy.double()] * len(outputs))

    def error(got, wanted):
        return ((got.double() - wanted).abs().max() / wanted.abs().max()).item()

    with torch.no_grad():
        worst = max(error(small.forward(site), y) for site, y in enumerate(outputs))
        for site in reversed(range(small.steps)):
            ds, _ = small.backward(site)
            before = shape.counts[site - 1] if site else 0
            worst = max([worst] + [error(one, sources[before + i].grad) for i, one in enumerate(ds)])
    if not worst <= (2e-2 if small.sources.dtype != torch.float32 else 1e-4):
        raise ArithmeticError(f"relative error of {worst:.1e} against fp64")


class Bench:
    """Milliseconds of all forward and all backward sites between events on the device."""

    def __init__(self, device, warm_up, repeat):
        self.warm_up, self.repeat = warm_up, repeat
        self.buffer = torch.empty(SWEEP_BYTES // 4, device=device)

    def sweep(self, times=1):
        for _ in range(times):
            self.buffer.fill_(1.0)

    def timed(self, ahead, work):
        """Sweeps queued ahead hide what launching from Python costs."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.sweep(ahead)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def chain(self, sites, run, cleared):
        def work():
            for site in sites:
                if cleared:
                    self.sweep()
                run(site)

        return self.timed(2 * len(sites), work)

    def one_by_one(self, sites, run):
        """Cleared by the sweeps queued ahead. For sites whose launches would fill the queue if they were chained."""
        return sum(self.timed(32, lambda: run(site)) for site in sites)

    def passes(self, peer, cleared):
        """Medians of forward, backward and total; the time of the sweeps within a chain is taken off."""
        sites = range(peer.steps)
        if cleared and peer.apart:
            time = self.one_by_one
        else:
            swept = sorted(self.chain(sites, lambda site: None, cleared) for _ in range(self.repeat))[self.repeat // 2]
            time = lambda sites, run: self.chain(sites, run, cleared) - swept * cleared
        times = []
        for i in range(self.warm_up + self.repeat):
            peer.restore()
            forward, backward = time(sites, peer.forward), time(sites[::-1], peer.backward)
            if i >= self.warm_up:
                times.append((forward, backward, forward + backward))
        return [sorted(column)[len(times) // 2] for column in zip(*times)]


def measure(name, shape, options, bench):
    """One line of results, or of what went wrong: no fault of a peer may cost the others their figures."""
    line = {"name": name, "heads": shape.heads if name == PER_SITE else 1}
    try:
        peer = PEERS[name](shape, options)
        line |= zip(("forward_ms", "backward_ms", "total_ms"), bench.passes(peer, cleared=True))
        line |= zip(("warm_forward_ms", "warm_backward_ms", "warm_total_ms"), bench.passes(peer, cleared=False))
    except Exception as error:
        line["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("tokens", "width", "heads", "sites"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--block", type=int, default=0, help="sites that share a list of sources; 0: none do")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=20)
    asked = parser.parse_args()
    # With blocks, their sources so far and a null source; the stream they are added to is left out.
    counts = [r // asked.block + 2 if asked.block else r + 1 for r in range(asked.sites)]
    shape = Shape(asked.tokens, asked.width, asked.heads, counts)
    if asked.device != "cpu":  # where every peer says why it does not run
        torch.cuda.set_device(asked.device)
    torch.manual_seed(1)
    options = {"device": asked.device, "dtype": DTYPES[asked.dtype]}
    bench = Bench(asked.device, asked.warm_up, asked.repeat)
    for name in PEERS:
        print(json.dumps(measure(name, shape, options, bench)), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
