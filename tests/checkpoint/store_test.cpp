#include "checkpoint/store.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/helpers.h"

namespace mhar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A checkpoint of two files with the same word in both, so that a mixture of two saves shows.
void fill_with(const std::string& word, const fs::path& folder) {
  for (const char* name : {"model.safetensors", "state.json"}) {
    FileWriter file(folder / name);
    for (int i = 0; i < 200; ++i) file.write(word + "\n");
    file.close();
  }
}

fs::path save_word(Store& store, int64_t step, const std::string& word) {
  return store.save(step, [&](const fs::path& folder) { fill_with(word, folder); });
}

std::string text(const fs::path& path) { return read_text(path, "test"); }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Store, NoFolderIsNoCheckpoint) {
  const Folder folder;
  std::vector<std::string> skipped;
  const Store store(folder / "checkpoints");
  EXPECT_EQ(store.newest(skipped), std::nullopt);
  EXPECT_THAT(store.steps(), IsEmpty());
}

TEST(Store, SavesAndFindsTheNewest) {
  const Folder folder;
  Store store(folder / "run" / "checkpoints");
  save_word(store, 900, "a");
  save_word(store, 1000, "b");
  save_word(store, 123456789, "c");
  EXPECT_EQ(store.path(1000).filename(), "step-00001000");
  EXPECT_THAT(store.steps(), ElementsAre(900, 1000, 123456789));
  std::vector<std::string> skipped;
  EXPECT_EQ(store.newest(skipped), store.path(123456789));
  EXPECT_THAT(skipped, IsEmpty());
  EXPECT_NO_THROW(check_complete(store.path(1000)));
}

TEST(Store, TheSameStepCanBeSavedAgain) {
  const Folder folder;
  Store store(folder.path());
  save_word(store, 7, "old");
  EXPECT_EQ(save_word(store, 7, "new"), store.path(7));
  EXPECT_EQ(text(store.path(7) / "state.json").substr(0, 4), "new\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000007"));
}

TEST(Store, AFailedSaveLeavesThePreviousOne) {
  const Folder folder;
  Store store(folder.path());
  save_word(store, 7, "old");
  const auto full_disk = [](const fs::path& temporary) {
    fill_with("new", temporary);
    throw InputError({"write file", "x", "room", "a full disk", "make room"});
  };
  EXPECT_THAT(message_of([&] { store.save(7, full_disk); }), HasSubstr("a full disk"));
  EXPECT_THAT(message_of([&] { store.save(8, full_disk); }), HasSubstr("a full disk"));
  EXPECT_EQ(text(store.path(7) / "state.json").substr(0, 4), "old\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000007"));
}

TEST(Store, NamesThatSaveNeverGivesAreIgnored) {
  const Folder folder;
  Store store(folder.path());
  save_word(store, 5, "a");
  for (const char* name : {"step-9", "step-00000009x", "step--0000009", "other"}) fs::create_directory(folder / name);
  put(folder / "step-00000010", "a file");
  EXPECT_THAT(store.steps(), ElementsAre(5));
}

TEST(Store, IncompleteCheckpointsArePassedOverWithTheirReason) {
  const Folder folder;
  Store store(folder.path());
  for (int64_t step : {1, 2, 3, 4, 5}) save_word(store, step, "a");
  fs::remove(store.path(5) / "files.json");
  fs::remove(store.path(4) / "model.safetensors");
  fs::resize_file(store.path(3) / "state.json", 10);
  put(store.path(2) / "files.json", "{\"version\":1,");
  std::vector<std::string> skipped;
  EXPECT_EQ(store.newest(skipped), store.path(1));
  EXPECT_THAT(skipped, ElementsAre(AllOf(HasSubstr("step-00000005"), HasSubstr("no files.json")),
                                   AllOf(HasSubstr("step-00000004/model.safetensors"), HasSubstr("wanted the file")),
                                   HasSubstr("step-00000003/state.json: wanted 400 bytes, got 10"),
                                   AllOf(HasSubstr("step-00000002/files.json"), HasSubstr("broken JSON"))));
}

TEST(Store, PruneKeepsTheNewestAndEveryMultiple) {
  const Folder folder;
  Store store(folder.path());
  for (int64_t step = 10; step <= 60; step += 10) save_word(store, step, "a");
  store.prune(2, 30);
  EXPECT_THAT(store.steps(), ElementsAre(30, 50, 60));
  store.prune(1, 0);
  EXPECT_THAT(store.steps(), ElementsAre(60));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000060"));
}

TEST(Store, PruneCountsOnlyWhatCouldBeResumed) {
  const Folder folder;
  Store store(folder.path());
  for (int64_t step : {1, 2, 3}) save_word(store, step, "a");
  fs::remove(store.path(3) / "state.json");
  store.prune(1, 0);
  EXPECT_THAT(store.steps(), ElementsAre(2, 3));
}

TEST(CheckComplete, TellsWhatIsWrong) {
  const Folder folder;
  EXPECT_THAT(message_of([&] { check_complete(folder / "absent"); }),
              HasSubstr("wanted a checkpoint folder, got nothing"));
  EXPECT_NO_THROW(check_complete(folder.path()));  // a Hugging Face folder has no list
  put(folder / "files.json", R"({"version":2,"files":{}})");
  EXPECT_THAT(message_of([&] { check_complete(folder.path()); }), HasSubstr("wanted a list of files, version 1"));
  put(folder / "files.json", R"({"version":1,"files":{"a":"x"}})");
  put(folder / "a", "");
  EXPECT_THAT(message_of([&] { check_complete(folder.path()); }), HasSubstr("wanted \"x\" bytes, got 0"));
}

/// Saves steps 1, 2, 3, 2, 3, 4, ... without end, as a run that is killed, resumed and saves a step again does.
[[noreturn]] void save_for_ever(const fs::path& folder) {
  try {
    Store store(folder);
    for (int64_t turn = 0;; ++turn) {
      const int64_t step = 1 + turn % 2 + turn / 2;
      save_word(store, step, std::to_string(step) + " " + std::to_string(turn));
      store.prune(2, 0);
    }
  } catch (...) {
    ::_exit(9);
  }
}

TEST(StoreKill, NewestIsCompleteAfterAnyKill) {
  const Folder folder;
  Store first(folder.path());
  const auto begin = std::chrono::steady_clock::now();
  save_word(first, 1, "1 first");
  const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::mt19937 random(std::random_device{}());
  int interrupted = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (4 * one_save.count() + 20000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";

    Store store(folder.path());
    interrupted += store.clean() > 0;
    std::vector<std::string> skipped;
    const auto newest = store.newest(skipped);
    EXPECT_THAT(skipped, IsEmpty()) << "round " << round;
    EXPECT_TRUE(newest.has_value()) << "round " << round;
    for (int64_t step : store.steps()) {
      EXPECT_NO_THROW(check_complete(store.path(step)));
      const std::string model = text(store.path(step) / "model.safetensors");
      EXPECT_EQ(model, text(store.path(step) / "state.json")) << "two saves mixed in round " << round;
      EXPECT_EQ(model.substr(0, model.find(' ')), std::to_string(step));
    }
    for (const auto& name : names_in(folder.path())) EXPECT_THAT(name, HasSubstr("step-0")) << "left over";
  }
  EXPECT_GT(interrupted, 0) << "no kill met a save: the test proves nothing";
}

}  // namespace
}  // namespace mhar::checkpoint
