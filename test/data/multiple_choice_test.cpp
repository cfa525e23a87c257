#include "data/multiple_choice.h"

#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::TemporaryFolder;
using test::write_bytes;

TEST(MultipleChoice, ReadsHellaSwagsRowsAndOthers) {
  const TemporaryFolder folder;
  write_bytes(folder / "q.jsonl",
              "{\"ind\": 4, \"activity_label\": \"x\", \"ctx_a\": \"A\", \"ctx\": \"A man. He\", \"endings\": "
              "[\"runs\", \"sits\", \"x\", \"y\"], \"label\": \"3\"}\n\n"
              "{\"context\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 1}\n");
  const std::vector<Question> questions = read_questions(folder / "q.jsonl");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].context, "A man. He");
  EXPECT_EQ(questions[0].endings, (std::vector<std::string>{"runs", "sits", "x", "y"}));
  EXPECT_EQ(questions[0].label, 3);
  EXPECT_EQ(questions[1].context, "c");
  EXPECT_EQ(questions[1].label, 1);
}

TEST(MultipleChoice, TheShippedQuestionsHaveFourEndings) {
  const std::vector<Question> questions = read_questions("test/data/questions.jsonl");
  ASSERT_EQ(questions.size(), 20U);
  std::vector<int> labels(4, 0);
  for (const Question& question : questions) {
    ASSERT_EQ(question.endings.size(), 4U) << question.context;
    ++labels[static_cast<std::size_t>(question.label)];
  }
  for (const int count : labels) EXPECT_GE(count, 3) << "an answer that is always the same tells nothing";
}

TEST(MultipleChoice, BadRowsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& row, const std::string& part) {
    write_bytes(folder / "q.jsonl", "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 1}\n" + row + "\n");
    EXPECT_REFUSED(read_questions(folder / "q.jsonl"), "q.jsonl", "line 2", part);
  };
  refused("{", "no JSON");
  refused("5", "no JSON object");
  refused("{\"endings\": [\"a\", \"b\"], \"label\": 1}", "no \"ctx\"");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\"], \"label\": 0}", "endings");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\", \"\"], \"label\": 0}", "no text");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 2}", "label 2");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": -1}", "label -1");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 1e99}", "label");
  refused("{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"]}", "label");
  write_bytes(folder / "q.jsonl", "\n");
  EXPECT_REFUSED(read_questions(folder / "q.jsonl"), "no row");
  EXPECT_REFUSED(read_questions(folder / "none"), "--multiple-choice", folder / "none");
}

TEST(MultipleChoice, ACandidateIsContextSpaceEnding) {
  const Tokenizer bytes(byte_vocabulary());
  const auto shown = [&](const Candidate& candidate) {
    TextDecoder decoder(bytes, "|");
    std::string text;
    for (std::size_t i = 0; i < candidate.ids.size(); ++i) {
      text += (static_cast<std::int64_t>(i) == candidate.context ? "[" : "") + decoder.push(candidate.ids[i]);
    }
    return text;
  };
  const auto of = [&](const std::string& context, const std::string& ending, std::int64_t T = 100) {
    return candidate_of({context, {ending, "b"}, 0}, 0, bytes, T);
  };
  EXPECT_EQ(shown(of("He", "runs")), "He[ runs");
  EXPECT_EQ(of("He", "runs").bytes, 4);
  EXPECT_EQ(shown(of("He ", "runs")), "He [runs");
  EXPECT_EQ(shown(of("He", "\nruns")), "He[\nruns");
  EXPECT_EQ(shown(of("", "runs")), "|[runs") << "something has to come before the first id";
  EXPECT_EQ(shown(of("Hello", "runs", 7)), "llo[ runs") << "T + 1 ids";
  EXPECT_EQ(shown(of("Hello", "runs", 3)), "r[uns");
}

TEST(MultipleChoice, TheFirstOfEqualScoresIsBest) {
  EXPECT_EQ(best_ending({-3, -1, -2}), 1);
  EXPECT_EQ(best_ending({-3, -1, -1}), 1);
}

}  // namespace
}  // namespace train_gpt
