#include "data/tokenizer.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "data/byte_alphabet.h"
#include "data/learn_merges.h"
#include "data/long_text.h"
#include "data/utf8.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using Ids = std::vector<std::int32_t>;

// Learned and encoded by PyPI's `tokenizers`: see test/data/recorded/record_tokenizers.py.
const Json& recorded() {
  static const Json json = Json::parse(std::ifstream("test/data/recorded/tokenizers.json"));
  return json;
}

std::string decoded(const Tokenizer& tokenizer, const Ids& ids) {
  TextDecoder decoder(tokenizer, "<|endoftext|>");
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

Vocabulary read_recorded(const std::string& name) {
  const TemporaryFolder folder;
  write_bytes(folder / "tokenizer.json", recorded()["tokenizers"][name]["tokenizer.json"].dump());
  return read_vocabulary(folder.path().string());
}

Vocabulary learned(const std::string& text, std::int64_t size, const std::string& pattern) {
  Vocabulary bytes = byte_vocabulary();
  bytes.patterns = {pattern_named(pattern)};
  const Tokenizer cutter(bytes);
  Encoder encoder(cutter);
  PieceCounts counts;
  count_pieces(text, encoder, counts);
  return learn_vocabulary(counts, size, pattern_named(pattern));
}

class RecordedTokenizer : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Patterns, RecordedTokenizer, testing::Values("gpt2", "cl100k", "o200k", "qwen"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(RecordedTokenizer, EncodesAsTokenizersDoes) {
  const Tokenizer tokenizer(read_recorded(GetParam()));
  const Json& texts = recorded()["texts"];
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, recorded()["tokenizers"][GetParam()]["ids"][i].get<Ids>()) << text;
    EXPECT_EQ(decoded(tokenizer, ids), text);
  }
}

TEST_P(RecordedTokenizer, LearnsTheMergesThatTokenizersLearns) {
  const Json& model = recorded()["tokenizers"][GetParam()]["tokenizer.json"]["model"];
  const Vocabulary vocabulary = learned(recorded()["learn"], 400, GetParam());
  EXPECT_EQ(vocabulary.size(), 400);
  ASSERT_EQ(vocabulary.merges.size(), model["merges"].size());
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto token = [&](std::int32_t id) {
      return in_byte_alphabet(vocabulary.tokens[static_cast<std::size_t>(id)]);
    };
    const Vocabulary::Merge& merge = vocabulary.merges[i];
    EXPECT_EQ((std::vector<std::string>{token(merge.left), token(merge.right)}),
              model["merges"][i].get<std::vector<std::string>>())
        << "merge " << i;
  }
}

TEST_P(RecordedTokenizer, WritesAFileThatSaysTheSame) {
  const Tokenizer before(read_recorded(GetParam()));
  const TemporaryFolder folder;
  write_bytes(folder / "tokenizer.json", tokenizer_json(before.vocabulary()));
  const Tokenizer after(read_vocabulary(folder / "tokenizer.json"));
  for (const std::string text : recorded()["texts"]) EXPECT_EQ(after.encode(text), before.encode(text));
}

TEST(Tokenizer, ReadsGpt2sFilesUnderBothNames) {
  const Vocabulary same = read_recorded("gpt2");
  const Tokenizer expected(same);
  Json vocab = recorded()["tokenizers"]["gpt2"]["tokenizer.json"]["model"]["vocab"];
  std::string merges = "#version: 0.2\n";
  for (const Vocabulary::Merge& merge : same.merges) {
    merges += in_byte_alphabet(same.tokens[static_cast<std::size_t>(merge.left)]) + " " +
              in_byte_alphabet(same.tokens[static_cast<std::size_t>(merge.right)]) + "\n";
  }
  for (const auto& [vocab_name, merges_name] :
       {std::pair{"vocab.json", "merges.txt"}, std::pair{"encoder.json", "vocab.bpe"}}) {
    const TemporaryFolder folder;
    write_bytes(folder / vocab_name, vocab.dump());
    write_bytes(folder / merges_name, merges);
    for (const std::string& path : {folder.path().string(), folder / vocab_name, folder / merges_name}) {
      const Tokenizer tokenizer(read_vocabulary(path));
      EXPECT_EQ(tokenizer.end_of_text(), expected.end_of_text());
      for (const std::string text : recorded()["texts"]) EXPECT_EQ(tokenizer.encode(text), expected.encode(text));
    }
  }
}

// Ranks are ids: "ab" before "bc" before "abc"; "xyz" is a token that no pair makes.
TEST(Tokenizer, ReadsTiktokensLists) {
  const TemporaryFolder folder;
  const auto base64 = [](const std::string& bytes) {
    static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
      std::uint32_t bits = 0;
      for (std::size_t j = i; j < i + 3; ++j) {
        bits = bits << 8U | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
      }
      for (std::size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? digits[bits >> (18 - 6 * j) & 63U] : '=';
    }
    return text;
  };
  std::string list;
  for (int byte = 0; byte < 256; ++byte) {
    list += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  }
  for (const auto& [token, rank] : {std::pair{"ab", 256}, {"bc", 257}, {"abc", 258}, {"xyz", 259}}) {
    list += base64(token) + " " + std::to_string(rank) + "\n";
  }
  write_bytes(folder / "own.tiktoken", list);
  EXPECT_REFUSED(read_vocabulary(folder / "own.tiktoken"), "own.tiktoken", "--pattern", "cl100k");
  const Tokenizer tokenizer(read_vocabulary(folder / "own.tiktoken", "cl100k"));
  EXPECT_EQ(tokenizer.end_of_text(), 260);
  std::vector<std::array<std::int32_t, 3>> merges;
  for (const Vocabulary::Merge& merge : tokenizer.vocabulary().merges) {
    merges.push_back({merge.left, merge.right, merge.result});
  }
  EXPECT_EQ(merges, (std::vector<std::array<std::int32_t, 3>>{
                        {'a', 'b', 256}, {'b', 'c', 257}, {'a', 257, 258}, {256, 'c', 258}}));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{258}));
  EXPECT_EQ(tokenizer.encode("zabcbc"), (Ids{'z', 258, 257}));
  EXPECT_EQ(tokenizer.encode("xyz"), (Ids{259})) << "a whole piece";
  EXPECT_EQ(tokenizer.encode("wxyz"), (Ids{'w', 'x', 'y', 'z'}));

  write_bytes(folder / "cl100k_base.tiktoken", list);
  const Tokenizer known(read_vocabulary(folder / "cl100k_base.tiktoken"));
  EXPECT_EQ(known.vocabulary().patterns, (std::vector<std::string>{pattern_named("cl100k")}));
  EXPECT_EQ(known.end_of_text(), 100257) << "of the published list, which has gaps";
  for (const char* bad : {"YWI= x", "YWI=", "YW!= 5", "YWI 5", "YWI= -1", "YWI= 99999999", "YWI= 256 7"}) {
    write_bytes(folder / "own.tiktoken", list + bad + "\n");
    EXPECT_REFUSED(read_vocabulary(folder / "own.tiktoken", "gpt2"), "own.tiktoken");
  }
}

// Any bytes at all come back.
TEST(Tokenizer, RoundTripIsTheIdentityOnAnyBytes) {
  std::mt19937 random(1);
  for (const char* name : {"gpt2", "cl100k", "qwen"}) {
    const Tokenizer tokenizer(read_recorded(name));
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::string text;
      for (int i = 0; i < 400; ++i) text.push_back(static_cast<char>(random() % (repeat % 2 == 0 ? 256 : 40)));
      EXPECT_EQ(decoded(tokenizer, tokenizer.encode(text)), text);
    }
  }
}

// A tokenizer that does not cut looks at the whole line at once.
TEST(Tokenizer, ALineOfAMillionLettersTakesNoLongerThanItShould) {
  const Tokenizer tokenizer(read_recorded("gpt2"));
  std::string line(1000000, 'a');
  for (std::size_t i = 0; i < line.size(); i += 7) line[i] = static_cast<char>('a' + i % 26);
  EXPECT_EQ(decoded(tokenizer, tokenizer.encode(line)), line);
}

TEST(Tokenizer, RefusesIdsThatItDoesNotHave) {
  const Tokenizer tokenizer(read_recorded("gpt2"));
  TextDecoder decoder(tokenizer);
  EXPECT_REFUSED(decoder.push(400), "400", "0 to 399");
  EXPECT_REFUSED(decoder.push(-1), "-1");
}

// ---- long texts -----------------------------------------------------------------------------------------------------

// Segments of few bytes, so that guesses are often wrong: within words, runs of spaces, characters.
void expect_ids_of_one_thread(const std::string& text, const char* name) {
  const Tokenizer tokenizer(read_recorded(name));
  const Ids expected = tokenizer.encode(text);
  for (const std::size_t threads : {1U, 2U, 3U}) {
    for (const std::size_t segment : {1U, 2U, 7U, 64U, 100000U}) {
      std::vector<Encoder> encoders;
      for (std::size_t i = 0; i < threads; ++i) encoders.emplace_back(tokenizer);
      Ids ids;
      std::size_t bytes = 0;
      const auto take = [&](std::span<const std::int32_t> part, std::size_t part_bytes) {
        ids.insert(ids.end(), part.begin(), part.end());
        bytes += part_bytes;
      };
      encode_long_text(text, encoders, take, segment);
      EXPECT_EQ(ids, expected) << name << ", " << threads << " threads, segments of " << segment;
      EXPECT_EQ(bytes, text.size());

      PieceCounts one;
      count_pieces(text, encoders[0], one);
      std::vector<PieceCounts> counts(threads);
      count_long_text(text, encoders, counts, segment);
      for (std::size_t i = 1; i < threads; ++i) counts[0].add(counts[i]);
      EXPECT_EQ(counts[0].counts(), one.counts());
    }
  }
}

TEST(LongText, ThreadsGiveTheIdsOfOne) {
  const std::string text = recorded()["texts"][0].get<std::string>() + std::string(500, 'x') + std::string(300, ' ') +
                           "\n\n\n  \xF0\x9F\x9A\x80\xFF\xFE end <|endoftext|> more\n" + std::string(200, '\n') +
                           "tail";
  for (const char* name : {"gpt2", "cl100k", "qwen"}) expect_ids_of_one_thread(text, name);
}

// No line ends, so that segments begin within words and characters.
TEST(LongText, OneLine) {
  std::string text;
  for (int word = 0; word < 60; ++word) {
    text += std::string(static_cast<std::size_t>(word % 9), 'a') + (word % 3 == 0 ? "\u00e9\u20ac" : "") + "bc ";
  }
  for (const char* name : {"gpt2", "cl100k", "qwen"}) expect_ids_of_one_thread(text, name);
}

// ---- learning -------------------------------------------------------------------------------------------------------

// The definition: count all pairs of all pieces anew for every merge.
std::vector<std::pair<std::int32_t, std::int32_t>> plainly_learned(std::vector<std::pair<Ids, std::int64_t>> pieces,
                                                                   int merges) {
  std::vector<std::pair<std::int32_t, std::int32_t>> learned_pairs;
  for (int merge = 0; merge < merges; ++merge) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (const auto& [ids, times] : pieces) {
      for (std::size_t i = 1; i < ids.size(); ++i) counts[{ids[i - 1], ids[i]}] += times;
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end()) break;
    learned_pairs.push_back(best->first);
    for (auto& [ids, times] : pieces) {
      Ids merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool here = i + 1 < ids.size() && std::pair{ids[i], ids[i + 1]} == best->first;
        merged.push_back(here ? 256 + merge : ids[i]);
        if (here) ++i;
      }
      ids = merged;
    }
  }
  return learned_pairs;
}

TEST(LearnMerges, EqualsCountingAnewForEveryMerge) {
  std::mt19937 random(7);
  int compared = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    PieceCounts counts;
    std::vector<std::pair<Ids, std::int64_t>> pieces;
    for (int i = 0; i < 30; ++i) {
      std::string piece;
      for (auto length = 1 + random() % 12; length > 0; --length)
        piece.push_back(static_cast<char>('!' + random() % 3));
      counts.add(piece, 1 + i % 3);
    }
    for (const auto& [piece, times] : counts.counts()) {
      Ids ids;
      for (const char c : piece) ids.push_back(c - '!');  // '!' is the first letter of the alphabet
      pieces.emplace_back(ids, times);
    }
    const Vocabulary vocabulary = learn_vocabulary(counts, 257 + 12, "x");
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
    bool each_is_new = true;
    for (const Vocabulary::Merge& merge : vocabulary.merges) {
      pairs.emplace_back(merge.left, merge.right);
      each_is_new = each_is_new && merge.result == 255 + static_cast<std::int32_t>(pairs.size());
    }
    if (!each_is_new) continue;  // two pairs made the same token, which the plain counting does not know
    EXPECT_EQ(pairs, plainly_learned(pieces, 12)) << "repeat " << repeat;
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

TEST(LearnMerges, EndsWhereNoPairIsLeft) {
  const Vocabulary vocabulary = learned("ab ab", 1000, "gpt2");
  EXPECT_EQ(vocabulary.size(), 256 + 2 + 1) << "'ab' and ' ab'";
  EXPECT_EQ(vocabulary.end_of_text, 258);
  EXPECT_REFUSED(learned("ab", 256, "gpt2"), "--vocab 256", "257");
}

// ---- files that are not what they should be -------------------------------------------------------------------------

TEST(TokenizerFiles, SayWhatIsNotRead) {
  const Json good = recorded()["tokenizers"]["gpt2"]["tokenizer.json"];
  const TemporaryFolder folder;
  const auto refused = [&](const std::function<void(Json&)>& change, const std::vector<std::string>& parts) {
    Json bad = good;
    change(bad);
    write_bytes(folder / "tokenizer.json", bad.dump());
    try {
      read_vocabulary(folder.path().string());
      ADD_FAILURE() << "was read: " << parts.front();
    } catch (const std::invalid_argument& error) {
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\n  lacks " << part;
      }
    }
  };
  refused([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, {"normalizer", "NFC", "null"});
  refused([](Json& j) { j["model"]["type"] = "Unigram"; }, {"Unigram", "BPE"});
  refused([](Json& j) { j["model"]["byte_fallback"] = true; }, {"byte_fallback"});
  refused([](Json& j) { j["model"]["vocab"].erase("a"); }, {"merge", "does not have"});
  refused([](Json& j) { j["model"]["vocab"].erase("\u0100"); }, {"byte 0"});
  refused([](Json& j) { j["model"]["vocab"]["a"] = 2000000000; }, {"2000000000"});
  refused([](Json& j) { j["model"]["vocab"]["a"] = -1; }, {"-1"});
  refused([](Json& j) { j["model"]["vocab"]["a"] = "x"; }, {"whole number"});
  refused([](Json& j) { j["model"]["merges"][3] = "ab"; }, {"merge 3"});
  refused([](Json& j) { j["model"]["merges"] = 5; }, {"merges"});
  refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, {"Metaspace", "ByteLevel"});
  refused([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, {"add_prefix_space", "false"});
  refused([](Json& j) { j["pre_tokenizer"] = nullptr; }, {"pre_tokenizer"});
  refused(
      [](Json& j) {
        j["pre_tokenizer"] = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(["}}}};
      },
      {"pattern", "(["});
  refused([](Json& j) { j["added_tokens"] = Json::array(); }, {"<|endoftext|>"});
  refused([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }, {"lstrip", "<|endoftext|>"});
  EXPECT_REFUSED(read_vocabulary(folder / "nothing"), "--tokenizer", folder / "nothing", "no file");
  std::filesystem::create_directory(folder / "empty");
  EXPECT_REFUSED(read_vocabulary(folder / "empty"), "--tokenizer", folder / "empty", "tokenizer.json");
}

// Cut off anywhere, or with any byte changed, a file is read or refused; nothing else happens.
TEST(TokenizerFiles, DamagedOnesAreRefusedOrRead) {
  const TemporaryFolder folder;
  const std::string good = tokenizer_json(read_recorded("qwen"));
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    if (i % 3 == 0) bad.resize(random() % bad.size());
    for (int change = 0; change < i % 3; ++change) bad[random() % bad.size()] = static_cast<char>(random() % 256);
    write_bytes(folder / "tokenizer.json", bad);
    try {
      Tokenizer(read_vocabulary(folder / "tokenizer.json")).encode("some text");
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

TEST(Utf8, EveryCodePointAndNothingElse) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(text, c);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(utf8_character(text), surrogate ? 0 : text.size()) << static_cast<unsigned>(c);
    ASSERT_TRUE(surrogate || code_point(text) == c);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(utf8_may_begin(text.substr(0, cut)), !surrogate || cut == 1) << static_cast<unsigned>(c);
      ASSERT_EQ(utf8_character(text.substr(0, cut)), 0U);
    }
  }
  for (const char* bad : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\x80"}) {
    EXPECT_EQ(utf8_character(bad), 0U);
  }
  EXPECT_EQ(utf8_prefix("12345678caf\xC3\xA9\xFFx"), 13U);
}

TEST(ByteAlphabet, IsGpt2s) {
  EXPECT_EQ(in_byte_alphabet("\n a\xE4\xAD"), "\u010A\u0120a\u00E4\u0143");
  EXPECT_EQ(from_byte_alphabet("\u010A\u0120a\u00E4\u0143"), "\n a\xE4\xAD");
  EXPECT_EQ(from_byte_alphabet("a b"), "a b") << "a space is no letter: the text stands for itself";
}

}  // namespace
}  // namespace train_gpt
