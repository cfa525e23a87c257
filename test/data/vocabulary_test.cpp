// Cutting, added tokens and the end of a text, as files of vocabularies describe them.
#include "data/vocabulary.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/prepare.h"
#include "data/temporary_file.h"
#include "data/tokenizer.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using Json = nlohmann::json;
using test::TemporaryFolder;
using test::write_bytes;
using Ids = std::vector<std::int32_t>;

class TokenizerJson : public testing::Test {
 protected:
  // The recorded one of GPT-2's pattern, changed.
  TokenizerJson() {
    root_ = Json::parse(std::ifstream("test/data/recorded/tokenizers.json"))["tokenizers"]["gpt2"]["tokenizer.json"];
  }
  Vocabulary read(const std::string& pattern = "") const {
    write_bytes(folder_ / "tokenizer.json", root_.dump());
    return read_vocabulary(folder_ / "tokenizer.json", pattern);
  }

  TemporaryFolder folder_;
  Json root_;
};

TEST_F(TokenizerJson, APatternGivenByHandTakesThePlaceOfTheFiles) {
  EXPECT_EQ(read("[a-z]+").patterns, (std::vector<std::string>{"[a-z]+"}));
  EXPECT_NE(read("[a-z]+").json.find("[a-z]+"), std::string::npos);
}

TEST_F(TokenizerJson, DigitsAloneOrTogether) {
  root_["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(read().patterns, (std::vector<std::string>{"\\p{N}"}));
  root_["pre_tokenizer"]["individual_digits"] = false;
  EXPECT_EQ(read().patterns, (std::vector<std::string>{"\\p{N}+"}));
}

// Unless it says otherwise, a ByteLevel step puts a space before the text.
TEST_F(TokenizerJson, ASpaceBeforeTheTextIsRefused) {
  root_["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", true}};
  EXPECT_REFUSED(read(), "add_prefix_space");
}

// As a regular expression "." is any letter.
TEST_F(TokenizerJson, ATextToSplitAtIsNoRegularExpression) {
  root_["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Tokenizer tokenizer(read());
  const Vocabulary::Merge first = tokenizer.vocabulary().merges.front();
  const auto token = [&](std::int32_t id) { return tokenizer.vocabulary().tokens[static_cast<std::size_t>(id)]; };
  const std::string both = token(first.left) + token(first.right);
  EXPECT_EQ(tokenizer.encode(both + "." + both).size(), 3U);
}

TEST_F(TokenizerJson, TwoTokensOfOneIdAreRefused) {
  root_["model"]["vocab"]["zzzz"] = 300;
  EXPECT_REFUSED(read(), "two tokens of id 300");
}

TEST_F(TokenizerJson, NormalizedTokensAreWrittenAsSuch) {
  Vocabulary vocabulary = read();
  for (Vocabulary::AddedToken& token : vocabulary.added) token.normalized = true;
  for (const Json& token : Json::parse(tokenizer_json(vocabulary))["added_tokens"]) {
    EXPECT_EQ(token["normalized"], true);
  }
}

TEST(AddedTokens, TheLongestIsTaken) {
  Vocabulary vocabulary = byte_vocabulary();
  for (const char* text : {"<a", "<a>", "<"}) {
    vocabulary.added.push_back({text, static_cast<std::int32_t>(vocabulary.tokens.size())});
    vocabulary.tokens.emplace_back(text);
  }
  EXPECT_EQ(Tokenizer(vocabulary).encode("x<a><a"), (Ids{'x', 258, 257}));
}

TEST(ByteLengths, TheEndOfATextHasNone) {
  const Ids lengths = Tokenizer(byte_vocabulary()).byte_lengths();
  ASSERT_EQ(lengths.size(), 257U);
  EXPECT_EQ(lengths['a'], 1);
  EXPECT_EQ(lengths[256], 0);
}

// The tenth of ten documents validates, and nothing is learned from it.
TEST(LearnFromTexts, LeavesOutWhatValidates) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 9; ++i) rows += "{\"text\": \"abab\"}\n";
  write_bytes(folder / "a.jsonl", rows + "{\"text\": \"" + std::string(200, 'z') + "\"}\n");
  PrepareRequest request;
  request.text_files = {folder / "a.jsonl"};
  request.val_fraction = 0.1;
  const Vocabulary vocabulary = learn_from_texts(request, 259, "gpt2");
  for (const std::string& token : vocabulary.tokens) EXPECT_EQ(token.find("zz"), std::string::npos) << token;
}

TEST(TemporaryFile, OfFewerBytesThanWereWrittenIsNotGoneOnWith) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.partial", "12345");
  { EXPECT_THROW(TemporaryFile(folder / "a", 6), std::runtime_error); }
  TemporaryFile whole(folder / "a", 5);
  whole.append(std::string("67"));
  whole.flush();
  whole.commit();
  EXPECT_EQ(test::read_bytes(folder / "a"), "1234567");
}

}  // namespace
}  // namespace train_gpt
