#include "checkpoint/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "checkpoint/strict_json.h"

namespace mhar::checkpoint {
namespace {

constexpr const char* list_name = "files.json";
constexpr int list_version = 1;
constexpr std::string_view prefix = "step-";

std::string folder_name(int64_t step) { return fmt::format("{}{:08}", prefix, step); }

/// The step a folder name stands for; nothing for a name that save() would not give.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0 || folder_name(step) != name)
    return std::nullopt;
  return step;
}

void write_list(const fs::path& folder) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (item.is_regular_file()) files[fs::relative(item.path(), folder).generic_string()] = item.file_size();
  }
  FileWriter file(folder / list_name);
  file.write(nlohmann::json{{"version", list_version}, {"files", files}}.dump(1) + "\n");
  file.close();
}

/// Why a checkpoint of a store is not complete; empty when it is.
std::string flaw(const fs::path& checkpoint) {
  std::error_code ignored;
  if (!fs::exists(checkpoint / list_name, ignored)) return fmt::format("{}: no {}", checkpoint.string(), list_name);
  try {
    check_complete(checkpoint);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

fs::path Store::save(int64_t step, const std::function<void(const fs::path& temporary)>& fill) {
  clean();
  fs::path target = path(step);
  write_folder_atomically(target, [&](const fs::path& temporary) {
    fill(temporary);
    write_list(temporary);
  });
  return target;
}

int Store::clean() { return remove_leftovers(folder_); }

std::vector<int64_t> Store::steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  if (!fs::exists(folder_, error)) return steps;
  fs::directory_iterator item(folder_, error);
  for (; !error && item != fs::directory_iterator(); item.increment(error)) {
    std::error_code unknown;
    const auto step = step_of(item->path().filename().string());
    if (step && item->is_directory(unknown)) steps.push_back(*step);
  }
  if (error) {
    throw InputError({"list checkpoints", folder_.string(), "a folder that can be read", error.message(),
                      "make the folder readable"});
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path Store::path(int64_t step) const { return folder_ / folder_name(step); }

std::optional<fs::path> Store::newest(std::vector<std::string>& skipped) const {
  const auto all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    const std::string reason = flaw(path(*step));
    if (reason.empty()) return path(*step);
    skipped.push_back(reason);
  }
  return std::nullopt;
}

void Store::prune(int64_t last, int64_t every) {
  const auto all = steps();
  int64_t kept = 0;
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    // A damaged checkpoint must not take the place of one that could be resumed from, and may still be wanted.
    if (!flaw(path(*step)).empty()) continue;
    if (kept < last) {
      ++kept;
    } else if (every <= 0 || *step % every != 0) {
      remove_folder_atomically(path(*step));
    }
  }
}

void check_complete(const fs::path& checkpoint) {
  const char* operation = "check checkpoint";
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) {
    throw InputError({operation, checkpoint.string(), "a checkpoint folder",
                      fs::exists(checkpoint, error) ? "a file" : "nothing there", "give the folder of a checkpoint"});
  }
  const fs::path list = checkpoint / list_name;
  if (!fs::exists(list, error)) return;
  const std::string remedy = "copy the checkpoint again or use an earlier one";
  const auto json = parse_strict_json(read_text(list, operation), 2, operation, list.string());
  if (!json.is_object() || json.value("version", nlohmann::json()) != list_version || !json.contains("files") ||
      !json.at("files").is_object()) {
    throw InputError(
        {operation, list.string(), fmt::format("a list of files, version {}", list_version), "something else", remedy});
  }
  for (const auto& [name, size] : json.at("files").items()) {
    const fs::path file = checkpoint / name;
    const uintmax_t there = fs::file_size(file, error);
    if (error) throw InputError({operation, file.string(), "the file", error.message(), remedy});
    if (!size.is_number_unsigned() || size.get<uint64_t>() != there) {
      throw InputError({operation, file.string(), size.dump() + " bytes", fmt::format("{}", there), remedy});
    }
  }
}

}  // namespace mhar::checkpoint
