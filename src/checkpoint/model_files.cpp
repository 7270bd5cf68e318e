#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace mhar::checkpoint {
namespace {

constexpr const char* operation = "read model";
constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr int index_depth = 3;  // index, metadata or weight_map, what a metadata value may hold

/// tensor -> shard, as the index says.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto json = parse_strict_json(read_text(path, operation), index_depth, operation, path.string());
  const std::string remedy = "export the model again, or put the index of these shards beside them";
  if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object()) {
    throw InputError({operation, path.string(), "an object with a weight_map", json.type_name(), remedy});
  }
  std::map<std::string, std::string> where;
  for (const auto& [tensor, value] : json.at("weight_map").items()) {
    if (!value.is_string()) {
      throw InputError(
          {operation, path.string(), "a file name for tensor " + excerpt(tensor), value.type_name(), remedy});
    }
    const auto shard = value.get<std::string>();
    // A name with folders in it could reach any file of the machine.
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw InputError(
          {operation, path.string(), "plain file names of shards beside the index", excerpt(shard), remedy});
    }
    where.emplace(tensor, shard);
  }
  if (where.empty()) throw InputError({operation, path.string(), "at least one tensor", "an empty weight_map", remedy});
  return where;
}

}  // namespace

ModelFiles::ModelFiles(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw InputError({operation, folder.string(), "a model folder",
                      fs::exists(folder, ignored) ? "a file" : "nothing there",
                      "give the folder that holds model.safetensors"});
  }
  // One file wins over an index beside it, as in Hugging Face's own loader.
  for (const char* name : {single_name, "model-00001-of-00001.safetensors"}) {
    if (!fs::exists(folder / name, ignored) || (name != single_name && fs::exists(folder / index_name, ignored)))
      continue;
    files_.emplace_back(folder / name);
    for (const auto& [tensor, entry] : files_[0].entries()) where_.emplace(tensor, 0);
    return;
  }
  const fs::path index = folder / index_name;
  if (!fs::exists(index, ignored)) {
    throw InputError({operation, folder.string(), fmt::format("{} or {}", single_name, index_name), "neither",
                      "give the folder of a complete model"});
  }
  const auto listed = read_index(index);
  std::map<std::string, size_t> number;
  for (const auto& [tensor, shard] : listed) {
    if (number.contains(shard)) continue;
    if (!fs::exists(folder / shard, ignored)) {
      throw InputError({operation, index.string(), "shard " + excerpt(shard), "no such file beside it",
                        "copy every shard that the index names"});
    }
    number.emplace(shard, files_.size());
    files_.emplace_back(folder / shard);
  }
  const std::string remedy = "export the model again, so that the index lists exactly the stored tensors";
  for (const auto& [shard, n] : number) {
    for (const auto& [tensor, entry] : files_[n].entries()) {
      const auto [there, fresh] = where_.emplace(tensor, n);
      if (!fresh) {
        const std::string other = files_[there->second].path().filename().string();
        throw InputError({operation, index.string(), "tensor " + excerpt(tensor) + " in one shard",
                          fmt::format("it is in {} and in {}", excerpt(other), excerpt(shard)), remedy});
      }
      const auto line = listed.find(tensor);
      if (line == listed.end() || line->second != shard) {
        const std::string got = line == listed.end() ? "not at all" : "in " + excerpt(line->second);
        throw InputError({operation, index.string(),
                          fmt::format("tensor {} listed in {}", excerpt(tensor), excerpt(shard)), got, remedy});
      }
    }
  }
  for (const auto& [tensor, shard] : listed) {
    if (!where_.contains(tensor)) {
      throw InputError({operation, index.string(), fmt::format("tensor {} in {}", excerpt(tensor), excerpt(shard)),
                        "a shard without it", remedy});
    }
  }
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : where_) names.push_back(name);
  return names;
}

const Entry& ModelFiles::entry(const std::string& name) const { return files_[where_.at(name)].entries().at(name); }

std::span<const std::byte> ModelFiles::bytes(const std::string& name) const {
  return files_[where_.at(name)].bytes(entry(name));
}

}  // namespace mhar::checkpoint
