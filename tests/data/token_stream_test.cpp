#include "data/token_stream.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/temporary_folder.h"
#include "data/shard_writer.h"

namespace mhar::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Tokens 0 .. count-1 in shards of ten, as DIR/x.
Manifest write_counting(const fs::path& folder, uint32_t count) {
  ShardWriter writer(folder, "x", 2, 10);
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0u);
  writer.append(ids);
  Manifest manifest;
  manifest.train = {writer.finish(), count, 1, count};
  write_manifest(folder / "x", manifest);
  return manifest;
}

TEST(TokenStream, IsOneArrayOverItsShards) {
  const TemporaryFolder folder;
  const Manifest manifest = write_counting(folder.path(), 35);
  ASSERT_EQ(manifest.train.shards.size(), 4u);
  const TokenStream stream(folder / "x", manifest, "train", 257);
  EXPECT_EQ(stream.size(), 35);
  for (int64_t begin = 0; begin <= 35; ++begin) {
    for (int64_t count = 0; begin + count <= 35; ++count) {
      std::vector<int64_t> got(static_cast<size_t>(count));
      std::vector<int64_t> wanted(got.size());
      std::iota(wanted.begin(), wanted.end(), begin);
      stream.copy(begin, got);
      ASSERT_EQ(got, wanted) << begin << " " << count;
    }
  }
  std::vector<int64_t> two(2);
  EXPECT_THROW(stream.copy(34, two), std::out_of_range);
}

TEST(TokenStream, AnAbsentSplitIsEmpty) {
  const TemporaryFolder folder;
  const Manifest manifest = write_counting(folder.path(), 5);
  EXPECT_EQ(TokenStream(folder / "x", manifest, "validation", 257).size(), 0);
}

// Field case 44: refused at load, not in a kernel.
TEST(TokenStream, RefusesIdsOutsideTheVocabulary) {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path(), "x", 4, 100);
  writer.append(std::array<uint32_t, 2>{5, 151936});
  Manifest manifest;
  manifest.tokenizer.vocabulary = 151937;
  manifest.train = {writer.finish(), 2, 1, 2};
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 151936); }),
              AllOf(HasSubstr("x-00000.npy"), HasSubstr("below the model's vocabulary of 151936, got id 151936"),
                    HasSubstr("--vocabulary to 151937")));
  EXPECT_EQ(TokenStream(folder / "x", manifest, "train", 151937).size(), 2);
}

// Field case 46: both files are named.
TEST(TokenStream, NamesBothFilesWhenShardsWereSwapped) {
  const TemporaryFolder folder;
  const Manifest manifest = write_counting(folder.path(), 20);
  fs::rename(folder / "x-00000.npy", folder / "aside");
  fs::rename(folder / "x-00001.npy", folder / "x-00000.npy");
  fs::rename(folder / "aside", folder / "x-00001.npy");
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 257); }),
              AllOf(HasSubstr("wanted the tokens of x-00000.npy"), HasSubstr("got those of x-00001.npy")));
}

TEST(TokenStream, NamesBothFilesWhenAShardWasRenamed) {
  const TemporaryFolder folder;
  const Manifest manifest = write_counting(folder.path(), 20);
  fs::rename(folder / "x-00001.npy", folder / "x-00007.npy");
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 257); }),
              AllOf(HasSubstr("x-00001.npy: wanted the shard that the manifest names"),
                    HasSubstr("got no such file, but x-00007.npy")));
}

TEST(TokenStream, RefusesChangedAndTruncatedShards) {
  const TemporaryFolder folder;
  const Manifest manifest = write_counting(folder.path(), 10);
  std::string content = get(folder / "x-00000.npy");
  content.back() = 1;
  put(folder / "x-00000.npy", content);
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 1000); }),
              AllOf(HasSubstr("x-00000.npy"), HasSubstr("changed or damaged")));
  put(folder / "x-00000.npy", content.substr(0, content.size() - 3));
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 1000); }), HasSubstr("truncated"));
  put(folder / "x-00000.npy", npy_header(1, 2) + "ab");
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 1000); }),
              HasSubstr("wanted 10 tokens as in the manifest, got 1"));
  fs::remove(folder / "x-00000.npy");
  EXPECT_THAT(input_error([&] { TokenStream(folder / "x", manifest, "train", 1000); }), HasSubstr("got no such file;"));
}

TEST(Windows, ShareOneTokenAndDropTheRest) {
  EXPECT_EQ(window_count(0, 8), 0);
  EXPECT_EQ(window_count(1, 8), 0);
  EXPECT_EQ(window_count(8, 8), 0);
  EXPECT_EQ(window_count(9, 8), 1);
  EXPECT_EQ(window_count(16, 8), 1);
  EXPECT_EQ(window_count(17, 8), 2);
  EXPECT_EQ(window_count((int64_t{1} << 40) + 1, 2048), int64_t{1} << 29);
}

}  // namespace
}  // namespace mhar::data
