#include "model/generate.h"

#include <algorithm>

#include "base/error.h"
#include "model/helpers.h"
#include "residual/design.h"

namespace mhar {
namespace {

using at::Tensor;
using namespace mhar::testing;
using Tokens = std::vector<int64_t>;

Tensor ids(const Tokens& tokens) { return at::tensor(tokens, at::kLong).view({1, -1}); }

// Greedy sampling without a cache: the whole text through the model for every token.
Tokens recomputed(const Decoder& model, Tokens seen, int64_t count, size_t context) {
  const torch::NoGradGuard no_gradient;
  Tokens result;
  while (static_cast<int64_t>(result.size()) < count) {
    const Tensor hidden = model.hidden(ids(seen));
    result.push_back(model.logits(hidden.slice(0, hidden.size(0) - 1)).argmax().item<int64_t>());
    seen.push_back(result.back());
    if (seen.size() > context) seen.erase(seen.begin(), seen.end() - static_cast<int64_t>(context / 2));
  }
  return result;
}

TEST(Generate, CachedEqualsRecomputed) {
  for (const auto& entry : residual::registry()) {
    const Decoder model = small_model(small_config(entry.name), at::kDouble, 0.5);
    for (const Tokens& prompt : {Tokens{5}, Tokens{1, 2, 3, 4, 5, 6, 7}}) {
      const Tokens got = generate(model, prompt, {.tokens = 20, .temperature = 0});
      EXPECT_EQ(got, recomputed(model, prompt, 20, 32)) << entry.name;
      EXPECT_GT(*std::max_element(got.begin(), got.end()), *std::min_element(got.begin(), got.end()))
          << "one token over and over";
    }
  }
}

TEST(Generate, CachedHiddenStatesAreThoseOfTheWholeText) {
  for (const auto& entry : residual::registry()) {
    const torch::NoGradGuard no_gradient;
    const Decoder model = small_model(small_config(entry.name));
    const Tensor text = some_ids(2, 9, 37), whole = model.hidden(text).view({2, 9, 16});
    KvCache cache;
    EXPECT_TRUE(
        at::allclose(model.hidden(text.slice(1, 0, 4), &cache).view({2, 4, 16}), whole.slice(1, 0, 4), 0, 1e-12));
    for (int64_t t = 4; t < 9; ++t) {
      EXPECT_TRUE(at::allclose(model.hidden(text.slice(1, t, t + 1), &cache).view({2, 1, 16}), whole.slice(1, t, t + 1),
                               0, 1e-12));
    }
    EXPECT_EQ(cache.length, 9);
    EXPECT_EQ(cache.keys[0].sizes(), at::IntArrayRef({2, 9, 2, 6}));
    const auto message = message_of<std::invalid_argument>([&] { model.hidden(text, &cache); });
    EXPECT_NE(message.find("9 tokens"), std::string::npos) << message;
  }
}

TEST(Generate, GoesOnWhenTheContextIsFull) {
  const Decoder model = small_model(small_config("mhar"), at::kDouble, 0.5);
  const Tokens prompt{4, 8, 15, 16, 23};
  EXPECT_EQ(generate(model, prompt, {.tokens = 40, .temperature = 0, .context = 8}), recomputed(model, prompt, 40, 8));
  EXPECT_EQ(generate(model, prompt, {.tokens = 40, .temperature = 0}), recomputed(model, prompt, 40, 32));
  EXPECT_EQ(generate(model, prompt, {.tokens = 9, .temperature = 0, .context = 1}).size(), 9u);
  // A prompt longer than the context counts with its end.
  const Tokens longer{1, 2, 3, 30, 31, 32, 33, 4, 8, 15, 16, 23, 20};
  const Tokens end(longer.end() - 8, longer.end());
  EXPECT_EQ(generate(model, longer, {.tokens = 12, .temperature = 0, .context = 8}), recomputed(model, end, 12, 8));
}

TEST(Generate, SeedsDecide) {
  const Decoder model = small_model(small_config("mhar"), at::kFloat);
  const auto text = [&](uint64_t seed) { return generate(model, {1, 2}, {.tokens = 30, .seed = seed}); };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
  Tokens streamed;
  EXPECT_EQ(generate(model, {1, 2}, {.tokens = 30, .seed = 1}, [&](int64_t token) { streamed.push_back(token); }),
            streamed);
}

TEST(Generate, AnyTemperatureAboveZero) {
  const Decoder model = small_model(small_config("mhar"), at::kFloat, 0.5);
  const auto text = [&](double t) { return generate(model, {5}, {.tokens = 12, .temperature = t, .end_of_text = 3}); };
  EXPECT_EQ(text(1e-300), text(0)) << "the likeliest token";
  EXPECT_EQ(text(5e-324), text(0));
  EXPECT_EQ(text(1e300).size(), 12u);
}

TEST(Generate, TopKLeavesTheLikeliest) {
  const torch::NoGradGuard no_gradient;
  const Decoder model = small_model(small_config("standard"), at::kDouble);
  const auto text = [&](SamplingOptions options) { return generate(model, {9}, options); };
  EXPECT_EQ(text({.tokens = 20, .temperature = 2, .top_k = 1}), text({.tokens = 20, .temperature = 0}));
  EXPECT_EQ(text({.tokens = 20, .top_k = 37}), text({.tokens = 20})) << "all of them";
  const Tensor likeliest = std::get<1>(model.logits(model.hidden(ids({9}))).view({-1}).topk(3));
  std::vector<int64_t> drawn;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    drawn.push_back(text({.tokens = 1, .temperature = 5, .top_k = 3, .seed = seed})[0]);
    EXPECT_TRUE(likeliest.eq(drawn.back()).any().item<bool>()) << drawn.back();
  }
  std::sort(drawn.begin(), drawn.end());
  EXPECT_EQ(std::unique(drawn.begin(), drawn.end()) - drawn.begin(), 3) << "each of the three is drawn";
}

TEST(Generate, EndOfText) {
  const Decoder model = small_model(small_config("mhar"), at::kDouble, 0.5);
  const Tokens plain = generate(model, {5}, {.tokens = 12, .temperature = 0});
  const auto first = std::find(plain.begin(), plain.end(), plain[4]);
  const Tokens before(plain.begin(), first);
  EXPECT_EQ(generate(model, {5}, {.tokens = 12, .temperature = 0, .end_of_text = plain[4], .stop_at_end = true}),
            before);
  const Tokens without = generate(model, {5}, {.tokens = 12, .temperature = 0, .end_of_text = plain[4]});
  EXPECT_EQ(without.size(), 12u);
  EXPECT_EQ(std::count(without.begin(), without.end(), plain[4]), 0);
}

// Case 76.
TEST(Generate, SmallPrompts) {
  const Decoder model = small_model(small_config("mhar"), at::kBFloat16);
  EXPECT_EQ(generate(model, {0}, {.tokens = 3}).size(), 3u);
  EXPECT_TRUE(generate(model, {0}, {.tokens = 0}).empty());
  const auto empty = message_of<InputError>([&] { generate(model, {}, {}); });
  EXPECT_NE(empty.find("an empty prompt"), std::string::npos) << empty;
  for (const int64_t id : {int64_t{37}, int64_t{-1}}) {
    const auto outside = message_of<InputError>([&] { generate(model, {1, id}, {}); });
    EXPECT_NE(outside.find("from 0 to 36"), std::string::npos) << outside;
    EXPECT_NE(outside.find("got " + std::to_string(id)), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace mhar
