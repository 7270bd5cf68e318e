#include "checkpoint/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

namespace mhar::checkpoint {

nlohmann::json parse_strict_json(std::string_view text, int depth, const std::string& operation,
                                 const std::string& origin) {
  using json = nlohmann::json;
  const std::string remedy = "the file is damaged or of another kind: copy or export it again";
  std::vector<std::set<std::string>> open;  // keys seen in each object that is not closed yet
  const json::parser_callback_t check = [&](int at, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (at >= depth) {
          throw InputError({operation, origin, fmt::format("at most {} levels of nesting", depth), "more", remedy});
        }
        if (event == json::parse_event_t::object_start) open.emplace_back();
        break;
      case json::parse_event_t::object_end:
        open.pop_back();
        break;
      case json::parse_event_t::key:
        if (const auto& key = value.get_ref<const std::string&>(); !open.back().insert(key).second) {
          throw InputError({operation, origin, "every name once", excerpt(key) + " twice", remedy});
        }
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    throw InputError({operation, origin, "JSON", fmt::format("broken JSON at byte {}", error.byte), remedy});
  } catch (const json::exception& error) {
    throw InputError({operation, origin, "JSON", error.what(), remedy});
  }
}

std::string excerpt(std::string_view text) {
  constexpr size_t limit = 80;
  const bool cut = text.size() > limit;
  if (cut) {
    size_t end = limit;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  std::string out = "'";
  for (char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return out + (cut ? "...'" : "'");
}

}  // namespace mhar::checkpoint
