#include "model/huggingface.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "model/checkpoint.h"
#include "test/model/temporary_folder.h"
#include "test/refused.h"

using namespace train_gpt;

namespace {

namespace fs = std::filesystem;

// Saved by `transformers`: see test/model/recorded/record_gpt2.py.
constexpr const char* kRecorded = "test/model/recorded/gpt2";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string with_header(const std::string& header, const std::string& body) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + body;
}

std::vector<float> all_values(const ModelFile& model) {
  std::vector<float> values;
  for (const TensorInfo& tensor : model_tensors(model.config())) {
    std::vector<float> one(static_cast<std::size_t>(tensor.elements));
    model.read(one.data(), tensor, 0, tensor.elements);
    values.insert(values.end(), one.begin(), one.end());
  }
  return values;
}

void export_model(const ModelFile& model, const std::string& folder, const HuggingFaceSettings& settings) {
  write_huggingface(folder, model.config(), settings,
                    [&](float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) {
                      model.read(out, tensor, begin, count);
                    });
}

// Every element of the token embedding is the number of its row, everything else 0.
void export_model_of_rows(const ModelConfig& config, const std::string& folder) {
  write_huggingface(folder, config, {},
                    [&](float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) {
                      for (std::int64_t i = 0; i < count; ++i) {
                        const std::int64_t row = (tensor.offset + begin + i) / config.hidden;
                        out[i] = tensor.kind == TensorKind::wte ? static_cast<float>(row) : 0;
                      }
                    });
}

TEST(HuggingFace, ReadsWhatTransformersSaved) {
  const ModelFile model(kRecorded);
  const ModelConfig expected = {.layers = 2, .heads = 2, .hidden = 16, .vocab = 61, .max_seq_len = 16, .tied = true};
  EXPECT_EQ(model.config(), expected);
  EXPECT_EQ(model.precision(), Precision::fp32);
  const SafetensorsFolder stored(kRecorded);
  const std::vector<TensorInfo> tensors = model_tensors(expected);
  const auto ours = [&](TensorKind kind, std::int64_t layer, std::int64_t element) {
    float value = 0;
    model.read(&value, tensors[static_cast<std::size_t>(tensor_index(expected, kind, layer))], element, 1);
    return value;
  };
  const auto theirs = [&](const std::string& name, std::int64_t element) {
    float value = 0;
    stored.find("transformer." + name)->read(&value, element, 1);
    return value;
  };
  // Conv1D keeps (inputs, outputs): output 37 of input 5.
  EXPECT_EQ(ours(TensorKind::qkvw, 1, 37 * 16 + 5), theirs("h.1.attn.c_attn.weight", 5 * 48 + 37));
  EXPECT_EQ(ours(TensorKind::fcprojw, 0, 3 * 64 + 60), theirs("h.0.mlp.c_proj.weight", 60 * 16 + 3));
  EXPECT_EQ(ours(TensorKind::wte, 0, 60 * 16 + 15), theirs("wte.weight", 60 * 16 + 15));
  EXPECT_EQ(ours(TensorKind::wte, 0, 61 * 16), 0.0F) << "padding";
  EXPECT_EQ(ours(TensorKind::lnfb, 0, 7), theirs("ln_f.bias", 7));
}

TEST(HuggingFace, ThereAndBackIsTheIdentity) {
  const ModelFile model(kRecorded);
  const TemporaryFolder folder;
  const std::string file = folder.file("model.bin");
  write_model_file(file, model, Precision::fp32);
  const std::vector<float> values = all_values(model);
  EXPECT_EQ(all_values(ModelFile(file)), values);
  for (const std::int64_t shard_bytes : {0, 1, 10000}) {
    const std::string out = folder.file("out" + std::to_string(shard_bytes));
    export_model(ModelFile(file), out, {.as_bf16 = false, .shard_bytes = shard_bytes, .end_of_text = 5});
    EXPECT_EQ(fs::exists(fs::path(out) / "model.safetensors"), shard_bytes == 0);
    EXPECT_EQ(all_values(ModelFile(out)), values);
    EXPECT_EQ(ModelFile(out).config(), model.config());
    EXPECT_NE(read_file(fs::path(out) / "generation_config.json").find("\"eos_token_id\": 5"), std::string::npos);
  }
  export_model(model, folder.file("bf16"), {.as_bf16 = true, .shard_bytes = 0, .end_of_text = {}});
  const ModelFile rounded(folder.file("bf16"));
  EXPECT_EQ(rounded.precision(), Precision::bf16);
  const std::vector<float> rounded_values = all_values(rounded);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rounded_values[i], from_bf16(to_bf16(values[i])));
}

// Parts that only other programs read: the dtype, the total of an index, elements at multiples of their size.
TEST(HuggingFace, WritesWhatTheFormatSays) {
  const ModelFile model(kRecorded);
  const TemporaryFolder folder;
  export_model(model, folder.file("bf16"), {.as_bf16 = true, .shard_bytes = 0, .end_of_text = {}});
  EXPECT_NE(read_file(folder.file("bf16/config.json")).find("\"torch_dtype\": \"bfloat16\""), std::string::npos);
  export_model(model, folder.file("fp32"), {});
  EXPECT_NE(read_file(folder.file("fp32/config.json")).find("\"torch_dtype\": \"float32\""), std::string::npos);
  const std::string file = read_file(folder.file("fp32/model.safetensors"));
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  EXPECT_EQ(header % 8, 0U);

  std::int64_t total = 0;
  for (const TensorInfo& tensor : model_tensors(model.config())) {
    total += 4 * elements_before_padding(model.config(), tensor);
  }
  export_model(model, folder.file("shards"), {.as_bf16 = false, .shard_bytes = 1, .end_of_text = {}});
  EXPECT_NE(
      read_file(folder.file("shards/model.safetensors.index.json")).find("\"total_size\": " + std::to_string(total)),
      std::string::npos);
}

TEST(HuggingFace, AShardHasUpToItsLimitAndHidesNoOlderFile) {
  const TemporaryFolder folder;
  const auto write = [&](std::int64_t shard_bytes) {
    write_safetensors(folder.file(""), {{"a", {2}}, {"b", {2}}, {"c", {2}}}, /*as_bf16=*/false, shard_bytes,
                      [](std::size_t i) { return std::vector<float>(2, static_cast<float>(i)); });
  };
  write(0);
  EXPECT_TRUE(fs::exists(folder.file("model.safetensors")));
  write(16);  // two tensors fit exactly
  EXPECT_FALSE(fs::exists(folder.file("model.safetensors"))) << "readers would prefer it";
  EXPECT_TRUE(fs::exists(folder.file("model-00002-of-00002.safetensors")));
  write(15);
  EXPECT_TRUE(fs::exists(folder.file("model-00003-of-00003.safetensors")));
}

// A head of one shard and one of three, which are one matrix there.
TEST(HuggingFace, AnUntiedHeadGoesAlong) {
  for (const std::int64_t vocab : {5, 5000}) {
    const ModelConfig config = {.layers = 1, .heads = 1, .hidden = 8, .vocab = vocab, .max_seq_len = 4, .tied = false};
    const TemporaryFolder folder;
    write_huggingface(folder.file("hf"), config, {},
                      [&](float* out, const TensorInfo& tensor, std::int64_t begin, std::int64_t count) {
                        initialise_range(out, config, tensor, 9, begin, count);
                      });
    const ModelFile model(folder.file("hf"));
    EXPECT_EQ(model.config(), config);
    std::vector<float> expected;
    for (const TensorInfo& tensor : model_tensors(config)) {
      std::vector<float> one(static_cast<std::size_t>(tensor.elements));
      initialise(one.data(), config, tensor, 9);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(all_values(model), expected);
    const SafetensorsFolder stored(folder.file("hf"));
    const auto last_row = [&](const std::string& name) {
      std::vector<float> row(8);
      stored.find(name)->read(row.data(), (vocab - 1) * 8, 8);
      return row;
    };
    EXPECT_EQ(last_row("transformer.wte.weight"),
              std::vector<float>(expected.begin() + (vocab - 1) * 8, expected.begin() + vocab * 8));
    EXPECT_EQ(last_row("lm_head.weight"), std::vector<float>(expected.end() - (config.padded_vocab() - vocab + 1) * 8,
                                                             expected.end() - (config.padded_vocab() - vocab) * 8));
  }
}

// GPT-2's own vocabulary has 25 shards: rows of the file are where transformers looks for them, whatever they are here.
TEST(HuggingFace, RowsOfALargeVocabularyKeepTheirPlaces) {
  const ModelConfig config = {.layers = 1, .heads = 1, .hidden = 8, .vocab = 5000, .max_seq_len = 4};
  const TemporaryFolder folder;
  export_model_of_rows(config, folder.file("hf"));
  const SafetensorsFolder stored(folder.file("hf"));
  ASSERT_EQ(stored.find("transformer.wte.weight")->shape, (std::vector<std::int64_t>{5000, 8}));
  const ModelFile model(folder.file("hf"));
  for (const std::int64_t row : {0, 2047, 2048, 2049, 4096, 4999}) {
    float theirs = 0, ours = 0;
    stored.find("transformer.wte.weight")->read(&theirs, row * 8 + 3, 1);
    EXPECT_EQ(theirs, static_cast<float>(row));
    for (const TensorInfo& tensor : model_tensors(config)) {
      const std::int64_t element = row * 8 + 3 - (tensor.offset - model_tensors(config).front().offset);
      if (tensor.kind != TensorKind::wte || element < 0 || element >= tensor.elements) continue;
      model.read(&ours, tensor, element, 1);
      EXPECT_EQ(ours, static_cast<float>(row));
    }
  }
}

TEST(HuggingFace, SaysWhatItDoesNotCompute) {
  const TemporaryFolder folder;
  const std::string copy = folder.file("copy");
  fs::create_directory(copy);
  fs::copy(fs::path(kRecorded) / "model.safetensors", copy);
  const std::string good = read_file(fs::path(kRecorded) / "config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = good;
    config.replace(config.find(from), from.size(), to);
    write_text(copy + "/config.json", config);
    return copy;
  };
  EXPECT_REFUSED(ModelFile(with("gelu_new", "relu")), "config.json", "activation_function", "relu", "gelu_new");
  EXPECT_REFUSED(ModelFile(with("1e-05", "1e-06")), "layer_norm_epsilon", "1e-06");
  EXPECT_REFUSED(ModelFile(with("\"model_type\": \"gpt2\"", "\"model_type\": \"llama\"")), "model_type", "llama");
  EXPECT_REFUSED(ModelFile(with("\"n_inner\": null", "\"n_inner\": 50")), "n_inner", "50");
  EXPECT_REFUSED(ModelFile(with("\"n_head\": 2", "\"n_head\": 3")), "heads", "3");
  EXPECT_REFUSED(ModelFile(with("\"n_layer\": 2", "\"n_layer\": 3")), "h.2.", "3 layers");
  EXPECT_REFUSED(ModelFile(with("\"vocab_size\": 61", "\"vocab_size\": 62")), "wte.weight", "(61, 16)", "(62, 16)");
  EXPECT_REFUSED(
      ModelFile(with("\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true")),
      "scale_attn_by_inverse_layer_idx", "true");
  EXPECT_REFUSED(ModelFile(with("\"n_positions\": 16", "\"n_ctx\": 15")), "wpe.weight", "(16, 16)", "(15, 16)");
  EXPECT_REFUSED(ModelFile(with("{", "[")), "config.json", "JSON");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_REFUSED(ModelFile(with("\"n_head\": 2", "\"n_head\": " + deep)), "config.json", "n_head is array");
  EXPECT_REFUSED(ModelFile(with("\"gelu_new\"", deep)), "config.json", "activation_function is array");
  EXPECT_REFUSED(ModelFile(folder.file("")), "neither model.bin nor model.safetensors");
}

TEST(Safetensors, AnIndexNamesFilesOfItsFolderAlone) {
  const TemporaryFolder folder;
  fs::create_directory(folder.file("inner"));
  write_text(folder.file("a.safetensors"),
             with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", std::string(8, 'x')));
  write_text(folder.file("inner/model.safetensors.index.json"), R"({"weight_map": {"a": "../a.safetensors"}})");
  EXPECT_REFUSED(SafetensorsFolder(folder.file("inner")), "'a'", "no file of this folder");
}

// Nothing of a header is believed before all of it has been checked.
TEST(Safetensors, HeadersThatAreWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& file, const std::string& part) {
    write_text(folder.file("model.safetensors"), file);
    EXPECT_REFUSED(SafetensorsFolder(folder.file("")), "model.safetensors", part);
  };
  const auto one = [](const std::string& tensor) {
    return with_header("{\"a\": " + tensor + "}", std::string(8, 'x'));
  };
  refused("short", "too few");
  refused(std::string(8, '\xFF') + "{}", "header");
  refused(with_header("{\"a\": ", ""), "no JSON");
  refused(with_header("[]", ""), "no JSON object");
  refused(one("5"), "lacks");
  refused(one(R"({"dtype": "F99", "shape": [2], "data_offsets": [0, 8]})"), "F99");
  refused(one(R"({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})"), "takes 12 bytes");
  refused(one(R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})"), "-2");
  refused(one(R"({"dtype": "F32", "shape": [1.5], "data_offsets": [0, 8]})"), "1.5");
  refused(one(R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]})"), "impossible shape");
  refused(one(R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]})"), "8 to 0");
  refused(one(R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]})"), "after a hole");
  refused(one(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})"), "describes 4");
  refused(one(R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]})"), "cut off");
  refused(with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                          "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                      std::string(8, 'x')),
          "within the tensor before it");
  write_text(folder.file("model.safetensors"), one(R"({"dtype": "F16", "shape": [4], "data_offsets": [0, 8]})"));
  EXPECT_EQ(SafetensorsFolder(folder.file("")).find("a")->elements(), 4);
}

TEST(Safetensors, HalfPrecision) {
  const TemporaryFolder folder;
  const std::uint16_t bits[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x8000, 0x7C00, 0x8001};
  write_text(folder.file("model.safetensors"),
             with_header(R"({"a": {"dtype": "F16", "shape": [7], "data_offsets": [0, 14]}})",
                         {reinterpret_cast<const char*>(bits), sizeof bits}));
  float values[7];
  SafetensorsFolder(folder.file("")).find("a")->read(values, 0, 7);
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[1], -2.0F);
  EXPECT_EQ(values[2], 0x1p-24F);
  EXPECT_EQ(values[3], 65504.0F);
  EXPECT_TRUE(values[4] == 0 && std::signbit(values[4]));
  EXPECT_TRUE(std::isinf(values[5]));
  EXPECT_EQ(values[6], -0x1p-24F);
}

// Damaged in any way, a folder is read or refused.
TEST(Safetensors, DamagedFilesAreRefusedOrRead) {
  const TemporaryFolder folder;
  const std::string good = read_file(fs::path(kRecorded) / "model.safetensors");
  const std::string config = read_file(fs::path(kRecorded) / "config.json");
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bad = good;
    std::string bad_config = config;
    if (i % 4 == 0) bad.resize(random() % bad.size());
    for (int change = 0; change < i % 4; ++change) bad[random() % 2500] = static_cast<char>(random() % 256);
    if (i % 5 == 0) bad_config[random() % bad_config.size()] = static_cast<char>('0' + random() % 10);
    write_text(folder.file("model.safetensors"), bad);
    write_text(folder.file("config.json"), bad_config);
    try {
      all_values(ModelFile(folder.file("")));
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
