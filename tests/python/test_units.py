"""Losses in three units (field case 72)."""

import math

import pytest

from mhar.units import perplexities


def test_six_nats_over_three_tokens_two_words_ten_bytes():
    found = perplexities(6.0, tokens=3, words=2, text_bytes=10)
    assert found.per_token == pytest.approx(7.389, abs=5e-4)
    assert found.per_word == pytest.approx(20.086, abs=5e-4)
    assert found.bits_per_byte == pytest.approx(0.8656, abs=5e-5)
    assert [unit for unit, _ in found.rows()] == ["perplexity per token", "perplexity per word", "bits/byte"]


def test_units_without_their_count_are_left_out():
    found = perplexities(6.0, tokens=3)
    assert found.per_word is None and found.bits_per_byte is None
    assert [unit for unit, _ in found.rows()] == ["perplexity per token"]


def test_refuses_no_text():
    with pytest.raises(ValueError, match="tokens: wanted at least 1, got 0"):
        perplexities(0.0, tokens=0)


def test_diverged_loss_is_infinite():
    assert perplexities(1e6, tokens=1).per_token == math.inf
