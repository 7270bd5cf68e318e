#include "data/manifest.h"

#include <gmock/gmock.h>

#include "base/temporary_folder.h"

namespace mhar::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.tokenizer = {"huggingface", "tokenizer.json", std::string(32, 'a'), 151936, 151643};
  manifest.seed = 42;
  manifest.validation_fraction = 0.1;
  manifest.unigram_bits_per_byte = 2.75;
  manifest.train = {
      {{"x-00000.npy", 100, std::string(32, 'b')}, {"x-00001.npy", 7, std::string(32, 'c')}}, 107, 3, 400};
  manifest.validation = {{{"x-validation-00000.npy", 9, std::string(32, 'd')}}, 9, 1, 30};
  manifest.source_hash = std::string(32, 'e');
  return manifest;
}

void expect_equal(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.tokenizer, b.tokenizer);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.validation_fraction, b.validation_fraction);
  EXPECT_EQ(a.unigram_bits_per_byte, b.unigram_bits_per_byte);
  EXPECT_EQ(a.source_hash, b.source_hash);
  EXPECT_TRUE(a.train == b.train);
  EXPECT_TRUE(a.validation == b.validation);
}

/// The message for the example's JSON with `from` replaced.
std::string refusal(const std::string& from, const std::string& to) {
  std::string json = to_json(example());
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  json.replace(at, from.size(), to);
  const std::string message = input_error([&] { parse_manifest(json, "DIR/x.json"); });
  EXPECT_THAT(message, HasSubstr("read manifest: DIR/x.json: wanted "));
  return message;
}

TEST(Manifest, ComesBackWhole) {
  expect_equal(parse_manifest(to_json(example()), "x"), example());
  const TemporaryFolder folder;
  write_manifest(folder / "x", example());
  expect_equal(read_manifest(folder / "x"), example());
  expect_equal(read_manifest(folder / "x.json"), example());
  expect_equal(read_manifest(folder.path() / "x" / ""), example());
}

TEST(Manifest, SaysItsFormat) {
  EXPECT_THAT(to_json(example()), AllOf(HasSubstr("\"format\": \"mhar-tokens\""), HasSubstr("\"version\": 1")));
}

TEST(Manifest, RefusesAnotherVersionNamingIt) {
  EXPECT_THAT(refusal("\"version\": 1", "\"version\": 2"), HasSubstr("\"version\" to be 1, got version 2; prepare"));
}

TEST(Manifest, RefusesForeignFiles) {
  EXPECT_THAT(refusal("mhar-tokens", "other"), HasSubstr("\"format\" to be \"mhar-tokens\", got \"other\""));
  EXPECT_THAT(input_error([] { parse_manifest("{}", "x"); }),
              HasSubstr("\"format\" to be \"mhar-tokens\", got nothing"));
  EXPECT_THAT(input_error([] { parse_manifest("[1]", "x"); }), HasSubstr("to be an object, got array"));
  EXPECT_THAT(input_error([] { parse_manifest("", "x"); }), HasSubstr("wanted JSON"));
  EXPECT_THAT(input_error([] { parse_manifest("{\"format\": \"\xff\"}", "x"); }), HasSubstr("wanted JSON"));
}

TEST(Manifest, NamesAMissingFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(input_error([&] { read_manifest(folder / "none"); }),
              AllOf(HasSubstr((folder / "none.json").string()), HasSubstr("No such file")));
  EXPECT_THAT(input_error([] { read_manifest(""); }), HasSubstr("ends in a name"));
}

TEST(Manifest, NamesTheKeyThatIsWrong) {
  EXPECT_THAT(refusal("\"seed\": 42", "\"seeds\": 42"),
              HasSubstr("\"seed\" to be a whole number of at least 0, got nothing"));
  EXPECT_THAT(refusal("\"seed\": 42", "\"seed\": \"42\""), HasSubstr("got string"));
  EXPECT_THAT(refusal("\"seed\": 42", "\"seed\": -1"), HasSubstr("got -1"));
  EXPECT_THAT(refusal("\"seed\": 42", "\"seed\": 1.5"), HasSubstr("got 1.5"));
  EXPECT_THAT(refusal("\"seed\": 42", "\"seed\": 18446744073709551615"), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(refusal("\"validation_fraction\": 0.1", "\"validation_fraction\": null"),
              HasSubstr("\"validation_fraction\" to be a number of at least 0, got null"));
  EXPECT_THAT(refusal("\"end_of_text\": 151643", "\"end_of_text\": 151936"),
              HasSubstr("\"tokenizer.end_of_text\" to be below the vocabulary of 151936"));
  EXPECT_THAT(refusal("\"huggingface\"", "\"words\""), HasSubstr("\"tokenizer.kind\" to be bytes or huggingface"));
  EXPECT_THAT(refusal("\"tokens\": 7", "\"tokens\": 8"), HasSubstr("\"train.shards[1].tokens\""));
  EXPECT_THAT(refusal("\"tokens\": 7", "\"tokens\": 6"), HasSubstr("\"train.tokens\" to be the sum over its shards"));
}

TEST(Manifest, RefusesShardsOutsideItsFolder) {
  for (const std::string name : {"../x-00000.npy", "/etc/passwd", "..", ""}) {
    EXPECT_THAT(refusal("\"x-00000.npy\"", "\"" + name + "\""), HasSubstr("the name of a file beside the manifest"));
  }
}

// Field case 46.
TEST(Manifest, HashChangesWithTheStream) {
  const std::string hash = example().hash();
  EXPECT_EQ(example().hash(), hash);
  Manifest renamed = example();
  renamed.train.shards[1].file = "x-00007.npy";
  EXPECT_NE(renamed.hash(), hash);
  Manifest reordered = example();
  std::swap(reordered.train.shards[0], reordered.train.shards[1]);
  EXPECT_NE(reordered.hash(), hash);
  Manifest changed = example();
  changed.train.shards[0].hash[5] = 'f';
  EXPECT_NE(changed.hash(), hash);
  Manifest other_tokenizer = example();
  other_tokenizer.tokenizer.hash[0] = 'f';
  EXPECT_NE(other_tokenizer.hash(), hash);
}

TEST(Manifest, HashIgnoresWhatTrainingNeverSees) {
  Manifest manifest = example();
  manifest.tokenizer.name = "copy of tokenizer.json";
  manifest.validation = {};
  manifest.unigram_bits_per_byte = 1.0;
  EXPECT_EQ(manifest.hash(), example().hash());
}

}  // namespace
}  // namespace mhar::data
