"""The decoder of docs/method.md as PyTorch users write it: what torch.compile gets to work with.

Letters: B windows of T tokens, D width, n query heads and G key/value heads of k channels, F inner width, L layers,
V vocabulary, H routing heads of depth reads. Sublayers are functions of tensors, so that one compilation serves all
layers where sublayers are compiled on their own.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import nn

EPS = 1e-6


@dataclass
class Shape:
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    routing_heads: int
    sequence: int
    tied: bool = True
    qk_norm: bool = True

    @property
    def sites(self):
        return 2 * self.layers + 1


def norm(x, weight):
    return functional.rms_norm(x, weight.shape, weight, EPS)


def turn(x, cosine, sine):
    """Rotary positions, by halves: x [B, T, heads, k]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def attention(x, weights, table, heads, kv_heads):
    before, qkv, query_norm, key_norm, out = weights
    q, k, v = functional.linear(norm(x, before), qkv).unflatten(-1, (heads + 2 * kv_heads, -1)).split(
        (heads, kv_heads, kv_heads), 2)
    if query_norm is not None:
        q, k = norm(q, query_norm), norm(k, key_norm)
    q, k, v = (t.transpose(1, 2) for t in (turn(q, *table), turn(k, *table), v))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
    return functional.linear(mixed.transpose(1, 2).flatten(2), out)


def mlp(x, weights):
    before, gate_up, down = weights
    gate, up = functional.linear(norm(x, before), gate_up).chunk(2, -1)
    return functional.linear(functional.silu(gate) * up, down)


def loss(x, weights, targets):
    final, head = weights
    return functional.cross_entropy(functional.linear(norm(x, final), head).flatten(0, 1).float(), targets.flatten())


def depth_read(sources, key, heads):
    """Softmax over all sources so far, a head at a time: sources are [B, T, D], the key [D]."""
    stacked = torch.stack(sources)
    normed = functional.rms_norm(stacked, stacked.shape[-1:], None, EPS).unflatten(-1, (heads, -1))
    weights = torch.einsum("ibthk,hk->ibth", normed, key.view(heads, -1)).softmax(0)
    return torch.einsum("ibth,ibthk->bthk", weights, stacked.unflatten(-1, (heads, -1))).flatten(2)


class Decoder(nn.Module):
    """`residual`: stream, composed (depth reads of tensor operations) or per_site (published_reads.py)."""

    def __init__(self, shape, residual):
        super().__init__()
        self.shape, self.residual = shape, residual
        z = shape
        self.norms = self.vectors(z.sites, z.width)
        head_vectors = z.layers if z.qk_norm else 0
        self.query_norms = self.vectors(head_vectors, z.head_dim)
        self.key_norms = self.vectors(head_vectors, z.head_dim)
        self.qkv = self.matrices(z.layers, (z.heads + 2 * z.kv_heads) * z.head_dim, z.width)
        self.out = self.matrices(z.layers, z.width, z.heads * z.head_dim)
        self.gate_up = self.matrices(z.layers, 2 * z.ffn, z.width)
        self.down = self.matrices(z.layers, z.width, z.ffn)
        self.embedding, = self.matrices(1, z.vocabulary, z.width)
        self.head = self.embedding if z.tied else self.matrices(1, z.vocabulary, z.width)[0]
        if residual != "stream":
            self.queries = self.vectors(z.sites, z.width, torch.zeros)
            self.gains = self.vectors(z.sites, z.width)
        rates = 1e4 ** (-torch.arange(0, z.head_dim, 2).float() / z.head_dim)
        angles = torch.outer(torch.arange(z.sequence).float(), rates)[:, None]  # [T, 1, k / 2]
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.attention, self.mlp, self.loss = attention, mlp, loss

    @staticmethod
    def vectors(count, size, start=torch.ones):
        return nn.ParameterList(nn.Parameter(start(size)) for _ in range(count))

    @staticmethod
    def matrices(count, rows, columns):
        return nn.ParameterList(nn.Parameter(0.02 * torch.randn(rows, columns)) for _ in range(count))

    def compile_sublayers(self):
        """Where reads are kernels that a compiler cannot see into."""
        self.attention, self.mlp, self.loss = (torch.compile(f, dynamic=False) for f in (attention, mlp, loss))

    def sublayer(self, site, x):
        layer, second = divmod(site, 2)
        if second:
            return self.mlp(x, (self.norms[site], self.gate_up[layer], self.down[layer]))
        per_head = (self.query_norms[layer], self.key_norms[layer]) if self.shape.qk_norm else (None, None)
        weights = (self.norms[site], self.qkv[layer], *per_head, self.out[layer])
        return self.attention(x, weights, (self.cosine, self.sine), self.shape.heads, self.shape.kv_heads)

    def key(self, site):
        return self.queries[site] * self.gains[site]

    def forward(self, ids, targets):
        x = functional.embedding(ids, self.embedding)
        last = self.shape.sites - 1
        if self.residual == "stream":
            for site in range(last):
                x = x + self.sublayer(site, x)
        elif self.residual == "composed":
            sources = [x]
            for site in range(last):
                sources.append(self.sublayer(site, depth_read(sources, self.key(site), self.shape.routing_heads)))
            x = depth_read(sources, self.key(last), self.shape.routing_heads)
        else:
            from published_reads import History

            history = History(self.shape.sites, x, self.shape.routing_heads)
            for site in range(last):
                x = self.sublayer(site, history.read(x, self.key(site)))
            x = history.read(x, self.key(last))
        return self.loss(x, (self.norms[last], self.head), targets)
