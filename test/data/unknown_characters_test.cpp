// Characters that PCRE2's Unicode tables do not know are noticed, wherever in a preparation they are.
#include "data/unknown_characters.h"

#include <gtest/gtest.h>

#include <charconv>

#include "data/long_text.h"
#include "data/prepare.h"
#include "data/prepare_journal.h"
#include "data/utf8.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::TemporaryFolder;
using test::write_bytes;
using Characters = std::set<char32_t>;

std::string text_of(const Characters& characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return text;
}

Characters seen_in(const std::string& text) {
  UnknownCharacters unknown;
  unknown.look_at(text);
  return unknown.seen();
}

// Nobody's in every version so far.
const Characters kNobodys = {0x378, 0x5CD, 0xEFFFD};

TEST(UnknownCharacters, AreThoseThatTheTablesDoNotKnow) {
  EXPECT_EQ(seen_in("text, caf\u00e9 \u4e2d\u6587 \U0001f680 \u0301 \u00a0\r\n\x01 \ue000 \U000f0000"), Characters{})
      << "letters, marks, control and private characters";
  EXPECT_EQ(seen_in("\uffff\ufdd0\U0010ffff"), Characters{}) << "no text has these";
  EXPECT_EQ(seen_in("eight b." + text_of(kNobodys) + "and again" + text_of(kNobodys)), kNobodys);
  // Nag Mundari came with Unicode 15.
  int version = 0;
  const std::string named = unicode_version();
  std::from_chars(named.data(), named.data() + named.size(), version);
  EXPECT_GE(version, 8) << named;
  EXPECT_EQ(seen_in("\U0001e4d0").size(), version < 15 ? 1U : 0U) << named;
}

TEST(UnknownCharacters, AreShownAsRanges) {
  EXPECT_EQ(ranges_of({}, 3), "");
  EXPECT_EQ(ranges_of({0x378}, 1), "U+0378");
  EXPECT_EQ(ranges_of({0x378, 0x379, 0x37A, 0x37F, 0x10FFF0, 0x10FFF1}, 3),
            "U+0378..U+037A, U+037F, U+10FFF0..U+10FFF1");
  EXPECT_EQ(ranges_of({0x378, 0x37A, 0x37C, 0x37E}, 3), "U+0378, U+037A, U+037C and 1 more range");
  EXPECT_EQ(ranges_of({0x378, 0x37A, 0x37C, 0x37E}, 1), "U+0378 and 3 more ranges");
}

// In training and validation parts, in short documents and in one that threads share.
TEST(UnknownCharacters, OfAllTextsAreInTheSummary) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 20; ++i) {
    files.push_back(folder / ("text" + std::to_string(i)));
    write_bytes(files.back(), "some words " + text_of({i == 7 ? 0x378U : i == 9 ? 0x5CDU : 'x'}));
  }
  files.push_back(folder / "long");
  write_bytes(files.back(), std::string(100000, 'x') + text_of({0xEFFFD}) + std::string(100000, 'x'));
  PrepareRequest request;
  request.text_files = files;
  request.train_file = folder / "train.bin";
  request.val_file = folder / "val.bin";
  request.val_fraction = 0.1;
  request.tokenizer_file = "tokenizer.json";
  request.threads = 2;
  request.batch_bytes = 1000;
  const Vocabulary learned = learn_from_texts(request, 300, pattern_named("gpt2"));
  EXPECT_EQ(prepare(request, Tokenizer(learned)).unknown.seen(), kNobodys);
  request.tokenizer_file = "bytes";
  EXPECT_EQ(prepare(request, Tokenizer(byte_vocabulary())).unknown.seen(), Characters{}) << "nothing is cut";
}

// Characters seen by an interrupted preparation stay known.
TEST(UnknownCharacters, AreRememberedByTheJournal) {
  const TemporaryFolder folder;
  PrepareJournal journal;
  journal.unknown = UnknownCharacters(kNobodys);
  write_journal(folder / "journal", journal);
  const auto read = read_journal(folder / "journal");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->unknown.seen(), kNobodys);
}

}  // namespace
}  // namespace train_gpt
