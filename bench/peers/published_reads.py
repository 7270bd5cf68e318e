"""Depth reads by the published scheme, one kernel of per_site.py a site and direction, for autograd."""

import torch
import triton
from per_site import _backward, _forward

EPS = 1e-6


class History:
    """The sources of one forward pass, and while the backward pass goes down, the sums of their gradients in fp32."""

    def __init__(self, sites, embedding, heads):
        self.tokens, self.width, self.heads = embedding[..., 0].numel(), embedding.shape[-1], heads
        self.sources = embedding.new_empty(sites, self.tokens, self.width)
        self.rho = torch.empty(sites, self.tokens, device=embedding.device)
        self.gradients, self.count = None, 0
        channels = self.width // heads
        blocks = triton.next_power_of_2(heads), triton.next_power_of_2(channels)
        area = blocks[0] * blocks[1]
        self.sizes = dict(H=heads, HB=blocks[0], KB=blocks[1],
                          num_warps=8 if area >= 4096 else 4 if area >= 1024 else 2)

    def read(self, source, key):
        """Appends the source and mixes all there are. Keys are [D]."""
        return _Read.apply(source, key.float(), self)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(context, source, key, history):
        h, count = history, history.count + 1
        h.sources[count - 1].copy_(source.view(h.tokens, h.width))
        h.count = count
        mix = torch.empty_like(source)
        weights = torch.empty(count, h.tokens, h.heads, device=source.device)
        _forward[(h.tokens,)](h.sources, key, mix, weights, h.rho, count, h.tokens, h.width, h.width // h.heads, EPS,
                              **h.sizes)
        context.save_for_backward(key, weights)
        context.history, context.count = h, count
        return mix

    @staticmethod
    def backward(context, gradient):
        key, weights = context.saved_tensors
        h, count = context.history, context.count
        sums = h.gradients is not None  # a later site has been here
        if not sums:
            h.gradients = torch.empty(count, h.tokens, h.width, device=gradient.device)
        per_token = torch.empty(h.tokens, h.width, device=gradient.device)
        _backward[(h.tokens,)](h.sources, key, weights, h.rho, gradient.contiguous(), h.gradients, per_token, count,
                               h.tokens, h.width, h.width // h.heads, sums, **h.sizes)
        # No earlier site reads the newest source, so its sum is whole.
        return h.gradients[count - 1].view_as(gradient).to(gradient.dtype), per_token.sum(0), None
