#include "data/token_shards.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "data/token_file.h"

namespace train_gpt {
namespace {

constexpr std::int64_t kLargestNarrowVocab = 65536;

int width_of(const Manifest& manifest) { return manifest.vocab <= kLargestNarrowVocab ? 2 : 4; }

std::span<const char> as_bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

}  // namespace

TokenShards::TokenShards(ShardSettings settings, ShardState from)
    : settings_(std::move(settings)), state_(std::move(from)) {
  for (std::int64_t shard = 0; shard < state_.shard; ++shard) files_.push_back(path_of(shard));
}

std::string TokenShards::path_of(std::int64_t shard) const {
  if (settings_.shard_tokens == 0) return settings_.path;
  std::string number = std::to_string(shard);
  number.insert(0, number.size() < 6 ? 6 - number.size() : 0, '0');
  std::filesystem::path path = settings_.path;
  return path.replace_filename(path.stem().string() + "-" + number + path.extension().string()).string();
}

void TokenShards::open() {
  if (file_) return;
  const std::int64_t bytes = state_.tokens > 0 ? kTokenHeaderBytes + state_.tokens * width_of(settings_.manifest) : 0;
  file_.emplace(path_of(state_.shard), bytes);
  if (bytes > 0) return;
  const std::vector<char> room_for_header(static_cast<std::size_t>(kTokenHeaderBytes));
  file_->append(room_for_header);
}

void TokenShards::begin_document(const std::string& file) {
  append_ids({std::array<std::int32_t, 1>{static_cast<std::int32_t>(settings_.manifest.end_of_text)}});
  document_file_ = file;
}

void TokenShards::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    const std::int64_t room = settings_.shard_tokens > 0 ? settings_.shard_tokens - state_.tokens : kMaxTokensPerFile;
    if (room == 0) {
      close_shard();
      continue;
    }
    const auto part = ids.first(std::min(ids.size(), static_cast<std::size_t>(room)));
    std::vector<Manifest::Document>& documents = state_.documents;
    if (documents.empty() || documents.back().file != document_file_) {
      documents.push_back({document_file_, state_.tokens, 0});
    }
    append_ids(part);
    documents.back().tokens = state_.tokens - documents.back().first_token;
    ids = ids.subspan(part.size());
  }
}

// The `ids` fit into the shard, or there are no shards.
void TokenShards::append_ids(std::span<const std::int32_t> ids) {
  if (settings_.shard_tokens > 0 && state_.tokens == settings_.shard_tokens) close_shard();
  open();
  encoded_.clear();
  const auto width = static_cast<std::size_t>(width_of(settings_.manifest));
  for (const std::int32_t id : ids) {
    const char* bytes = reinterpret_cast<const char*>(&id);
    encoded_.insert(encoded_.end(), bytes, bytes + width);
  }
  file_->append(encoded_);
  state_.tokens += static_cast<std::int64_t>(ids.size());
  state_.total += static_cast<std::int64_t>(ids.size());
  if (state_.tokens > kMaxTokensPerFile) {
    throw std::invalid_argument("the texts make more than " + std::to_string(kMaxTokensPerFile) +
                                " tokens, the most that a token file can count; prepare several files with " +
                                "--shard-tokens and a folder as --output");
  }
}

void TokenShards::close_shard() {
  const bool narrow = width_of(settings_.manifest) == 2;
  const std::array<std::int32_t, 3> header = {narrow ? 20240520 : 20240801, narrow ? 1 : 7,
                                              static_cast<std::int32_t>(state_.tokens)};
  file_->overwrite(0, as_bytes_of(header));
  file_->flush();
  const std::string path = path_of(state_.shard);
  Manifest manifest = settings_.manifest;
  manifest.tokens = state_.tokens;
  manifest.documents = std::move(state_.documents);
  TemporaryFile manifest_file(manifest_path(path));
  manifest_file.append(manifest_text(manifest));
  manifest_file.flush();
  file_->commit();
  manifest_file.commit();
  files_.push_back(path);
  file_.reset();
  state_ = {state_.shard + 1, 0, state_.total, {}};
}

const ShardState& TokenShards::flush() {
  if (file_) file_->flush();
  return state_;
}

void TokenShards::keep() {
  if (file_) file_->keep();
}

void TokenShards::finish(const std::string& unknown) {
  settings_.manifest.unknown = unknown;
  if (state_.tokens > 0) {
    open();
    close_shard();
  }
  if (settings_.shard_tokens == 0) return;
  for (std::int64_t shard = state_.shard; std::filesystem::remove(path_of(shard)); ++shard) {
    std::filesystem::remove(manifest_path(path_of(shard)));
  }
}

}  // namespace train_gpt
