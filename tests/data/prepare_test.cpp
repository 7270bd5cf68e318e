#include "data/prepare.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/hash.h"
#include "base/size_limit.h"
#include "base/temporary_folder.h"
#include "base/unprivileged.h"
#include "data/token_stream.h"

namespace mhar::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

PrepareOptions options_for(const TemporaryFolder& folder, double fraction) {
  PrepareOptions options;
  options.sources = {folder / "text"};
  options.prefix = folder.path() / "out" / "set";
  options.validation_fraction = fraction;
  return options;
}

std::vector<int64_t> tokens(const fs::path& prefix, const std::string& split) {
  const TokenStream stream(prefix, read_manifest(prefix), split, 257);
  std::vector<int64_t> ids(static_cast<size_t>(stream.size()));
  stream.copy(0, ids);
  return ids;
}

/// The documents of a split, end-of-text tokens as separators.
std::vector<std::string> documents(const fs::path& prefix, const std::string& split) {
  std::vector<std::string> found;
  std::string current;
  for (const int64_t id : tokens(prefix, split)) {
    if (id < 256) {
      current += static_cast<char>(id);
    } else {
      found.push_back(std::move(current));
      current.clear();
    }
  }
  EXPECT_EQ(current, "") << "the last document has an end-of-text token too";
  return found;
}

std::string file_name(int number) {
  const std::string digits = std::to_string(number);
  return std::string(3 - digits.size(), '0') + digits;
}

void write_numbered(const TemporaryFolder& folder, int count) {
  for (int i = 0; i < count; ++i) put(folder.path() / "text" / file_name(i), "document " + std::to_string(i));
}

// Field case 69: a EOT b EOT, none for an empty document, none doubled.
TEST(Prepare, JoinsDocumentsWithOneEndOfText) {
  const TemporaryFolder folder;
  put(folder.path() / "text" / "1", "a");
  put(folder.path() / "text" / "2", "");
  put(folder.path() / "text" / "3", "b\xff");
  const PrepareResult result = prepare_bytes(options_for(folder, 0.0));
  EXPECT_THAT(tokens(folder.path() / "out" / "set", "train"), ElementsAre('a', 256, 'b', 255, 256));
  EXPECT_THAT(result.skipped, ElementsAre((folder.path() / "text" / "2").string() + ": empty"));
  EXPECT_EQ(result.manifest.train.documents, 2);
  EXPECT_EQ(result.manifest.train.bytes, 3);
  EXPECT_EQ(result.manifest.train.tokens, 5);
  const std::string source("a\0b\xff\0", 5);
  EXPECT_EQ(result.manifest.source_hash, hash_hex(std::as_bytes(std::span(source))));
  const double bits = -(3.0 * std::log2(0.2) + 2.0 * std::log2(0.4)) / 3.0;
  EXPECT_NEAR(result.manifest.unigram_bits_per_byte, bits, 1e-12);
}

// Field case 51: one document of five windows is cut in order; every token is a target once.
TEST(Prepare, CutsALongDocumentInOrder) {
  const TemporaryFolder folder;
  constexpr int64_t sequence = 50;
  std::string text(5 * sequence, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('A' + i % 57);
  put(folder / "text", text);
  prepare_bytes(options_for(folder, 0.05));
  const TokenStream stream(folder.path() / "out" / "set", read_manifest(folder.path() / "out" / "set"), "train", 257);
  ASSERT_EQ(stream.size(), 5 * sequence + 1);
  ASSERT_EQ(window_count(stream.size(), sequence), 5);
  std::string targets(text, 0, 1);
  for (int64_t window = 0; window < 5; ++window) {
    std::vector<int64_t> ids(sequence + 1);
    stream.copy(window * sequence, ids);
    for (int64_t i = 1; i <= sequence; ++i) {
      if (ids[static_cast<size_t>(i)] < 256) targets += static_cast<char>(ids[static_cast<size_t>(i)]);
    }
  }
  EXPECT_EQ(targets, text);
}

TEST(Prepare, SplitsByDocumentAsTheRuleSays) {
  const TemporaryFolder folder;
  write_numbered(folder, 40);
  PrepareOptions options = options_for(folder, 0.2);
  prepare_bytes(options);
  std::vector<std::string> wanted;
  for (const int i : {1, 2, 3, 7, 13, 14, 16, 18, 26, 29, 30, 32}) wanted.push_back("document " + std::to_string(i));
  EXPECT_EQ(documents(options.prefix, "validation"), wanted);
  EXPECT_EQ(documents(options.prefix, "train").size(), 40 - wanted.size());
  options.seed = 43;
  prepare_bytes(options);
  EXPECT_NE(documents(options.prefix, "validation"), wanted);
}

TEST(Prepare, DoesNotDependOnTheOrderOnDisk) {
  const TemporaryFolder a;
  const TemporaryFolder b;
  for (int i = 0; i < 30; ++i) put(a.path() / "text" / file_name(i), "document " + std::to_string(i));
  for (int i = 29; i >= 0; --i)
    put(b.path() / "text" / file_name(i * 7 % 30), "document " + std::to_string(i * 7 % 30));
  const Manifest first = prepare_bytes(options_for(a, 0.1)).manifest;
  EXPECT_EQ(prepare_bytes(options_for(b, 0.1)).manifest.hash(), first.hash());
}

TEST(Prepare, GivesBothSplitsADocumentWhenThereAreTwo) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TemporaryFolder folder;
    write_numbered(folder, 2);
    PrepareOptions options = options_for(folder, 0.001);
    options.seed = seed;
    const Manifest manifest = prepare_bytes(options).manifest;
    EXPECT_EQ(manifest.train.documents, 1);
    EXPECT_EQ(manifest.validation.documents, 1);
  }
}

TEST(Prepare, ALoneDocumentIsTrainingText) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TemporaryFolder folder;
    write_numbered(folder, 1);
    PrepareOptions options = options_for(folder, 0.5);
    options.seed = seed;
    const Manifest manifest = prepare_bytes(options).manifest;
    EXPECT_EQ(manifest.train.documents, 1);
    EXPECT_EQ(manifest.validation.documents, 0);
    EXPECT_TRUE(manifest.validation.shards.empty());
  }
}

TEST(Prepare, WalksFoldersAndSaysWhatItLeavesOut) {
  const TemporaryFolder folder;
  const fs::path text = folder / "text";
  put(text / "b.txt", "b");
  put(text / "a" / "deep.txt", "deep");
  put(text / ".git" / "config", "hidden");
  put(text / "z.bin", std::string("bi\0nary", 7));
  fs::create_directory_symlink(text, text / "loop");
  PrepareOptions options = options_for(folder, 0.0);
  options.sources.push_back(text / "b.txt");
  const PrepareResult result = prepare_bytes(options);
  EXPECT_THAT(documents(options.prefix, "train"), ElementsAre("deep", "b"));
  EXPECT_THAT(result.skipped,
              testing::UnorderedElementsAre(HasSubstr(".git: hidden"), HasSubstr("loop: a link to a folder"),
                                            HasSubstr("z.bin: binary"), HasSubstr("b.txt: named twice")));
}

TEST(Prepare, DoesNotReadItsOwnOutput) {
  const TemporaryFolder folder;
  put(folder.path() / "text" / "a", "a");
  PrepareOptions options = options_for(folder, 0.0);
  options.prefix = folder.path() / "text" / "set";
  const std::string first = prepare_bytes(options).manifest.hash();
  EXPECT_EQ(prepare_bytes(options).manifest.hash(), first);
}

// Field case 62: the folder's name has a space and an umlaut already.
TEST(Prepare, TakesTrailingSeparators) {
  const TemporaryFolder folder;
  write_numbered(folder, 3);
  PrepareOptions options = options_for(folder, 0.0);
  const Manifest plain = prepare_bytes(options).manifest;
  options.sources = {folder.path() / "text" / ""};
  options.prefix = folder.path() / "out" / "größe 2" / "";
  const Manifest odd = prepare_bytes(options).manifest;
  EXPECT_THAT(entries(folder / "out"), ElementsAre("größe 2-00000.npy", "größe 2.json", "set-00000.npy", "set.json"));
  EXPECT_EQ(odd.train.shards[0].hash, plain.train.shards[0].hash);
  EXPECT_EQ(documents(options.prefix, "train").size(), 3u);
}

TEST(Prepare, FillsShardsToTheirSizeAndRemovesOldOnes) {
  const TemporaryFolder folder;
  write_numbered(folder, 5);  // 5 x (10 letters + 1) = 55 tokens
  PrepareOptions options = options_for(folder, 0.0);
  options.shard_tokens = 10;
  const Manifest small = prepare_bytes(options).manifest;
  ASSERT_EQ(small.train.shards.size(), 6u);
  EXPECT_EQ(small.train.shards[5].tokens, 5);
  const std::vector<std::string> before = documents(options.prefix, "train");
  put(folder.path() / "out" / "other-00000.npy", "not ours");
  options.shard_tokens = 50;
  prepare_bytes(options);
  EXPECT_THAT(entries(folder / "out"), ElementsAre("other-00000.npy", "set-00000.npy", "set-00001.npy", "set.json"));
  EXPECT_EQ(documents(options.prefix, "train"), before);
}

TEST(Prepare, AFullDiskLeavesTheOldSetWhole) {
  const TemporaryFolder folder;
  write_numbered(folder, 30);
  const PrepareOptions options = options_for(folder, 0.2);
  prepare_bytes(options);
  const auto files = entries(folder / "out");
  const auto train = documents(options.prefix, "train");
  const auto validation = documents(options.prefix, "validation");
  put(folder.path() / "text" / "large", std::string(1000000, 'x'));
  {
    const SizeLimit limit(100000);
    EXPECT_THAT(input_error([&] { prepare_bytes(options); }),
                AllOf(HasSubstr("File too large"), HasSubstr("ulimit -f")));
  }
  EXPECT_EQ(entries(folder / "out"), files);
  EXPECT_EQ(documents(options.prefix, "train"), train);
  EXPECT_EQ(documents(options.prefix, "validation"), validation);
}

TEST(Prepare, RefusesBadSources) {
  const TemporaryFolder folder;
  PrepareOptions options = options_for(folder, 0.0);
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }),
              AllOf(HasSubstr((folder / "text").string()), HasSubstr("No such file")));
  fs::create_directory(folder / "text");
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }),
              AllOf(HasSubstr("wanted at least one file with text, got 0 files"), HasSubstr("name text files")));
  put(folder.path() / "text" / "empty", "");
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }), HasSubstr("got 1 files, 1 left out"));
  EXPECT_TRUE(entries(folder / "out").empty());
}

TEST(Prepare, RefusesAnUnreadableFolder) {
  const TemporaryFolder folder;
  write_numbered(folder, 2);
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(folder / "text", fs::perms::none);
  std::string message;
  {
    const Unprivileged user;
    if (!user.works()) GTEST_SKIP() << "root cannot give up its rights here";
    message = input_error([&] { prepare_bytes(options_for(folder, 0.0)); });
  }
  fs::permissions(folder / "text", fs::perms::owner_all);
  EXPECT_THAT(message, AllOf(HasSubstr("text"), HasSubstr("Permission denied"), HasSubstr("give yourself permission")));
}

TEST(Prepare, RefusesBadOptions) {
  const TemporaryFolder folder;
  write_numbered(folder, 2);
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THAT(input_error([&] { prepare_bytes(options_for(folder, fraction)); }),
                HasSubstr("--validation-fraction: wanted at least 0 and below 1"));
  }
  PrepareOptions options = options_for(folder, 0.0);
  options.shard_tokens = 0;
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }), HasSubstr("--shard-tokens: wanted at least 1, got 0"));
  options = options_for(folder, 0.0);
  options.seed = uint64_t{1} << 63;
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }), HasSubstr("--seed: wanted a number below 2^63"));
  options = options_for(folder, 0.0);
  options.prefix = folder / "x-validation";
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }), HasSubstr("--out: x-validation"));
  options.prefix = folder.path() / "text" / "000" / "set";
  EXPECT_THAT(input_error([&] { prepare_bytes(options); }), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace mhar::data
