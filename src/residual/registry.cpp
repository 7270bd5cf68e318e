#include <fmt/format.h>

#include "base/error.h"
#include "residual/designs.h"

namespace mhar::residual {
namespace {

template <typename Field>
const Entry& search(const std::string& word, const std::string& argument, Field Entry::*field) {
  std::string all;
  std::vector<std::string> words;
  for (const auto& entry : registry()) {
    if (entry.*field == word) return entry;
    if ((entry.*field).empty()) continue;
    words.push_back(entry.*field);
    all += (all.empty() ? "" : ", ") + entry.*field;
  }
  const std::string guess = closest(word, words);
  throw InputError({"choose the residual design", argument, "one of " + all, fmt::format("'{}'", word),
                    guess.empty() ? "choose one of these" : fmt::format("did you mean '{}'?", guess)});
}

}  // namespace

const std::vector<Entry>& registry() {
  static const std::vector<Entry> entries = {
      {"standard", "one residual stream: every sublayer adds to it", "", make_standard},
      {"single", "attention over all earlier sublayer outputs, one head", "full", make_single},
      {"mhar", "attention over all earlier sublayer outputs, one softmax per slice of the width", "full_mh",
       make_multi_head},
  };
  return entries;
}

const Entry& find(const std::string& name) { return search(name, "option --design", &Entry::name); }

const Entry& find_mode(const std::string& mode) {
  return search(mode, "attnres_mode in config.json", &Entry::attnres_mode);
}

std::string site_name(int64_t site, int64_t sites) {
  if (site == sites - 1) return "final";
  return fmt::format("layer {} {}", site / 2, site % 2 == 0 ? "attention" : "mlp");
}

}  // namespace mhar::residual
