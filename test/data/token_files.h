// Token files and folders that tests make for themselves.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/refused.h"

namespace train_gpt::test {

// A folder that is gone after the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "train_gpt_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder for a test");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::string bytes(1024, '\0');
  const std::int32_t fields[3] = {magic, version, count};
  bytes.replace(0, sizeof(fields), reinterpret_cast<const char*>(fields), sizeof(fields));
  return bytes;
}

template <typename Id>
std::string body(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

inline void write_tokens(const std::string& path, const std::vector<std::uint16_t>& ids) {
  write_bytes(path, header(20240520, 1, static_cast<std::int32_t>(ids.size())) + body(ids));
}

inline void write_wide_tokens(const std::string& path, const std::vector<std::uint32_t>& ids) {
  write_bytes(path, header(20240801, 7, static_cast<std::int32_t>(ids.size())) + body(ids));
}

// 0, 1, 2, ... : a token says where it stands.
inline std::vector<std::uint16_t> counting(int count, int first = 0) {
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<std::uint16_t>(first + i));
  return ids;
}

}  // namespace train_gpt::test
