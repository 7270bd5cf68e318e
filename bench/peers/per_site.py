"""The published scheme of depth reads: one kernel a site, which goes over all of its sources.

Forward keeps the weights of every site and 1 / rms of every source, so the backward pass recomputes nothing. It reads
the sources twice, adds to an fp32 gradient buffer of all sources, and leaves the key's gradient per token to be summed.
Letters: N sources s_i of P tokens and D channels, H routing heads of K channels, w the key of a site.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _forward(S, W, O, PI, RHO, N, P, D, K, eps, H: tl.constexpr, HB: tl.constexpr, KB: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    h, k = tl.arange(0, HB), tl.arange(0, KB)
    channel = h[:, None] * K + k[None, :]
    inside = (h[:, None] < H) & (k[None, :] < K)
    w = tl.load(W + channel, mask=inside, other=0.0)
    largest = tl.full((HB,), float("-inf"), tl.float32)
    total = tl.zeros((HB,), tl.float32)
    mix = tl.zeros((HB, KB), tl.float32)
    for i in range(N):
        s = tl.load(S + (i * P + p) * D + channel, mask=inside, other=0.0).to(tl.float32)
        rho = tl.rsqrt(tl.sum(tl.sum(s * s, 1), 0) / D + eps)
        tl.store(RHO + i * P + p, rho)
        logit = rho * tl.sum(w * s, 1)
        tl.store(PI + (i * P + p) * H + h, logit, mask=h < H)
        higher = tl.maximum(largest, logit)
        shrink, part = tl.exp(largest - higher), tl.exp(logit - higher)
        total = total * shrink + part
        mix = mix * shrink[:, None] + part[:, None] * s
        largest = higher
    tl.store(O + p * D + channel, (mix / total[:, None]).to(O.dtype.element_ty), mask=inside)
    for i in range(N):
        place = PI + (i * P + p) * H + h
        logit = tl.load(place, mask=h < H, other=0.0)
        tl.store(place, tl.exp(logit - largest) / total, mask=h < H)


@triton.jit
def _backward(S, W, PI, RHO, DO, DS, DW, N, P, D, K, SUMS: tl.constexpr, H: tl.constexpr, HB: tl.constexpr,
              KB: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    h, k = tl.arange(0, HB), tl.arange(0, KB)
    channel = h[:, None] * K + k[None, :]
    inside = (h[:, None] < H) & (k[None, :] < K)
    w = tl.load(W + channel, mask=inside, other=0.0)
    do = tl.load(DO + p * D + channel, mask=inside, other=0.0).to(tl.float32)
    delta = tl.zeros((HB,), tl.float32)
    for i in range(N):
        s = tl.load(S + (i * P + p) * D + channel, mask=inside, other=0.0).to(tl.float32)
        delta += tl.load(PI + (i * P + p) * H + h, mask=h < H, other=0.0) * tl.sum(do * s, 1)
    dw = tl.zeros((HB, KB), tl.float32)
    for i in range(N):
        s = tl.load(S + (i * P + p) * D + channel, mask=inside, other=0.0).to(tl.float32)
        pi = tl.load(PI + (i * P + p) * H + h, mask=h < H, other=0.0)
        rho = tl.load(RHO + i * P + p)
        da = pi * (tl.sum(do * s, 1) - delta)
        through_rho = tl.sum(da * tl.sum(w * s, 1), 0) * rho
        ds = pi[:, None] * do + (da * rho)[:, None] * w - (rho * rho / D) * through_rho * s
        dw += (da * rho)[:, None] * s
        place = DS + (i * P + p) * D + channel
        if SUMS:  # sites behind this one have left theirs
            ds += tl.load(place, mask=inside, other=0.0)
        tl.store(place, ds, mask=inside)
    tl.store(DW + p * D + channel, dw, mask=inside)


class PerSite:
    """The reads of one microbatch. `counts[r]` sources are read by site r; counts never fall."""

    apart = False  # a site's launches are few: a chain of all sites can be queued ahead of the device

    def __init__(self, shape, options):
        tokens, width, heads, counts = shape.tokens, shape.width, shape.heads, shape.counts
        wide = dict(device=options["device"], dtype=torch.float32)
        self.shape, self.eps = shape, 1e-6
        self.steps = len(counts)
        self.sources = torch.randn(counts[-1], tokens, width, **options)
        self.keys = shape.random_keys(**wide)
        self.norm = 1 + 0.1 * torch.randn(width, **options)
        self.dy = torch.randn(tokens, width, **options)
        self.mixes = torch.empty(self.steps, tokens, width, **options)
        self.weights = [torch.empty(n, tokens, heads, **wide) for n in counts]
        self.rho = torch.empty(counts[-1], tokens, **wide)
        self.ds = torch.empty(counts[-1], tokens, width, **wide)
        self.dw = torch.empty(tokens, width, **wide)
        self.rstd = [None] * self.steps
        channels = width // heads
        blocks = triton.next_power_of_2(heads), triton.next_power_of_2(channels)
        area = blocks[0] * blocks[1]
        warps = 8 if area >= 4096 else 4 if area >= 1024 else 2
        self.sizes = dict(H=heads, HB=blocks[0], KB=blocks[1], num_warps=warps)

    def restore(self):
        pass  # no buffer is used twice

    def forward(self, site):
        z, count = self.shape, self.shape.counts[site]
        mix = self.mixes[site]
        _forward[(z.tokens,)](self.sources, self.keys[site], mix, self.weights[site], self.rho, count, z.tokens,
                              z.width, z.width // z.heads, self.eps, **self.sizes)
        y, self.rstd[site] = torch.ops.aten._fused_rms_norm(mix, [z.width], self.norm, self.eps)
        return y

    def backward(self, site):
        """Returns ds of the sources that no earlier site reads, in the storage type, and dw."""
        z, count = self.shape, self.shape.counts[site]
        do, _ = torch.ops.aten._fused_rms_norm_backward(self.dy, self.mixes[site], [z.width], self.rstd[site],
                                                        self.norm, [True, True])
        _backward[(z.tokens,)](self.sources, self.keys[site], self.weights[site], self.rho, do, self.ds, self.dw, count,
                               z.tokens, z.width, z.width // z.heads, site + 1 < self.steps, **self.sizes)
        before = z.counts[site - 1] if site > 0 else 0
        return self.ds[before:count].to(self.sources.dtype), self.dw.sum(0)
