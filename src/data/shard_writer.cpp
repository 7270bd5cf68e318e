#include "data/shard_writer.h"

#include <algorithm>
#include <cstring>

#include "data/shard_set.h"
#include "data/token_file.h"

namespace mhar::data {
namespace {

constexpr size_t buffer_bytes = size_t{1} << 18;

}  // namespace

ShardWriter::ShardWriter(fs::path folder, std::string stem, int width, int64_t shard_tokens)
    : folder_(std::move(folder)), stem_(std::move(stem)), width_(width), shard_tokens_(shard_tokens) {}

void ShardWriter::open() {
  shards_.push_back({shard_file(stem_, static_cast<int64_t>(shards_.size())), 0, ""});
  file_ = std::make_unique<FileWriter>(folder_ / shards_.back().file);
  hash_ = std::make_unique<Hash>();
  tokens_ = 0;
  // Every count up to 2^63 gives a header of the same length, so the true one fits into this place afterwards.
  file_->write(npy_header(0, width_));
}

void ShardWriter::flush() {
  file_->write(buffer_);
  hash_->update(buffer_);
  buffer_.clear();
}

void ShardWriter::close() {
  flush();
  file_->seek(0);
  file_->write(npy_header(tokens_, width_));
  file_->close();
  file_.reset();
  shards_.back().tokens = tokens_;
  shards_.back().hash = hash_->hex();
}

void ShardWriter::append(std::span<const uint32_t> ids) {
  const auto width = static_cast<size_t>(width_);
  while (!ids.empty()) {
    if (!file_) open();
    const auto count = std::min({ids.size(), static_cast<size_t>(shard_tokens_ - tokens_), buffer_bytes / width});
    const size_t begin = buffer_.size();
    buffer_.resize(begin + count * width);
    for (size_t i = 0; i < count; ++i) std::memcpy(buffer_.data() + begin + i * width, &ids[i], width);
    ids = ids.subspan(count);
    tokens_ += static_cast<int64_t>(count);
    if (buffer_.size() >= buffer_bytes) flush();
    if (tokens_ == shard_tokens_) close();
  }
}

std::vector<Shard> ShardWriter::finish() {
  if (file_) close();
  return shards_;
}

}  // namespace mhar::data
