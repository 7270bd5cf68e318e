#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace mhar {

/// "a, b, c and 5 more": at most `most` of the names, for messages.
inline std::string listed(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

}  // namespace mhar
