#include "data/token_file.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "base/temporary_folder.h"
#include "data/shard_writer.h"

namespace mhar::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> all(const TokenFile& file) {
  std::vector<int64_t> ids(static_cast<size_t>(file.size()));
  file.copy(0, ids);
  return ids;
}

std::string header(const std::string& dict, char major = 1, char minor = 0) {
  std::string text("\x93NUMPY");
  text += {major, minor, static_cast<char>(dict.size() & 255), static_cast<char>(dict.size() >> 8)};
  return text + dict;
}

std::string refusal(const std::string& content) {
  const TemporaryFolder folder;
  put(folder / "x-00000.npy", content);
  const std::string message = input_error([&] { TokenFile file(folder / "x-00000.npy"); });
  EXPECT_THAT(message, AllOf(HasSubstr("read shard: "), HasSubstr((folder / "x-00000.npy").string())));
  return message;
}

std::string dict(const std::string& type, const std::string& order, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

TEST(NpyHeader, IsWhatNumpyWrites) {
  const std::string text = npy_header(12345, 2);
  EXPECT_EQ(text.size(), 128u);
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_THAT(text, HasSubstr("{'descr': '<u2', 'fortran_order': False, 'shape': (12345,), }"));
  EXPECT_EQ(text.back(), '\n');
}

TEST(NpyHeader, HasOneLengthForEveryCount) {
  for (const int width : {2, 4}) {
    for (const int64_t size : {int64_t{0}, int64_t{9}, int64_t{1} << 28, INT64_MAX}) {
      EXPECT_EQ(npy_header(size, width).size(), 128u);
    }
  }
}

// Field case 44.
TEST(TokenFile, KeepsWideIds) {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path(), "wide", 4, 100);
  writer.append(std::array<uint32_t, 4>{0, 65535, 65536, 151935});
  writer.finish();
  const TokenFile file(folder / "wide-00000.npy");
  EXPECT_EQ(file.width(), 4);
  EXPECT_THAT(all(file), ElementsAre(0, 65535, 65536, 151935));
  EXPECT_EQ(file.largest(), 151935);
}

TEST(TokenFile, KeepsNarrowIds) {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path(), "narrow", 2, 100);
  writer.append(std::array<uint32_t, 3>{0, 256, 65535});
  writer.finish();
  const TokenFile file(folder / "narrow-00000.npy");
  EXPECT_EQ(file.width(), 2);
  EXPECT_THAT(all(file), ElementsAre(0, 256, 65535));
  std::vector<int64_t> middle(2);
  file.copy(1, middle);
  EXPECT_THAT(middle, ElementsAre(256, 65535));
  EXPECT_THROW(file.copy(2, middle), std::out_of_range);
  EXPECT_THROW(file.copy(-1, middle), std::out_of_range);
}

TEST(TokenFile, TakesOtherSpellingsOfTheSameHeader) {
  const TemporaryFolder folder;
  // An odd header length puts the tokens at an odd address.
  put(folder / "a",
      header(R"({"shape":(2,),"fortran_order":False,"descr":"<u2"})") + std::string("\x01\x00\x02\x01", 4));
  EXPECT_THAT(all(TokenFile(folder / "a")), ElementsAre(1, 258));
  put(folder / "empty", npy_header(0, 4));
  EXPECT_EQ(TokenFile(folder / "empty").size(), 0);
  EXPECT_EQ(TokenFile(folder / "empty").largest(), -1);
}

TEST(TokenFile, RefusesAnotherVersionNamingIt) {
  EXPECT_THAT(refusal(header(dict("<u2", "False", "(0,)"), 2, 0)), HasSubstr("version 1.0, got version 2.0"));
  EXPECT_THAT(refusal(header(dict("<u2", "False", "(0,)"), 3, 0)), HasSubstr("got version 3.0"));
}

TEST(TokenFile, RefusesForeignFiles) {
  const int32_t other_trainer[2] = {20240520, 1};
  EXPECT_THAT(refusal(std::string(reinterpret_cast<const char*>(other_trainer), 8)),
              AllOf(HasSubstr("wanted a .npy file of version 1.0"),
                    HasSubstr("begins with bytes 88 d8 34 01 01 00 00 00"), HasSubstr("mhar data")));
  EXPECT_THAT(refusal(""), HasSubstr("got an empty file"));
  EXPECT_THAT(refusal("\x93NUMPY\x01"), HasSubstr("got a file of 7 bytes"));
}

TEST(TokenFile, RefusesOtherTypesOrdersAndRanks) {
  for (const std::string type : {"<i2", ">u2", "|u1", "<i8", "<f4", "<u8"}) {
    EXPECT_THAT(refusal(header(dict(type, "False", "(0,)"))), AllOf(HasSubstr("uint16 or uint32"), HasSubstr(type)));
  }
  EXPECT_THAT(refusal(header("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (0,), }\n")),
              HasSubstr("structured type"));
  EXPECT_THAT(refusal(header(dict("<u2", "True", "(0,)"))), HasSubstr("fortran_order True"));
  EXPECT_THAT(refusal(header(dict("<u2", "False", "(2, 3)"))), HasSubstr("wanted a 1-D array, got 2 dimensions"));
  EXPECT_THAT(refusal(header(dict("<u2", "False", "()"))), HasSubstr("got 0 dimensions"));
}

TEST(TokenFile, RefusesTruncatedAndOverlongFiles) {
  const std::string whole = npy_header(4, 2) + std::string(8, 'x');
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 1)),
              HasSubstr("wanted 4 tokens of 2 bytes after the header, got 7 bytes (truncated)"));
  EXPECT_THAT(refusal(whole + "y"), HasSubstr("got 9 bytes (too long)"));
  EXPECT_THAT(refusal(whole.substr(0, 50)), HasSubstr("wanted a header of 118 bytes, got 40 (truncated)"));
}

TEST(TokenFile, RefusesBrokenHeaders) {
  EXPECT_THAT(refusal(header("{'descr': '<u2'}")), HasSubstr("without one of them"));
  EXPECT_THAT(refusal(header("{'descr: 1")), HasSubstr("closing quote"));
  EXPECT_THAT(refusal(header("{'colour': 1}")), HasSubstr("key 'colour'"));
  EXPECT_THAT(refusal(header("[]")), HasSubstr("wanted '{' at byte 0"));
  EXPECT_THAT(refusal(header(dict("<u2", "False", "(-1,)"))), HasSubstr("wanted a number"));
  EXPECT_THAT(refusal(header(dict("<u4", "False", "(9999999999999999999,)"))), HasSubstr("more than 18 digits"));
  EXPECT_THAT(refusal(header(dict("<u4", "False", "(999999999999999999,)"))), HasSubstr("truncated"));
  EXPECT_THAT(refusal(header(dict("<u2", "False", "(0,)") + "extra")), HasSubstr("more text"));
}

// Field case 62: 32-bit counts and offsets. The file has a hole, so it takes no space; reading it through takes a
// while.
TEST(TokenFileLong, CountsAboveFourGibibytes) {
  const char* asked = std::getenv("MHAR_LONG_TESTS");
  if (asked == nullptr || std::string(asked) != "1") GTEST_SKIP() << "set MHAR_LONG_TESTS=1";
  const TemporaryFolder folder;
  const int64_t size = (int64_t{1} << 31) + 12345;  // 4 GiB + 24,690 bytes
  {
    FileWriter writer(folder / "long.npy");
    writer.write(npy_header(size, 2));
    writer.seek(128 + 2 * static_cast<uint64_t>(size) - 2);
    writer.write(std::string("\x34\x12"));
    writer.close();
  }
  const TokenFile file(folder / "long.npy");
  EXPECT_EQ(file.size(), 2147495993);
  std::vector<int64_t> last(2);
  file.copy(size - 2, last);
  EXPECT_THAT(last, ElementsAre(0, 0x1234));
  EXPECT_EQ(file.largest(), 0x1234);
}

}  // namespace
}  // namespace mhar::data
