#include "checkpoint/safetensors.h"

#include "checkpoint/helpers.h"

namespace mhar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path beside = fs::path(MHAR_TESTS_DIR) / "checkpoint";

template <typename T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::vector<T> values(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(file.entries().at(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Every type, a scalar, an empty tensor and a name that needs escapes; tests/python/test_safetensors_format.py reads
// the stored file with the `safetensors` package.
void write_sample(const fs::path& path) {
  const std::vector<uint8_t> state = {1, 2, 3};
  const std::vector<float> weight = {0.5f, -1.0f, 2.0f, 3.25f, 0.0f, -0.0f};
  const std::vector<uint16_t> gain = {0x3F80, 0xC000}, half = {0x3C00};
  const std::vector<int64_t> step = {int64_t{1} << 40};
  const std::vector<int32_t> none;
  const std::vector<double> scalar = {0.1};
  write_safetensors(path,
                    {{"state", Type::u8, {3}, raw(state)},
                     {"weight \"q\"", Type::f32, {2, 3}, raw(weight)},
                     {"gain", Type::bf16, {2}, raw(gain)},
                     {"half", Type::f16, {1}, raw(half)},
                     {"step", Type::i64, {1}, raw(step)},
                     {"none", Type::i32, {0, 4}, raw(none)},
                     {"scalar", Type::f64, {}, raw(scalar)}},
                    {{"format", "pt"}, {"note", "line\nbreak"}});
}

TEST(Safetensors, WritesTheStoredFileThatPythonReads) {
  const Folder folder;
  write_sample(folder / "sample.safetensors");
  EXPECT_EQ(read_text(folder / "sample.safetensors", "test"), read_text(beside / "ours.safetensors", "test"));
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const Folder folder;
  write_sample(folder / "sample.safetensors");
  const SafetensorsFile file(folder / "sample.safetensors");
  EXPECT_EQ(file.entries().size(), 7u);
  EXPECT_EQ(file.metadata().at("note"), "line\nbreak");
  EXPECT_EQ(values<float>(file, "weight \"q\""), (std::vector<float>{0.5f, -1.0f, 2.0f, 3.25f, 0.0f, 0.0f}));
  EXPECT_EQ(file.entries().at("weight \"q\"").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values<int64_t>(file, "step"), std::vector<int64_t>{int64_t{1} << 40});
  EXPECT_EQ(values<double>(file, "scalar"), std::vector<double>{0.1});
  EXPECT_TRUE(file.entries().at("scalar").shape.empty());
  EXPECT_EQ(file.bytes(file.entries().at("none")).size(), 0u);
  EXPECT_EQ(file.entries().at("gain").type, Type::bf16);
}

TEST(Safetensors, AlignsEveryTensorToItsElements) {
  const Folder folder;
  write_sample(folder / "sample.safetensors");
  const SafetensorsFile file(folder / "sample.safetensors");
  for (const auto& [name, entry] : file.entries()) {
    const auto address = reinterpret_cast<uintptr_t>(file.bytes(entry).data());
    EXPECT_EQ(address % type_bytes(entry.type), 0u) << name;
  }
  const auto first = reinterpret_cast<uintptr_t>(file.bytes(file.entries().at("step")).data());
  EXPECT_EQ(first % 64, 0u);
}

TEST(Safetensors, ReadsAFileThatPythonWrote) {
  const SafetensorsFile file(beside / "theirs.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(values<float>(file, "weight"), (std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f}));
  EXPECT_EQ(file.entries().at("weight").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(values<uint16_t>(file, "gain"), (std::vector<uint16_t>{0x3F80, 0xC000}));
  EXPECT_EQ(values<int64_t>(file, "step"), std::vector<int64_t>{7});
  EXPECT_EQ(file.entries().at("none").shape, (std::vector<int64_t>{0, 4}));
}

TEST(Safetensors, KeepsAFileWithoutTensors) {
  const Folder folder;
  write_safetensors(folder / "empty.safetensors", {}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "empty.safetensors").entries().empty());
}

TEST(Safetensors, RefusesToWriteWhatItWouldNotRead) {
  const Folder folder;
  const std::vector<float> one = {1.0f};
  const View view{"a", Type::f32, {1}, raw(one)};
  const View wrong{"b", Type::f32, {2}, raw(one)};
  const View reserved{"__metadata__", Type::f32, {1}, raw(one)};
  EXPECT_THROW(write_safetensors(folder / "x", {view, view}, {}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "x", {wrong}, {}), std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "x", {reserved}, {}), std::invalid_argument);
  EXPECT_THAT(message_of([&] {
                write_safetensors(folder / "x", {view}, {{"run", "\xFF"}});
              }),
              HasSubstr("wanted names and metadata in UTF-8"));
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(SafetensorsFaults, MissingAndForeignFiles) {
  const Folder folder;
  EXPECT_THAT(message_of([&] { SafetensorsFile file(folder / "absent.safetensors"); }),
              HasSubstr("absent.safetensors"));
  EXPECT_THAT(fault_of_bytes(""), HasSubstr("wanted a safetensors file, got a file of 0 bytes"));
  EXPECT_THAT(fault_of_bytes("1234567"), HasSubstr("got a file of 7 bytes"));
  EXPECT_THAT(fault_of_bytes("PK\x03\x04 a zip archive"), HasSubstr("got a file that does not begin like one"));
  EXPECT_THAT(fault_of_bytes(std::string(8, '\xFF')), HasSubstr("does not begin like one"));
  EXPECT_THAT(fault_of_bytes(file_of("", 0)), HasSubstr("wanted a header that begins with {"));
  EXPECT_THAT(fault_of_bytes(file_of("\xEF\xBB\xBF{}", 0)), HasSubstr("wanted a header that begins with {"));
  EXPECT_THAT(fault_of_bytes(file_of("{\"a\":", 0)), HasSubstr("broken JSON at byte"));
  EXPECT_THAT(fault_of_bytes(file_of("{\"a\xFF\":1}", 0)), HasSubstr("broken JSON at byte"));
  EXPECT_THAT(fault_of_bytes(file_of("{} {}", 0)), HasSubstr("broken JSON at byte"));
}

TEST(SafetensorsFaults, TruncatedFiles) {
  const Folder folder;
  write_sample(folder / "x.safetensors");
  const std::string whole = read_text(folder / "x.safetensors", "test");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(fault_of_bytes(whole.substr(0, size)), HasSubstr("read safetensors: x.safetensors")) << size;
  }
  EXPECT_THAT(fault_of_bytes(whole.substr(0, 20)), HasSubstr("got a file that ends after 12 of them"));
  EXPECT_THAT(fault_of_bytes(whole.substr(0, whole.size() - 1)), HasSubstr("got a file that ends after"));
  EXPECT_THAT(fault_of_bytes(whole + "x"), HasSubstr("bytes after the header"));
}

TEST(SafetensorsFaults, BadHeaders) {
  struct Case {
    const char* header;
    const char* message;
  };
  const Case cases[] = {
      {R"({"a":1})", "tensor 'a': wanted an object with dtype, shape and data_offsets, got number"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "wanted dtype, shape and data_offsets, got 2 of them"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "alone, got 'x'"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "got 'F8_E4M3'"},
      {R"({"a":{"dtype":5,"shape":[4],"data_offsets":[0,4]}})", "wanted a type name, got number"},
      {R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", "wanted a shape list, got number"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "wanted whole extents of 0 or more, got -1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "wanted whole extents of 0 or more, got 1.0"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "wanted whole extents"},
      {R"({"a":{"dtype":"F32","shape":[1e99999],"data_offsets":[0,4]}})", "wanted JSON"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       "wanted a shape that fits memory"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})",
       "wanted a shape that fits memory"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       "wanted 8 bytes for F32 [2], got data_offsets 0 to 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "got data_offsets 4 to 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "wanted whole byte offsets of 0 or more"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "wanted two data_offsets, got 3"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551616]}})",
       "wanted whole byte"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})",
       "a hole: from"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       "tensor 'b': wanted tensor bytes from 4, got an overlap: from 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "tensor 'b': wanted tensor bytes from 1, got a hole: from 2"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "wanted 8 bytes of tensors, got a file that ends after 4"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       "wanted 2 bytes of tensors, got 4 bytes after the header"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "wanted every name once, got 'a' twice"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "wanted at most 3 levels of nesting"},
      {R"({"__metadata__":[1]})", "wanted an object of texts, got array"},
      {R"({"__metadata__":{"x":1}})", "wanted a text for 'x', got number"},
  };
  for (const Case& c : cases) EXPECT_THAT(fault_of_bytes(file_of(c.header, 4)), HasSubstr(c.message)) << c.header;
}

TEST(SafetensorsFaults, DeepNestingAndLongNamesStaySmall) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1000000; ++i) deep += '[';
  EXPECT_THAT(fault_of_bytes(file_of(deep, 0)), HasSubstr("levels of nesting"));
  const std::string fault = fault_of_bytes(file_of("{\"" + std::string(100000, 'n') + "\":1}", 0));
  EXPECT_THAT(fault, HasSubstr("nnn...'"));
  EXPECT_LT(fault.size(), 400u);
}

TEST(SafetensorsFaults, EmptyExtentHidesNoOverflow) {
  // An extent of 0 makes the tensor empty even where the others would overflow.
  const std::string empty = R"({"a":{"dtype":"F32","shape":[4611686018427387904,0,8],"data_offsets":[0,0]}})";
  EXPECT_EQ(fault_of_bytes(file_of(empty, 0)), "");
}

}  // namespace
}  // namespace mhar::checkpoint
