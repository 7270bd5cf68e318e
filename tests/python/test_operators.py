"""The registered PyTorch operators: against plain tensor code, gradcheck, opcheck and torch.compile, on the CPU."""

from pathlib import Path

import pytest
import torch

LIBRARY = Path(__file__).parents[2] / "build" / "libmhar_operators.so"


@pytest.fixture(scope="module", autouse=True)
def library():
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built (make build)")
    torch.ops.load_library(str(LIBRARY))
    torch.set_num_threads(1)


def inputs(count=5, tokens=6, width=12, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def leaf(*shape, mean=0.0):
        value = torch.randn(*shape, generator=generator, dtype=torch.float64) * (0.3 if mean else 1.0) + mean
        return value.to(dtype).requires_grad_()

    return {
        "sources": [leaf(tokens, width) for _ in range(count)],
        "query": leaf(width),
        "gain": leaf(width, mean=1.0),
        "output_gain": leaf(width, mean=1.0),
        "stacked": leaf(count, tokens, width),
        "queries": leaf(count, width),
        "gains": leaf(count, width, mean=1.0),
        "output_gains": leaf(count, width, mean=1.0),
    }


def norm(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def plain_read(sources, query, gain, heads, eps=1e-6, output_gain=None):
    values = torch.stack(list(sources))
    keys = (norm(values, eps) * (query * gain)).unflatten(-1, (heads, -1)).sum(-1)
    mix = (keys.softmax(0).unsqueeze(-1) * values.unflatten(-1, (heads, -1))).sum(0).flatten(1)
    return mix if output_gain is None else norm(mix, eps) * output_gain


def plain_reads(sources, queries, gains, heads, eps=1e-6, output_gains=None):
    return torch.stack(
        [
            plain_read(
                sources[: r + 1], queries[r], gains[r], heads, eps, None if output_gains is None else output_gains[r]
            )
            for r in range(len(sources))
        ]
    )


def one_site(i, heads=3, normed=True):
    return (i["sources"], i["query"], i["gain"], heads, 1e-6, i["output_gain"] if normed else None)


def whole_history(i, heads=3, normed=True):
    return (i["stacked"], i["queries"], i["gains"], heads, 1e-6, i["output_gains"] if normed else None)


FORMS = {
    "one site": (one_site, plain_read, lambda: torch.ops.mhar.depth_read.default),
    "whole history": (whole_history, plain_reads, lambda: torch.ops.mhar.depth_reads.default),
}


def leaves(arguments):
    flat = []
    for a in arguments:
        flat += a if isinstance(a, list) else [a]
    return [a for a in flat if isinstance(a, torch.Tensor)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_equals_plain_code(form, normed, count):
    make, plain, operator = FORMS[form]
    arguments = make(inputs(count), normed=normed)
    ours, theirs = operator()(*arguments), plain(*arguments)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    seed = torch.randn_like(ours)
    for _ in range(2):  # the graph is kept: backward may run again
        got = torch.autograd.grad(ours, leaves(arguments), seed, retain_graph=True)
        wanted = torch.autograd.grad(theirs, leaves(arguments), seed, retain_graph=True)
        for a, b in zip(got, wanted):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normed", [True, False])
def test_gradcheck(form, normed):
    make, _, operator = FORMS[form]
    arguments = make(inputs(4, tokens=3, width=6), normed=normed)

    def call(*tensors):
        given = list(tensors)
        filled = [
            [given.pop(0) for _ in a] if isinstance(a, list) else given.pop(0) if isinstance(a, torch.Tensor) else a
            for a in arguments
        ]
        return operator()(*filled)

    assert torch.autograd.gradcheck(call, leaves(arguments), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(form, normed, dtype):
    make, _, operator = FORMS[form]
    torch.library.opcheck(operator(), make(inputs(3, dtype=dtype), normed=normed))


@pytest.mark.parametrize("form", FORMS)
def test_compile_traces_through(form):
    make, plain, operator = FORMS[form]

    def model(scale, *arguments):
        return (operator()(*arguments) * scale).square().sum()

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in (6, 9):  # one graph of symbolic sizes serves both
        arguments = make(inputs(tokens=tokens))
        compiled(2.0, *arguments).backward()
        got = [a.grad.clone() for a in leaves(arguments)]
        for a in leaves(arguments):
            a.grad = None
        (plain(*arguments) * 2.0).square().sum().backward()
        for a, b in zip(leaves(arguments), got):
            torch.testing.assert_close(b, a.grad, rtol=1e-9, atol=1e-9)


def test_no_source_is_stacked():
    i = inputs(6, dtype=torch.float32)
    with torch.no_grad():
        before = [s.clone() for s in i["sources"]]
        torch.ops.mhar.depth_read(*one_site(i))
    assert all(torch.equal(a, b) for a, b in zip(before, i["sources"]))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"heads": 5}, "a divisor of the width 12"),
        ({"sources": []}, "at least one"),
        ({"query": torch.zeros(8)}, r"shape \[12\]"),
        ({"gain": torch.zeros(12, dtype=torch.float32)}, "Double on cpu"),
        ({"sources": [torch.zeros(2, 3, 12, dtype=torch.float64)]}, "2 dimensions"),
    ],
)
def test_bad_arguments(change, words):
    i = inputs(2)
    arguments = {"sources": i["sources"], "query": i["query"], "gain": i["gain"], "heads": 3} | change
    with pytest.raises(ValueError, match=words):
        torch.ops.mhar.depth_read(**arguments)
