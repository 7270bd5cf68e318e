#include "model/generate.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace mhar {
namespace {

using at::Tensor;

int64_t sample(const Tensor& logits, const SamplingOptions& options, at::Generator& generator) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (options.end_of_text >= 0 && !options.stop_at_end) logits[options.end_of_text].fill_(kNever);
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  if (options.top_k > 0 && options.top_k < logits.numel()) {
    const Tensor least = std::get<0>(logits.topk(options.top_k))[options.top_k - 1];
    logits.masked_fill_(logits < least, kNever);
  }
  // In fp64 and below 0: a temperature as small as a double can be would overflow fp32, and infinity is no logit.
  const Tensor below = logits.to(at::kDouble) - logits.max().to(at::kDouble);
  const Tensor share = (below / options.temperature).softmax(0).to(logits.scalar_type());
  return at::multinomial(share, 1, false, generator).item<int64_t>();
}

// The logits after the last of `tokens`, fp32 on the CPU so that a seed gives the same text on every device type's
// path.
Tensor last_logits(const Decoder& model, const std::vector<int64_t>& tokens, KvCache& cache) {
  const Tensor ids = at::tensor(tokens, at::kLong).view({1, -1}).to(model.parameters().device());
  const Tensor hidden = model.hidden(ids, &cache);
  return model.logits(hidden.slice(0, hidden.size(0) - 1)).view({-1}).to(at::kCPU, at::kFloat);
}

void check(const Decoder& model, const std::vector<int64_t>& prompt) {
  if (prompt.empty()) {
    throw InputError(
        {"generate", "option --prompt", "at least one token", "an empty prompt", "give some text to go on from"});
  }
  for (const int64_t id : prompt) {
    if (id >= 0 && id < model.config().vocabulary) continue;
    throw InputError({"generate", "prompt", fmt::format("token ids from 0 to {}", model.config().vocabulary - 1),
                      std::to_string(id), "use the tokenizer the model was trained with"});
  }
}

}  // namespace

std::vector<int64_t> generate(const Decoder& model, std::vector<int64_t> prompt, const SamplingOptions& options,
                              const std::function<void(int64_t)>& sink) {
  check(model, prompt);
  const torch::NoGradGuard no_gradient;
  const int64_t trained = model.config().sequence > 0 ? model.config().sequence : 1024;
  const auto context = static_cast<size_t>(std::max<int64_t>(2, options.context > 0 ? options.context : trained));
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::vector<int64_t> seen = std::move(prompt), result;
  if (seen.size() > context) seen.erase(seen.begin(), seen.end() - static_cast<int64_t>(context));
  KvCache cache;
  std::vector<int64_t> fresh = seen;
  while (static_cast<int64_t>(result.size()) < options.tokens) {
    const int64_t next = sample(last_logits(model, fresh, cache), options, generator);
    if (options.stop_at_end && next == options.end_of_text) break;
    result.push_back(next);
    if (sink) sink(next);
    seen.push_back(next);
    fresh = {next};
    if (seen.size() > context) {
      seen.erase(seen.begin(), seen.end() - static_cast<int64_t>(context / 2));
      fresh = seen;
      cache = {};
    }
  }
  return result;
}

}  // namespace mhar
