#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/normal_numbers.h"
#include "test/golden_formula.h"
#include "test/model/temporary_folder.h"

using namespace train_gpt;

namespace {

ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 3;
  config.heads = 2;
  config.hidden = 24;
  config.vocab = 50000;  // wte is more than one piece
  config.max_seq_len = 9;
  config.tied = tied;
  return config;
}

struct Rank {
  ArenaLayout layout;
  std::vector<float> values;
};

std::vector<Rank> cut_into_ranks(const ModelConfig& config, const std::vector<int>& cut) {
  std::vector<Rank> ranks;
  auto first = std::ptrdiff_t{0};
  for (const int units : cut) {
    std::vector<bool> held(static_cast<std::size_t>(unit_count(config)));
    std::fill_n(held.begin() + first, units, true);
    first += units;
    Rank rank;
    rank.layout = arena_layout(config, held);
    rank.values.assign(static_cast<std::size_t>(rank.layout.elements), std::numeric_limits<float>::quiet_NaN());
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

void write_by(Device& device, const std::string& path, const ModelConfig& config, Precision precision,
              const std::vector<int>& cut) {
  create_model_file(path, config, precision);
  for (Rank& rank : cut_into_ranks(config, cut)) {
    initialise_arena(device, rank.values.data(), config, rank.layout, 5);
    write_model_tensors(device, path, config, precision, rank.layout, rank.values.data());
  }
  publish(path);
}

TEST(ModelFile, GoldenFileIsReadAndWrittenByteForByte) {
  const TemporaryFolder folder;
  const std::vector<char> bytes = golden::checkpoint();
  const ModelFile file(folder.write("golden.bin", bytes));
  const ModelConfig expected = {.layers = 4, .heads = 4, .hidden = 64, .vocab = 1009, .max_seq_len = 64, .tied = true};
  EXPECT_EQ(file.config(), expected);
  EXPECT_EQ(file.precision(), Precision::fp32);

  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::string copy = folder.file("copy.bin");
  create_model_file(copy, file.config(), Precision::fp32);
  for (Rank& rank : cut_into_ranks(file.config(), {3, 4, 3})) {
    file.read_arena(*device, rank.values.data(), rank.layout);
    write_model_tensors(*device, copy, file.config(), Precision::fp32, rank.layout, rank.values.data());
  }
  EXPECT_FALSE(std::filesystem::exists(copy)) << "visible before it is whole";
  publish(copy);
  EXPECT_EQ(read_bytes(copy), bytes);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(copy)));
}

TEST(ModelFile, AnyPartitionWritesAndReadsTheSame) {
  const TemporaryFolder folder;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  for (const bool tied : {true, false})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const ModelConfig config = small_model(tied);
      write_by(*device, folder.file("a"), config, precision, {8});
      write_by(*device, folder.file("b"), config, precision, {1, 2, 3, 2});
      const std::vector<char> bytes = read_bytes(folder.file("a"));
      EXPECT_EQ(bytes, read_bytes(folder.file("b")));
      EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), 1024 + element_count(config) * element_size(precision));

      const ModelFile file(folder.file("b"));
      EXPECT_EQ(file.config(), config);
      EXPECT_EQ(file.precision(), precision);
      const std::vector<TensorInfo> tensors = model_tensors(config);
      for (Rank& rank : cut_into_ranks(config, {4, 1, 3})) {
        file.read_arena(*device, rank.values.data(), rank.layout);
        for (const ArenaLayout::Entry& entry : rank.layout.entries) {
          const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
          std::vector<float> expected(static_cast<std::size_t>(tensor.elements));
          initialise(expected.data(), config, tensor, 5);
          if (precision == Precision::bf16)
            for (float& value : expected) value = from_bf16(to_bf16(value));
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), rank.values.begin() + entry.offset)) << tensor.name;
        }
      }
    }
}

TEST(ModelFile, PaddingRowsReadAsZero) {
  const TemporaryFolder folder;
  std::vector<char> bytes = golden::checkpoint();
  const float junk = 3;
  const std::size_t padding_row = 1024 + 1009 * 64 * 4;
  std::memcpy(&bytes[padding_row], &junk, sizeof junk);
  const ModelFile file(folder.write("junk.bin", bytes));
  std::vector<float> wte(1024 * 64);
  file.read(wte.data(), model_tensors(file.config()).front(), 0, 1024 * 64);
  EXPECT_EQ(wte[1009 * 64], 0);
  EXPECT_NE(wte[1009 * 64 - 1], 0);
}

TEST(ModelFile, AnInterruptedWriteDoesNotHurtTheOldFileAndIsOverwritten) {
  const TemporaryFolder folder;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ModelConfig config = small_model(true);
  const std::string path = folder.file("model.bin");
  write_by(*device, path, config, Precision::fp32, {8});
  const std::vector<char> before = read_bytes(path);
  create_model_file(path, config, Precision::bf16);  // and then the job ended
  EXPECT_EQ(read_bytes(path), before);
  write_by(*device, path, config, Precision::fp32, {4, 4});
  EXPECT_EQ(read_bytes(path), before);
}

// Every refusal names the file, the value found and what would be right.
TEST(ModelFile, BadFilesAreRefused) {
  const TemporaryFolder folder;
  const std::vector<char> good = golden::checkpoint();
  const auto refusal = [&](const std::vector<char>& bytes) {
    const std::string path = folder.write("bad.bin", bytes);
    try {
      const ModelFile file(path);
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()).find(path), 0U) << error.what();
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto with = [&](std::size_t index, std::int32_t value) {
    std::vector<char> bytes = good;
    std::memcpy(&bytes[4 * index], &value, 4);
    return bytes;
  };
  const auto expect = [&](const std::vector<char>& bytes, const std::vector<std::string>& parts) {
    const std::string text = refusal(bytes);
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  };
  EXPECT_EQ(refusal(good), "accepted");
  expect({}, {"empty"});
  expect(std::vector<char>(good.begin(), good.begin() + 1023), {"1023 bytes", "1024"});
  expect(std::vector<char>(good.begin(), good.end() - 1), {"1079807 bytes", "1079808", "cut off"});
  std::vector<char> longer = good;
  longer.push_back(0);
  expect(longer, {"1079809 bytes", "1079808", "appended"});
  expect(with(0, 20240520), {"token file", "20240326"});
  expect(with(0, static_cast<std::int32_t>(__builtin_bswap32(20240326))), {"big-endian"});
  expect(with(0, 7), {"number 7", "20240326"});
  expect(with(1, 1), {"version 1", "export the model again"});
  expect(with(1, 4), {"version 4", "3 (fp32) and 5 (bf16)"});
  expect(with(1, 5), {"1079808 bytes", "540416"});
  expect(with(5, 7), {"--heads 7", "--heads 4 or 8"});
  expect(with(4, 0), {"--layers 0", "at least 1"});
  expect(with(6, -64), {"--hidden -64"});
  expect(with(4, 2000000000), {"--layers 2000000000"});
  expect(with(7, 1009), {"1009", "must be 1024"});
  expect(with(8, 2), {"number 8 is 2", "0 (tied) or 1 (untied)"});
  expect(with(8, 1), {"1079808 bytes"});
  expect(with(2, 65), {"1079808 bytes", "1080064"});
  try {
    const ModelFile file(folder.file("absent.bin"));
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("absent.bin: cannot open the file: No such file"), std::string::npos);
  }
  try {
    const ModelFile file(folder.file("."));
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("neither model.bin nor model.safetensors"), std::string::npos)
        << error.what();
  }
}

TEST(ModelFile, FailuresWhileWritingNameTheFile) {
  const TemporaryFolder folder;
  const auto expect = [](const auto& call, const std::string& part) {
    try {
      call();
      FAIL() << "accepted";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect([&] { create_model_file(folder.file("no/such/folder.bin"), small_model(true), Precision::fp32); },
         "no/such/folder.bin.tmp: cannot create the file: No such file");
  expect([&] { RangeFile file(folder.file("none")); }, "none: cannot open the file for writing");
  expect([&] { publish(folder.file("none")); }, "none.tmp: cannot rename");
  expect([&] { RangeFile("/dev/full").write(0, "x", 1); }, "/dev/full: cannot write");
}

TEST(RangeFile, NeverReplacesWhatIsNotARegularFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("name");
  const auto refused = [](const auto& call) {
    try {
      call();
      return std::string("accepted");
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
  };
  folder.write("other", {'x'});
  folder.write("name.tmp", {'y'});
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(refused([&] { publish(path); }).find("name: is not a regular file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder.file("other"), path);
  EXPECT_NE(refused([&] { publish(path); }).find("name: is not a regular file"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_NE(refused([&] { publish(path); }).find("name: is a directory"), std::string::npos);
  EXPECT_NE(refused([&] { create_range_file("/dev/full", 1); }).find("/dev/full"), std::string::npos);
  std::filesystem::remove(path);
  publish(path);
  EXPECT_EQ(read_bytes(path), std::vector<char>{'y'});
}

TEST(OptimizerFile, AnyPartitionWritesAndReadsTheSame) {
  const TemporaryFolder folder;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ModelConfig config = small_model(true);
  const auto write = [&](const std::string& path, const std::vector<int>& cut) {
    create_optimizer_file(path, config, OptimizerKind::adamw);
    for (Rank& rank : cut_into_ranks(config, cut)) {
      std::vector<float> second(rank.values.size());
      initialise_arena(*device, rank.values.data(), config, rank.layout, 5);
      initialise_arena(*device, second.data(), config, rank.layout, 6);
      write_moments(*device, path, config, rank.layout, rank.values.data(), second.data());
    }
    publish(path);
  };
  write(folder.file("a"), {8});
  write(folder.file("b"), {1, 2, 3, 2});
  const std::vector<char> bytes = read_bytes(folder.file("a"));
  EXPECT_EQ(bytes, read_bytes(folder.file("b")));
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), 1024 + 8 * element_count(config));

  const OptimizerFile file(folder.file("b"));
  EXPECT_EQ(file.config(), config);
  const std::vector<TensorInfo> tensors = model_tensors(config);
  for (Rank& rank : cut_into_ranks(config, {4, 1, 3})) {
    std::vector<float> second(rank.values.size());
    file.read_arenas(*device, rank.values.data(), second.data(), rank.layout);
    for (const ArenaLayout::Entry& entry : rank.layout.entries) {
      const TensorInfo& tensor = tensors[static_cast<std::size_t>(entry.tensor)];
      std::vector<float> expected(static_cast<std::size_t>(tensor.elements));
      initialise(expected.data(), config, tensor, 5);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), rank.values.begin() + entry.offset)) << tensor.name;
      initialise(expected.data(), config, tensor, 6);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), second.begin() + entry.offset)) << tensor.name;
    }
  }
  std::vector<char> cut = bytes;
  cut.resize(cut.size() - 1);
  EXPECT_THROW(OptimizerFile(folder.write("cut", cut)), std::invalid_argument);
  EXPECT_THROW(ModelFile(folder.file("a")), std::invalid_argument);
  write_by(*device, folder.file("model"), config, Precision::fp32, {8});
  EXPECT_THROW(OptimizerFile(folder.file("model")), std::invalid_argument);
}

TEST(Bf16, RoundsToNearestEven) {
  const auto rounded = [](std::uint32_t bits) { return to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(rounded(0x3F800000), 0x3F80);  // 1
  EXPECT_EQ(rounded(0x3F808000), 0x3F80);  // halfway, down to even
  EXPECT_EQ(rounded(0x3F808001), 0x3F81);  // above halfway
  EXPECT_EQ(rounded(0x3F818000), 0x3F82);  // halfway, up to even
  EXPECT_EQ(rounded(0x3F807FFF), 0x3F80);
  EXPECT_EQ(rounded(0xBF818000), 0xBF82);
  EXPECT_EQ(rounded(0x7F7FFFFF), 0x7F80);  // the largest float rounds to infinity
  EXPECT_EQ(rounded(0x7F800000), 0x7F80);
  EXPECT_EQ(rounded(0x80000000), 0x8000);
  EXPECT_EQ(rounded(0x00000001), 0x0000);
  EXPECT_TRUE(std::isnan(from_bf16(rounded(0x7F800001))));  // a NaN whose upper half looks like infinity
  EXPECT_TRUE(std::isnan(from_bf16(rounded(0xFFFFFFFF))));
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    const float value = from_bf16(static_cast<std::uint16_t>(high));
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_bf16(value), high);
  }
}

}  // namespace
