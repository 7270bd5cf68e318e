#include "base/error.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "base/system_fault.h"
#include "base/version.h"

namespace mhar {
namespace {

TEST(Error, JoinsItsFiveParts) {
  EXPECT_EQ(describe({"read shard", "a.npy", "version 1.0", "version 2.0", "prepare it again"}),
            "read shard: a.npy: wanted version 1.0, got version 2.0; prepare it again");
}

TEST(Error, LeavesOutEmptyParts) {
  EXPECT_EQ(describe({"train", "", "", "no text", ""}), "train: got no text");
  EXPECT_EQ(describe({"train", "", "text", "", "give some"}), "train: wanted text; give some");
}

TEST(Error, IsWhatTheExceptionSays) {
  EXPECT_STREQ(InputError(Fault{"a", "b", "c", "d", "e"}).what(), "a: b: wanted c, got d; e");
  EXPECT_STREQ(RunError(Fault{"a", "b", "c", "d", "e"}).what(), "a: b: wanted c, got d; e");
}

TEST(Closest, FindsATypingError) {
  const std::vector<std::string> names = {"sequence", "steps", "seed"};
  EXPECT_EQ(closest("sequnce", names), "sequence");
  EXPECT_EQ(closest("setps", names), "steps");
  EXPECT_EQ(closest("seed", names), "seed");
}

TEST(Closest, KeepsQuietWhenNothingIsNear) {
  EXPECT_EQ(closest("learning", {"sequence", "steps"}), "");
  EXPECT_EQ(closest("x", {"ab"}), "");
  EXPECT_EQ(closest("x", {}), "");
}

TEST(SystemFault, SaysWhatToDo) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EACCES, EROFS, ENOENT, ENOTDIR, EIO, EINVAL}) {
    EXPECT_FALSE(remedy_for(error).empty());
  }
  EXPECT_THAT(remedy_for(ENOSPC), testing::HasSubstr("free space"));
  EXPECT_THAT(remedy_for(EFBIG), testing::HasSubstr("ulimit -f"));
  EXPECT_THAT(remedy_for(EACCES), testing::HasSubstr("permission"));
}

TEST(Version, HasThreeNumbers) { EXPECT_THAT(version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")); }

}  // namespace
}  // namespace mhar
