// Files of others, damaged at random: what is read may be refused, in words that name the file, or be used as it is. It
// never ends the program, takes memory that the file does not have, or makes a tokenizer that changes text.
#include <sys/resource.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/documents.h"
#include "data/manifest.h"
#include "data/multiple_choice.h"
#include "data/tokenizer.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

constexpr int kDamages = 150;  // of each kind of file
constexpr std::size_t kLongestMessage = 600;

// Memory of this process may grow by 256 MiB: a number in a file must not decide what is allocated.
class LittleMemory {
 public:
  LittleMemory() {
#ifndef __SANITIZE_ADDRESS__
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    const rlimit limit = {pages * 4096 + (rlim_t{256} << 20), before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
#endif
  }
  ~LittleMemory() {
#ifndef __SANITIZE_ADDRESS__
    setrlimit(RLIMIT_AS, &before_);
#endif
  }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

 private:
  rlimit before_{};
};

// One to three of: a byte that is another, bytes left out, doubled or put in, the end cut off.
std::string damaged(std::string text, std::mt19937& random) {
  const std::vector<std::string> odd = {"[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        "\\u0000",
                                        "\\ud800",
                                        "-1",
                                        "5e",
                                        "null",
                                        "\n",
                                        "\xFF\xFE",
                                        "4294967296",
                                        "9223372036854775807",
                                        "==",
                                        " ",
                                        "1e400",
                                        std::string(1, '\0'),
                                        std::string(5000, '['),
                                        std::string(3000, 'Q')};
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t times = 1 + below(3); times > 0; --times) {
    const std::size_t at = below(text.size());
    const std::size_t length = below(std::min<std::size_t>(60, text.size() - at));
    switch (below(6)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, odd[below(odd.size())]);
        break;
      case 4:
        text.replace(at, length, odd[below(odd.size())]);
        break;
      default:
        if (below(4) == 0) text.resize(at);
    }
  }
  return text;
}

// Damages `good` again and again, writes it to `path` and calls `use`. Some damage must be refused, or nothing was
// read.
void use_damaged(const std::string& good, const std::string& path, const std::function<void()>& use) {
  std::mt19937 random(static_cast<unsigned>(good.size()));
  const std::string name = std::filesystem::path(path).parent_path();  // or of the file beside it
  int refused = 0;
  for (int i = 0; i < kDamages; ++i) {
    const std::string text = damaged(good, random);
    write_bytes(path, text);
    try {
      const LittleMemory little;
      use();
    } catch (const std::invalid_argument& error) {
      ++refused;
      const std::string message = error.what();
      EXPECT_NE(message.find(name), std::string::npos) << message.substr(0, 2000);
      EXPECT_LT(message.size(), kLongestMessage + path.size()) << message.substr(0, 2000);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "damage " << i << ": " << error.what() << "\n" << text.substr(0, 3000);
    }
  }
  EXPECT_GT(refused, kDamages / 10);
  EXPECT_LT(refused, kDamages) << "no damage was harmless";
}

const Json& recorded(const char* name) {
  static const Json json = Json::parse(std::ifstream("test/data/recorded/tokenizers.json"));
  return json["tokenizers"][name]["tokenizer.json"];
}

// A vocabulary that was accepted keeps all text.
void expect_identity(const std::string& path, const std::string& pattern = "") {
  const Tokenizer tokenizer(read_vocabulary(path, pattern));
  for (const std::string text :
       {"The cats' mats, they're 12345.\r\n\n  na\xC3\xAFve \xF0\x9F\x9A\x80", "\xFF\x00 \xE2\x28"}) {
    TextDecoder decoder(tokenizer, "<|endoftext|>");
    std::string back;
    for (const std::int32_t id : tokenizer.encode(text)) back += decoder.push(id);
    EXPECT_EQ(back + decoder.finish(), text);
  }
}

TEST(DamagedFiles, TokenizerJson) {
  const TemporaryFolder folder;
  for (const char* name : {"gpt2", "o200k"}) {
    use_damaged(recorded(name).dump(1), folder / "tokenizer.json", [&] { expect_identity(folder / "tokenizer.json"); });
  }
}

TEST(DamagedFiles, Gpt2sTwoFiles) {
  const TemporaryFolder folder;
  const Json& model = recorded("gpt2")["model"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  write_bytes(folder / "merges.txt", merges);
  use_damaged(model["vocab"].dump(), folder / "vocab.json", [&] { expect_identity(folder / "vocab.json"); });
  write_bytes(folder / "vocab.json", model["vocab"].dump());
  use_damaged(merges, folder / "merges.txt", [&] { expect_identity(folder / "vocab.json"); });
}

TEST(DamagedFiles, TiktokenList) {
  const TemporaryFolder folder;
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string list;
  for (unsigned byte = 0; byte < 256; ++byte) {
    list += {digits[byte >> 2], digits[(byte & 3) << 4], '=', '='};
    list += " " + std::to_string(byte) + "\n";
  }
  list += "YWI= 256\nYmM= 257\nYWJj 258\n";
  use_damaged(list, folder / "a.tiktoken", [&] { expect_identity(folder / "a.tiktoken", "cl100k"); });
  // A token of a million bytes would take a million million steps to take apart.
  write_bytes(folder / "a.tiktoken", list + std::string(1000000, 'Q') + " 259\n");
  EXPECT_REFUSED(read_vocabulary(folder / "a.tiktoken", "cl100k"), "a.tiktoken", "line 260", "750000 bytes");
}

TEST(DamagedFiles, Rows) {
  const TemporaryFolder folder;
  const std::string rows =
      "{\"id\": 17, \"text\": \"th\\u00e9 \\ud83d\\ude80\", \"meta\": {\"text\": [1, 2.5e3, true, null]}}\n"
      "\n"
      "{\"text\": \"four\", \"x\": [1, {}]}\r\n"
      "{\"text\": \"\\\"quoted\\\" \xC3\xBC\"}\n";
  use_damaged(rows, folder / "rows.jsonl", [&] {
    const std::vector<std::string> files = {folder / "rows.jsonl"};
    DocumentReader reader(files, {});
    std::string row;
    for (Document document; reader.next(document);) reader.text_of(document, row);
  });
}

TEST(DamagedFiles, Manifest) {
  const TemporaryFolder folder;
  test::write_tokens(folder / "a.bin", test::counting(13));
  const auto manifest = [](const std::string& tokens) {
    return "{\"format\": \"train_gpt token manifest\", \"version\": 1, \"tokenizer\": \"bytes\", \"vocabulary\": 257, "
           "\"end_of_text\": 256,\n \"tokens\": " +
           tokens + ", \"documents\": [{\"file\": \"a.txt\", \"first_token\": 1, \"tokens\": 12}]}\n";
  };
  use_damaged(manifest("13"), folder / "a.bin.json", [&] { read_manifest(folder / "a.bin"); });
  write_bytes(folder / "a.bin.json", manifest(std::string(200000, '[') + std::string(200000, ']')));
  EXPECT_REFUSED(read_manifest(folder / "a.bin"), "a.bin.json", "no whole number: array");
}

TEST(DamagedFiles, Questions) {
  const TemporaryFolder folder;
  const std::string rows =
      "{\"ctx\": \"The cat sat on the\", \"endings\": [\"mat.\", \"moon.\"], \"label\": 0}\n"
      "{\"context\": \"Two and two are\", \"endings\": [\"five\", \"four\", \"\\u00e9\"], \"label\": \"1\"}\n";
  use_damaged(rows, folder / "questions.jsonl", [&] { read_questions(folder / "questions.jsonl"); });
  // Labels that are shown must not be followed to their depth, nor long rows repeated.
  write_bytes(folder / "questions.jsonl", R"({"ctx": "a", "endings": ["b", "c"], "label": )" +
                                              std::string(200000, '[') + std::string(200000, ']') + "}");
  EXPECT_REFUSED(read_questions(folder / "questions.jsonl"), "questions.jsonl", "line 1", "label");
}

}  // namespace
}  // namespace train_gpt
