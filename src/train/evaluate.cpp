#include "train/evaluate.h"

#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "ops/token_loss.h"
#include "train/batches.h"

namespace mhar {
namespace {

// Calls visit(batch) for groups of at most `batch` windows; returns how many windows there were.
template <typename Visit>
int64_t for_windows(const Decoder& model, const data::TokenStream& stream, int64_t windows, int64_t sequence,
                    int64_t batch, const Visit& visit) {
  const int64_t there = data::window_count(stream.size(), sequence);
  if (there == 0) {
    throw InputError({"evaluate", "validation split",
                      "at least one window of " + std::to_string(sequence + 1) + " tokens",
                      std::to_string(stream.size()) + " tokens", "shorten --sequence or prepare more text"});
  }
  const int64_t count = windows == 0 ? there : std::min(windows, there);
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  torch::NoGradGuard no_gradient;
  for (int64_t begin = 0; begin < count; begin += batch) {
    const std::span part = std::span(numbers).subspan(begin, std::min(batch, count - begin));
    visit(read_windows(stream, part, sequence, model.parameters().device()));
  }
  return count;
}

}  // namespace

Evaluation evaluate(const Decoder& model, const data::TokenStream& stream, int64_t windows, int64_t sequence,
                    int64_t batch) {
  Evaluation result;
  double sum = 0;
  result.windows = for_windows(model, stream, windows, sequence, batch, [&](const Batch& part) {
    const auto loss =
        ops::token_loss(model.hidden(part.ids), model.head().value, part.targets, {.differentiable = false});
    sum += loss.sum.item<double>();
    result.tokens += part.counted;
  });
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

std::string routing_map(const Decoder& model, const data::TokenStream& stream, int64_t windows, int64_t sequence,
                        int64_t batch, int64_t step) {
  const int64_t sites = model.config().sites();
  if (model.design().heads() == 0) return {};
  std::vector<at::Tensor> sums(sites);
  int64_t tokens = 0;
  const residual::RoutingObserver observer = [&](int64_t site, const at::Tensor& weights) {
    const at::Tensor sum = weights.sum(1, false, at::kDouble).cpu();  // [sources, heads]
    sums[site] = sums[site].defined() ? sums[site] + sum : sum;
  };
  const int64_t used = for_windows(model, stream, windows, sequence, batch, [&](const Batch& part) {
    model.hidden(part.ids, nullptr, observer);
    tokens += part.counted;
  });
  nlohmann::json list = nlohmann::json::array();
  for (int64_t site = 0; site < sites; ++site) {
    const at::Tensor mean = sums[site].div(static_cast<double>(tokens)).t().contiguous();
    nlohmann::json heads = nlohmann::json::array();
    for (int64_t head = 0; head < mean.size(0); ++head) {
      const auto* row = mean[head].data_ptr<double>();
      heads.push_back(std::vector<double>(row, row + mean.size(1)));
    }
    list.push_back({{"site", site}, {"name", residual::site_name(site, sites)}, {"weights", heads}});
  }
  return nlohmann::json{{"design", model.config().design},
                        {"step", step},
                        {"heads", model.design().heads()},
                        {"windows", used},
                        {"tokens", tokens},
                        {"sites", list}}
      .dump();
}

}  // namespace mhar
