#include "checkpoint/helpers.h"

namespace mhar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string fault_of_folder(const fs::path& folder) {
  return message_of([&] { ModelFiles files(folder); });
}

constexpr const char* index_file = "model.safetensors.index.json";

/// Two shards, a in the first and b in the second, and the index given.
struct Sharded : Folder {
  explicit Sharded(const std::string& weight_map) {
    put_tensors(*this / "one.safetensors", {"a"});
    put_tensors(*this / "two.safetensors", {"b"});
    put(*this / index_file, R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }
};

TEST(ModelFiles, OneFileWithoutIndexLoads) {
  const Folder folder;
  put_tensors(folder / "model.safetensors", {"b", "a"});
  const ModelFiles files(folder.path());
  EXPECT_THAT(files.names(), ElementsAre("a", "b"));
  EXPECT_EQ(files.entry("a").shape, std::vector<int64_t>{1});
  EXPECT_EQ(files.bytes("b").size(), 4u);
  EXPECT_FALSE(files.has("c"));
}

TEST(ModelFiles, OneOfOneWithoutIndexLoads) {
  const Folder folder;
  put_tensors(folder / "model-00001-of-00001.safetensors", {"a"});
  EXPECT_THAT(ModelFiles(folder.path()).names(), ElementsAre("a"));
}

TEST(ModelFiles, OneFileWinsOverAnIndexBesideIt) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors"})");
  put_tensors(folder / "model.safetensors", {"whole"});
  EXPECT_THAT(ModelFiles(folder.path()).names(), ElementsAre("whole"));
}

TEST(ModelFiles, ShardsLoadThroughTheIndex) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const ModelFiles files(folder.path());
  EXPECT_THAT(files.names(), ElementsAre("a", "b"));
  float value = 0.0f;
  std::memcpy(&value, files.bytes("b").data(), sizeof value);
  EXPECT_EQ(value, 1.0f);
}

TEST(ModelFilesFaults, IndexNamesATensorThatNoShardHolds) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors","lm_head.weight":"two.safetensors"})");
  EXPECT_THAT(fault_of_folder(folder.path()),
              HasSubstr("wanted tensor 'lm_head.weight' in 'two.safetensors', got a shard without it"));
}

TEST(ModelFilesFaults, ShardIsMissing) {
  const Sharded folder(R"({"a":"one.safetensors","b":"three.safetensors"})");
  EXPECT_THAT(fault_of_folder(folder.path()), HasSubstr("wanted shard 'three.safetensors', got no such file"));
}

TEST(ModelFilesFaults, TensorInTwoShards) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors"})");
  put_tensors(folder / "two.safetensors", {"a", "b"});
  EXPECT_THAT(fault_of_folder(folder.path()), AllOf(HasSubstr("wanted tensor 'a' in one shard"),
                                                    HasSubstr("it is in 'one.safetensors' and in 'two.safetensors'")));
}

TEST(ModelFilesFaults, TensorInAnotherShardThanListed) {
  const Sharded folder(R"({"a":"two.safetensors","b":"one.safetensors"})");
  EXPECT_THAT(fault_of_folder(folder.path()),
              HasSubstr("wanted tensor 'a' listed in 'one.safetensors', got in 'two.safetensors'"));
}

TEST(ModelFilesFaults, StoredTensorThatTheIndexLeavesOut) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors"})");
  put_tensors(folder / "two.safetensors", {"b", "stray"});
  EXPECT_THAT(fault_of_folder(folder.path()),
              HasSubstr("wanted tensor 'stray' listed in 'two.safetensors', got not at all"));
}

TEST(ModelFilesFaults, DamagedShardIsNamed) {
  const Sharded folder(R"({"a":"one.safetensors","b":"two.safetensors"})");
  fs::resize_file(folder / "two.safetensors", fs::file_size(folder / "two.safetensors") - 1);
  EXPECT_THAT(fault_of_folder(folder.path()), AllOf(HasSubstr("two.safetensors"), HasSubstr("ends after 3")));
}

TEST(ModelFilesFaults, BadIndex) {
  EXPECT_THAT(fault_of_folder(Sharded("[]").path()), HasSubstr("wanted an object with a weight_map"));
  EXPECT_THAT(fault_of_folder(Sharded("{}").path()), HasSubstr("got an empty weight_map"));
  EXPECT_THAT(fault_of_folder(Sharded("{").path()), HasSubstr("broken JSON"));
  EXPECT_THAT(fault_of_folder(Sharded(R"({"a":1})").path()), HasSubstr("wanted a file name for tensor 'a'"));
  EXPECT_THAT(fault_of_folder(Sharded(R"({"a":"one.safetensors","a":"two.safetensors"})").path()),
              HasSubstr("got 'a' twice"));
  for (const char* path : {"../one.safetensors", "/etc/passwd", "..", "", "sub\\\\one", "one\\u0000"}) {
    EXPECT_THAT(fault_of_folder(Sharded(std::string(R"({"a":")") + path + "\"}").path()),
                HasSubstr("wanted plain file names of shards beside the index"))
        << path;
  }
}

TEST(ModelFilesFaults, NoModel) {
  const Folder folder;
  EXPECT_THAT(fault_of_folder(folder.path()),
              HasSubstr("wanted model.safetensors or model.safetensors.index.json, got neither"));
  EXPECT_THAT(fault_of_folder(folder / "absent"), HasSubstr("wanted a model folder, got nothing there"));
  put(folder / "file", "");
  EXPECT_THAT(fault_of_folder(folder / "file"), HasSubstr("wanted a model folder, got a file"));
}

}  // namespace
}  // namespace mhar::checkpoint
