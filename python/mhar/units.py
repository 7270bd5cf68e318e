"""What a summed loss means per token, per word and per byte of text. Every table takes its units from here."""

import math
from dataclasses import dataclass

LOSS = "nats/token"
BITS = "bits/byte"
PER_TOKEN = "perplexity per token"
PER_WORD = "perplexity per word"


@dataclass(frozen=True)
class Perplexities:
    """One text's loss in three units. A figure without its count of words or bytes is None."""

    per_token: float
    per_word: float | None
    bits_per_byte: float | None

    def rows(self) -> list[tuple[str, float]]:
        """(unit, value) of the figures there are, for a table."""
        named = [(PER_TOKEN, self.per_token), (PER_WORD, self.per_word), (BITS, self.bits_per_byte)]
        return [(unit, value) for unit, value in named if value is not None]


def exponential(nats: float) -> float:
    """exp that ends at infinity, not in an exception: a diverged run has a report too."""
    return math.exp(nats) if nats < 700 else math.inf


def perplexities(nats: float, tokens: int, words: int | None = None, text_bytes: int | None = None) -> Perplexities:
    """`nats` is the loss summed over all `tokens`; `words` and `text_bytes` count the same text. Counts below 1 raise
    ValueError: no text has no perplexity."""
    for name, count in (("tokens", tokens), ("words", words), ("text_bytes", text_bytes)):
        if count is not None and count < 1:
            raise ValueError(f"perplexities: {name}: wanted at least 1, got {count}")
    return Perplexities(
        per_token=exponential(nats / tokens),
        per_word=None if words is None else exponential(nats / words),
        bits_per_byte=None if text_bytes is None else nats / math.log(2) / text_bytes,
    )
