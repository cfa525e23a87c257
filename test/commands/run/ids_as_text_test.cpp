#include "commands/run/ids_as_text.h"

#include "test/refused.h"

namespace train_gpt {
namespace {

TEST(IdsAsText, TextWhereTheTokenizerIsKnown) {
  const Tokenizer bytes(byte_vocabulary());
  IdsAsText text(&bytes, 300);
  EXPECT_EQ(text.prompt("ab"), (std::vector<std::int32_t>{256, 'a', 'b'}));
  EXPECT_EQ(text.prompt(""), (std::vector<std::int32_t>{256}));
  EXPECT_EQ(text.push(0xC3), "");
  EXPECT_EQ(text.push(0xA9), "\u00e9");
  EXPECT_EQ(text.push(280), "<280>") << "an id that the model has and the tokenizer has not";
  EXPECT_EQ(text.push(0xC3), "");
  EXPECT_EQ(text.finish(), "\xC3");
}

TEST(IdsAsText, NumbersWhereItIsNot) {
  IdsAsText numbers(nullptr, 50);
  EXPECT_EQ(numbers.prompt("3 49"), (std::vector<std::int32_t>{3, 49}));
  EXPECT_EQ(numbers.prompt(""), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(numbers.push(7), "7 ");
  EXPECT_REFUSED(numbers.prompt("3 50"), "50", "0 .. 49", "--tokenizer");
  EXPECT_REFUSED(numbers.prompt("hello"), "hello", "--tokenizer");
}

TEST(StopText, EndsBeforeTheStopHoweverItComes) {
  const std::string text = "one aab two";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    StopText stop("aab");
    std::string shown;
    for (std::size_t at = 0; at < text.size() && !stop.found(); at += size) shown += stop.push(text.substr(at, size));
    EXPECT_TRUE(stop.found());
    EXPECT_EQ(shown, "one ");
  }
  StopText other("aac");
  std::string shown;
  for (const char c : text) shown += other.push(std::string(1, c));
  EXPECT_EQ(shown + other.finish(), text);
  StopText none("");
  EXPECT_EQ(none.push("a") + none.push("b"), "ab");
}

}  // namespace
}  // namespace train_gpt
