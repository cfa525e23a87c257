// A file that is cut off while it is mapped is an error with its name, not the end of the program.
#include "data/mapped_bytes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "data/documents.h"
#include "data/token_file.h"

namespace train_gpt::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPages = 5;
constexpr std::size_t kSize = kPages * 4096 + 100;

class CutOff : public testing::Test {
 protected:
  CutOff() : path_(fs::temp_directory_path() / ("train_gpt_mapped_" + std::to_string(getpid()))) {}
  ~CutOff() override { fs::remove(path_); }

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  MappedBytes map() const {
    const int file = open(path_.c_str(), O_RDONLY);
    MappedBytes mapped(file, fs::file_size(path_));
    close(file);
    return mapped;
  }

  const std::string path_;
};

TEST_F(CutOff, WhatIsGoneReadsAsZerosAndIsKnown) {
  write(std::string(kSize, 'x'));
  const MappedBytes whole = map();
  MappedBytes moved = map();
  const MappedBytes cut = std::move(moved);
  EXPECT_FALSE(moved.cut_off());
  EXPECT_EQ(std::count(cut.bytes().begin(), cut.bytes().end(), std::byte{'x'}), kSize);
  EXPECT_FALSE(cut.cut_off());
  fs::resize_file(path_, 2 * 4096 + 5);
  EXPECT_EQ(std::count(cut.bytes().begin(), cut.bytes().end(), std::byte{'x'}), 2 * 4096 + 5);
  EXPECT_TRUE(cut.cut_off());
  EXPECT_FALSE(whole.cut_off()) << "nobody has read it since";
  EXPECT_EQ(whole.bytes()[kSize - 1], std::byte{0});
  EXPECT_TRUE(whole.cut_off());
}

TEST_F(CutOff, PlacesAreTakenAgain) {
  write(std::string(kSize, 'x'));
  {
    const MappedBytes cut = map();
    fs::resize_file(path_, 10);
    EXPECT_EQ(cut.bytes()[kSize - 1], std::byte{0});
    EXPECT_TRUE(cut.cut_off());
  }
  write(std::string(kSize, 'y'));
  std::vector<MappedBytes> many;
  for (int i = 0; i < 20; ++i) many.push_back(map());
  for (const MappedBytes& one : many) {
    EXPECT_EQ(one.bytes()[kSize - 1], std::byte{'y'});
    EXPECT_FALSE(one.cut_off());
  }
}

TEST_F(CutOff, WhatCannotBeMappedIsAnError) { EXPECT_THROW(MappedBytes(-1, 10), std::system_error); }

// The message of the std::runtime_error that `read` throws.
template <class Read>
std::string trouble(const Read& read) {
  try {
    read();
  } catch (const std::invalid_argument& error) {
    return std::string("another error: ") + error.what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST_F(CutOff, TokensAreRefusedByTheNameOfTheirFile) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 20000;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  write(bytes + std::string(40000, '\1'));
  const TokenFile file(path_);
  std::vector<std::int32_t> ids(100);
  file.read(ids.data(), 19900, 100, 65536);
  EXPECT_EQ(ids[0], 257);
  fs::resize_file(path_, 5000);
  file.read(ids.data(), 0, 100, 65536);
  const std::string text = trouble([&] { file.read(ids.data(), 19900, 100, 65536); });
  EXPECT_NE(text.find("token file '" + path_ + "' was cut off"), std::string::npos) << text;
  const TokenFile* same = &file;
  EXPECT_NE(trouble([&] { same->check_ids(1000); }).find("was cut off"), std::string::npos);
}

TEST_F(CutOff, TextsToo) {
  write(std::string(kSize, 'x'));
  const MappedText text(path_);
  fs::resize_file(path_, 1);
  text.require_whole();
  EXPECT_EQ(text.text().back(), '\0');
  EXPECT_NE(trouble([&] { text.require_whole(); }).find("the text '" + path_ + "' was cut off"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt::test
