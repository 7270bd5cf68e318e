#include "base/replace.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "base/size_limit.h"
#include "base/temporary_folder.h"

namespace mhar {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void fill(const fs::path& folder) {
  put(folder / "model", "new");
  put(folder / "deep" / "er" / "state", "new");
}

/// The number of a process that is certainly gone.
std::string dead() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return std::to_string(child);
}

TEST(WriteFileAtomically, ReplacesAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.json", "one");
  write_file_atomically(folder / "a.json", "two");
  EXPECT_EQ(get(folder / "a.json"), "two");
  EXPECT_THAT(entries(folder.path()), ElementsAre("a.json"));
}

TEST(WriteFileAtomically, AFailureLeavesTheOldText) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  {
    const SizeLimit limit(1000);
    EXPECT_THAT(input_error([&] { write_file_atomically(folder / "a", std::string(5000, 'x')); }),
                HasSubstr("File too large"));
  }
  EXPECT_EQ(get(folder / "a"), "old");
  EXPECT_THAT(entries(folder.path()), ElementsAre("a"));
}

TEST(WriteFolderAtomically, MakesParentsAndTakesATrailingSeparator) {
  const TemporaryFolder folder;
  write_folder_atomically(folder.path() / "run" / "step-1" / "", fill);
  EXPECT_EQ(get(folder.path() / "run" / "step-1" / "deep" / "er" / "state"), "new");
  EXPECT_THAT(entries(folder / "run"), ElementsAre("step-1"));
}

TEST(WriteFolderAtomically, FillsAsideUnderAHiddenName) {
  const TemporaryFolder folder;
  put(folder.path() / "step" / "model", "old");
  write_folder_atomically(folder / "step", [&](const fs::path& temporary) {
    EXPECT_EQ(temporary, folder / (".tmp-step-" + std::to_string(::getpid())));
    EXPECT_EQ(get(folder.path() / "step" / "model"), "old");
    fill(temporary);
  });
  EXPECT_EQ(get(folder.path() / "step" / "model"), "new");
  EXPECT_THAT(entries(folder.path()), ElementsAre("step"));
}

TEST(WriteFolderAtomically, AFailureLeavesTheOldFolder) {
  const TemporaryFolder folder;
  put(folder.path() / "step" / "model", "old");
  const auto breaks = [](const fs::path& temporary) {
    fill(temporary);
    throw std::runtime_error("broken");
  };
  EXPECT_THROW(write_folder_atomically(folder / "step", breaks), std::runtime_error);
  EXPECT_EQ(get(folder.path() / "step" / "model"), "old");
  EXPECT_THAT(entries(folder.path()), ElementsAre("step"));
}

TEST(WriteFolderAtomically, RefusesToReplaceAFile) {
  const TemporaryFolder folder;
  put(folder / "step", "a file");
  EXPECT_THAT(input_error([&] { write_folder_atomically(folder / "step", fill); }),
              AllOf(HasSubstr("step"), HasSubstr("got a file")));
  EXPECT_EQ(get(folder / "step"), "a file");
}

TEST(WriteFolderAtomically, RefusesAPathWithoutAName) {
  EXPECT_THAT(input_error([] { write_folder_atomically("", fill); }), HasSubstr("wanted a path that ends in a name"));
  EXPECT_THAT(input_error([] { write_folder_atomically("/", fill); }), HasSubstr("wanted a path that ends in a name"));
  EXPECT_THAT(input_error([] { write_folder_atomically("a/..", fill); }), HasSubstr("ends in a name"));
}

TEST(PutInPlace, WorksWithAndWithoutExchange) {
  for (const bool exchange : {true, false}) {
    for (const bool there : {true, false}) {
      const TemporaryFolder folder;
      if (there) put(folder.path() / "step" / "old", "old");
      fill(folder / ".tmp-step-1");
      put_in_place(folder / ".tmp-step-1", folder / "step", exchange);
      EXPECT_THAT(entries(folder.path()), ElementsAre("step")) << exchange << there;
      EXPECT_THAT(entries(folder / "step"), ElementsAre("deep", "model")) << exchange << there;
    }
  }
}

TEST(PutInPlace, PutsTheOldOneBackWhenTheNewOneIsMissing) {
  for (const bool exchange : {true, false}) {
    const TemporaryFolder folder;
    put(folder.path() / "step" / "old", "old");
    EXPECT_THAT(input_error([&] { put_in_place(folder / ".tmp-step-1", folder / "step", exchange); }),
                HasSubstr("No such file"));
    EXPECT_EQ(get(folder.path() / "step" / "old"), "old");
    EXPECT_THAT(entries(folder.path()), ElementsAre("step"));
  }
}

TEST(RemoveFolderAtomically, RemovesAndForgivesAMissingOne) {
  const TemporaryFolder folder;
  fill(folder / "step");
  remove_folder_atomically(folder.path() / "step" / "");
  remove_folder_atomically(folder / "step");
  EXPECT_TRUE(entries(folder.path()).empty());
}

TEST(RemoveLeftovers, RemovesOnlyItsOwnNamesOfDeadProcesses) {
  const TemporaryFolder folder;
  const std::string living = ".tmp-step-4-" + std::to_string(::getppid());
  const std::string gone = dead();
  for (const std::string& name : {".tmp-step-1-" + gone, ".trash-step-2-" + gone}) fill(folder / name);
  put(folder / (".tmp-state.json-" + std::to_string(::getpid())), "ours, from an earlier life");
  for (const std::string& name : {std::string("step-3"), std::string(".tmp"), ".tmp-" + gone,
                                  std::string(".tmp-step-x"), std::string(".git"), "tmp-step-" + gone, living}) {
    fill(folder / name);
  }
  EXPECT_EQ(remove_leftovers(folder.path()), 3);
  EXPECT_EQ(entries(folder.path()), (std::set<std::string>{"step-3", ".tmp", ".tmp-" + gone, ".tmp-step-x", ".git",
                                                           "tmp-step-" + gone, living}));
  EXPECT_EQ(remove_leftovers(folder / "no such folder"), 0);
}

TEST(RemoveLeftovers, GivesASetAsideFolderItsPlaceBack) {
  const TemporaryFolder folder;
  const std::string gone = dead();
  put(folder.path() / (".old-step-1-" + gone) / "model", "whole");
  put(folder.path() / (".old-step-2-" + gone) / "model", "old");
  put(folder.path() / "step-2" / "model", "new");
  EXPECT_EQ(remove_leftovers(folder.path()), 1);
  EXPECT_THAT(entries(folder.path()), ElementsAre("step-1", "step-2"));
  EXPECT_EQ(get(folder.path() / "step-1" / "model"), "whole");
  EXPECT_EQ(get(folder.path() / "step-2" / "model"), "new");
}

// A writer that is killed again and again while it replaces a folder: at every instant the folder is one of its
// versions.
TEST(WriteFolderAtomically, AKillLeavesAWholeFolder) {
  const TemporaryFolder folder;
  write_folder_atomically(folder / "step", fill);
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int version = 0;; ++version) {
        write_folder_atomically(folder / "step", [&](const fs::path& temporary) {
          put(temporary / "a", std::to_string(version));
          put(temporary / "b", std::to_string(version));
        });
      }
    }
    ::usleep(static_cast<useconds_t>(2000 + 1700 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::set<std::string> found = entries(folder / "step");
    if (found.contains("a")) {
      EXPECT_EQ(get(folder.path() / "step" / "a"), get(folder.path() / "step" / "b"));
    } else {
      EXPECT_THAT(found, ElementsAre("deep", "model"));
    }
    remove_leftovers(folder.path());
    EXPECT_THAT(entries(folder.path()), ElementsAre("step"));
  }
}

}  // namespace
}  // namespace mhar
