#include "base/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/size_limit.h"
#include "base/temporary_folder.h"
#include "base/unprivileged.h"

namespace mhar {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryFolder folder;
  put(folder / "a", "some text");
  EXPECT_EQ(text_of(MappedFile(folder / "a")), "some text");
  put(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(MappedFile, Moves) {
  const TemporaryFolder folder;
  put(folder / "a", "first");
  put(folder / "b", "second");
  MappedFile a(folder / "a");
  MappedFile moved(std::move(a));
  EXPECT_EQ(text_of(moved), "first");
  moved = MappedFile(folder / "b");
  EXPECT_EQ(text_of(moved), "second");
  EXPECT_EQ(moved.path(), folder / "b");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(input_error([&] { MappedFile file(folder / "none"); }),
              AllOf(HasSubstr((folder / "none").string()), HasSubstr("No such file"), HasSubstr("check the path")));
  EXPECT_THAT(input_error([&] { MappedFile file(folder.path()); }), HasSubstr("wanted a regular file, got a folder"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(input_error([&] { MappedFile file(folder / "pipe"); }), HasSubstr("got a device or pipe"));
}

TEST(ReadText, NamesTheOperation) {
  const TemporaryFolder folder;
  put(folder / "a", std::string(200000, 'x') + '\0' + "end");
  EXPECT_EQ(get(folder / "a").size(), 200004u);
  EXPECT_THAT(input_error([&] { read_text(folder / "none", "read configuration"); }),
              AllOf(HasSubstr("read configuration: "), HasSubstr("No such file")));
  EXPECT_THAT(input_error([&] { read_text(folder.path(), "read configuration"); }), HasSubstr("Is a directory"));
}

TEST(FileWriter, WritesSeeksAndTruncates) {
  const TemporaryFolder folder;
  put(folder / "a", "a much longer text that was there before");
  FileWriter file(folder / "a");
  file.write("....body");
  file.seek(0);
  file.write("head");
  file.close();
  EXPECT_EQ(get(folder / "a"), "headbody");
}

TEST(FileWriter, AFullDiskIsAnInputError) {
  FileWriter file("/dev/full");
  EXPECT_THAT(input_error([&] { file.write("text"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device"), HasSubstr("free space")));
}

TEST(FileWriter, AFileSizeLimitIsAnInputErrorAndNoSignal) {
  const TemporaryFolder folder;
  FileWriter file(folder / "a");
  const SizeLimit limit(1000);
  EXPECT_THAT(input_error([&] { file.write(std::string(5000, 'x')); }),
              AllOf(HasSubstr((folder / "a").string()), HasSubstr("File too large"), HasSubstr("ulimit -f")));
}

TEST(FileWriter, NamesAPathItCannotCreate) {
  const TemporaryFolder folder;
  EXPECT_THAT(input_error([&] { FileWriter file(folder.path() / "none" / "a"); }),
              AllOf(HasSubstr("none/a"), HasSubstr("No such file")));
  EXPECT_THAT(input_error([&] { FileWriter file(folder.path()); }), HasSubstr("Is a directory"));
}

TEST(FolderLock, IsForOneAtATime) {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_THAT(input_error([&] { const FolderLock second(folder.path()); }),
                AllOf(HasSubstr(folder.path().string()), HasSubstr("another process holds"), HasSubstr("wait")));
  }
  const FolderLock again(folder.path());
  EXPECT_THAT(input_error([&] { const FolderLock lock(folder / "none"); }), HasSubstr("No such file"));
}

TEST(FileWriter, NamesAPermissionThatIsMissing) {
  const TemporaryFolder folder;
  put(folder / "secret", "text");
  fs::permissions(folder / "secret", fs::perms::none);
  fs::permissions(folder.path(), fs::perms::none);
  std::string write, read;
  {
    const Unprivileged user;
    if (!user.works()) GTEST_SKIP() << "root cannot give up its rights here";
    write = input_error([&] { FileWriter file(folder / "a"); });
    read = input_error([&] { MappedFile file(folder / "secret"); });
  }
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_THAT(write, AllOf(HasSubstr("Permission denied"), HasSubstr("give yourself permission")));
  EXPECT_THAT(read, AllOf(HasSubstr("secret"), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace mhar
