#include "pipeline/measure/records_file.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace train_gpt {
namespace {

constexpr std::string_view kMagic = "tgptrec1";

template <class Value>
void append(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::int64_t slot_bytes_of(const std::vector<std::int64_t>& numbers) {
  std::int64_t bytes = sizeof(std::int64_t) + sizeof(double);
  for (const std::int64_t count : numbers) bytes += static_cast<std::int64_t>(sizeof(double) + count * sizeof(float));
  return bytes;
}

// Reads values one after the other out of a file's bytes.
class Reader {
 public:
  Reader(const std::string& path, const std::string& bytes) : path_(path), bytes_(bytes) {}

  template <class Value>
  Value value() {
    Value result;
    std::memcpy(&result, take(sizeof result), sizeof result);
    return result;
  }
  const char* take(std::size_t count) {
    if (count > left()) refuse("ends too early");
    const char* at = bytes_.data() + at_;
    at_ += count;
    return at;
  }
  std::size_t left() const { return bytes_.size() - at_; }
  [[noreturn]] void refuse(const std::string& what) const { throw std::invalid_argument(path_ + " " + what); }

 private:
  const std::string& path_;
  const std::string& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

RecordsWriter::RecordsWriter(const std::string& path, const std::string& header,
                             const std::vector<std::int64_t>& numbers, std::int64_t most_bytes)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc), slot_bytes_(slot_bytes_of(numbers)) {
  std::string start(kMagic);
  append(start, static_cast<std::uint64_t>(header.size()));
  append(start, static_cast<std::uint64_t>(numbers.size()));
  for (const std::int64_t count : numbers) append(start, static_cast<std::uint64_t>(count));
  start += header;
  first_ = static_cast<std::int64_t>(start.size());
  slots_ = std::max<std::int64_t>(1, (most_bytes - first_) / slot_bytes_);
  file_ << start;
  flush();
}

void RecordsWriter::write(const StepRecord& record) {
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(slot_bytes_));
  append(bytes, record.step);
  append(bytes, record.ms);
  for (const StepRecord::Rank& rank : record.ranks) {
    append(bytes, rank.base);
    bytes.append(reinterpret_cast<const char*>(rank.numbers.data()), rank.numbers.size() * sizeof(float));
  }
  if (static_cast<std::int64_t>(bytes.size()) != slot_bytes_) throw std::logic_error("a step that is not of its run");
  file_.seekp(first_ + written_++ % slots_ * slot_bytes_);
  file_ << bytes;
}

void RecordsWriter::flush() {
  file_.flush();
  if (!file_) throw std::runtime_error(path_ + " cannot be written; is the disk full?");
}

Records read_records(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument(path + " cannot be read: give the folder of a training run");
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  Reader reader(path, bytes);
  if (reader.left() < kMagic.size() || std::string_view(reader.take(kMagic.size()), kMagic.size()) != kMagic)
    reader.refuse("is no record of a run's steps");
  const auto header_bytes = reader.value<std::uint64_t>();
  const auto ranks = reader.value<std::uint64_t>();
  if (ranks == 0 || ranks > reader.left() / sizeof(std::uint64_t)) reader.refuse("ends too early");
  std::vector<std::int64_t> numbers;
  for (std::uint64_t r = 0; r < ranks; ++r) {
    const auto count = reader.value<std::uint64_t>();
    if (count > bytes.size()) reader.refuse("ends too early");
    numbers.push_back(static_cast<std::int64_t>(count));
  }
  Records records;
  records.header.assign(reader.take(header_bytes), header_bytes);
  const auto slot_bytes = static_cast<std::size_t>(slot_bytes_of(numbers));
  while (reader.left() >= slot_bytes) {  // the rest was being written
    StepRecord record;
    record.step = reader.value<std::int64_t>();
    record.ms = reader.value<double>();
    for (const std::int64_t count : numbers) {
      StepRecord::Rank& rank = record.ranks.emplace_back();
      rank.base = reader.value<double>();
      rank.numbers.resize(static_cast<std::size_t>(count));
      std::memcpy(rank.numbers.data(), reader.take(rank.numbers.size() * sizeof(float)),
                  rank.numbers.size() * sizeof(float));
    }
    records.steps.push_back(std::move(record));
  }
  std::stable_sort(records.steps.begin(), records.steps.end(),
                   [](const StepRecord& a, const StepRecord& b) { return a.step < b.step; });
  return records;
}

}  // namespace train_gpt
