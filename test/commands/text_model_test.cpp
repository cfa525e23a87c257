// From a text to a model and back to text, with the program itself.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "test/commands/log_events.h"
#include "test/commands/program.h"

namespace train_gpt::test {
namespace {

using Json = nlohmann::json;

// Ids in llm.c's layout, the i-th is id(i).
template <typename Id>
std::string token_file(int tokens, const Id& id) {
  const std::int32_t header[256] = {20240520, 1, tokens};
  std::string file(reinterpret_cast<const char*>(header), sizeof header);
  for (int i = 0; i < tokens; ++i) {
    const auto token = static_cast<std::uint16_t>(id(i));
    file.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  return file;
}

// The tokens of test/model/recorded/record_gpt2.py.
std::string recorded_tokens() {
  return token_file(20 * 4 * 16 + 1, [](int i) { return i % 5 != 0 ? (i * i + 3 * i) % 47 : 7 * i % 61; });
}

TEST(TextModel, TrainsAModelOfTransformersAsPyTorchDoes) {
  const Json expected = Json::parse(read_file("test/model/recorded/gpt2/losses.json")).at("losses");
  const Folder folder;
  const std::string tokens = recorded_tokens();
  write_file(folder / "tokens.bin", tokens.data(), tokens.size());
  for (const int ranks : {1, 2}) {
    const std::string out = folder / ("out" + std::to_string(ranks));
    const ProgramRun run = run_program(
        ranks,
        "train --init test/model/recorded/gpt2 --train-data " + folder / "tokens.bin" +
            " --seq-len 16 --micro-batch-size 2 --micro-batches 2 --shuffle false --steps 20 --learning-rate 1e-2" +
            " --lr-schedule constant --output " + out);
    ASSERT_EQ(run.status, 0) << run.output;
    const auto steps = events(read_file(out + "/log.jsonl"), "step");
    ASSERT_EQ(steps.size(), 20U);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i].at("loss").get<double>(), expected[i].get<double>(), 5e-5) << "step " << i;
    }
  }
}

// The validation data have nothing in common with the training data, or are the same.
TEST(TextModel, SaysOnceThatValidationLossRises) {
  const Folder folder;
  const std::string known = token_file(1000, [](int i) { return i % 4; });
  const std::string strange = token_file(100, [](int i) { return 8 + i % 5; });
  write_file(folder / "known.bin", known.data(), known.size());
  write_file(folder / "strange.bin", strange.data(), strange.size());
  for (const auto& [validated, times] : {std::pair{"strange.bin", 1}, {"known.bin", 0}}) {
    const ProgramRun run = run_program(
        1, "train --train-data " + folder / "known.bin" + " --val-data " + folder / validated +
               " --vocab 16 --layers 1 --heads 1 --hidden 16 --seq-len 8 --max-seq-len 8 --micro-batch-size 4" +
               " --micro-batches 1 --steps 20 --val-every 2 --learning-rate 1e-2 --output " + folder / validated +
               "-out");
    ASSERT_EQ(run.status, 0) << run.output;
    EXPECT_EQ(count(run.output, "validation loss has risen for 3 evaluations: overfitting"), times) << run.output;
  }
}

// Four commands: prepare, train, generate, evaluate; then the model goes to Hugging Face's form and back.
TEST(TextModel, FromATextToAModelThatSpeaksAndAnswers) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat, and the dog lay by the door.\n";
  write_file(folder / "text.txt", text.data(), text.size());
  const std::string questions =
      "{\"ctx\": \"the cat sat on the\", \"endings\": [\"mat,\", \"xylophone\", \"zzzz\"], \"label\": 0}\n"
      "{\"ctx\": \"the dog lay by\", \"endings\": [\"qqqqq\", \"the door.\"], \"label\": 1}\n";
  write_file(folder / "questions.jsonl", questions.data(), questions.size());
  const auto run = [&](int ranks, const std::string& arguments) {
    const ProgramRun ended = run_program(ranks, arguments);
    EXPECT_EQ(ended.status, 0) << arguments << "\n" << ended.output;
    return ended.output;
  };
  run(0, "prepare --text " + folder / "text.txt" + " --output " + folder / "data" + " --vocab 300");
  const std::string out = folder / "out";
  const std::string trained =
      run(1, "train --data " + folder / "data" + " --layers 1 --heads 2 --hidden 32 --seq-len 32 --max-seq-len 32" +
                 " --micro-batch-size 4 --micro-batches 2 --steps 40 --learning-rate 1e-2 --sample-every 40" +
                 " --multiple-choice " + folder / "questions.jsonl" + " --eval-every 20 --output " + out);
  EXPECT_NE(trained.find(" the "), std::string::npos) << "a sample is text:\n" << trained;
  const std::string log = read_file(out + "/log.jsonl");
  const auto answers = events(log, "multiple_choice");
  ASSERT_EQ(answers.size(), 3U) << "before steps 0 and 20, and at the end";
  EXPECT_EQ(answers.back().at("by_sum"), 1.0);
  const Json validation = events(log, "validation").back();
  EXPECT_NEAR(validation.at("perplexity").get<double>(), std::exp(validation.at("loss").get<double>()), 1e-9);
  EXPECT_LT(validation.at("bits_per_byte").get<double>(), 2.0);

  // The tokenizer is beside the model, in checkpoints, and in Hugging Face's folder.
  const std::string generate = " --prompt 'the cat' --tokens 30 --temperature 0 --stop door";
  const std::string said = run(1, "generate --init " + out + "/model.bin" + generate);
  EXPECT_NE(said.find("the cat sat on the mat"), std::string::npos) << said;
  EXPECT_EQ(said.find("door"), std::string::npos) << "the stop is not shown";
  EXPECT_EQ(run(2, "generate --init " + out + "/checkpoints/step-40" + generate), said);
  run(0, "convert --init " + out + " --output " + folder / "hf");
  EXPECT_EQ(run(1, "generate --init " + folder / "hf" + generate), said);
  run(0, "convert --init " + folder / "hf" + " --output " + folder / "back/model.bin");
  EXPECT_EQ(read_file(folder / "back/model.bin"), read_file(out + "/model.bin"));
  EXPECT_EQ(read_file(folder / "back/tokenizer.json"), read_file(folder / "data/tokenizer.json"));

  // Lines that are typed; the same loss, bits per byte and answers on any number of ranks and micro-batches.
  write_file(folder / "typed", "the cat\nthe dog\n", 16);
  const std::string typed =
      run(2, "generate --init " + out + " --interactive --tokens 20 --temperature 0 --stop mat < " + folder / "typed");
  EXPECT_NE(typed.find("not taught to answer"), std::string::npos);
  EXPECT_EQ(count(typed, "> "), 3);
  EXPECT_NE(typed.find(" sat on the \n"), std::string::npos) << typed;
  std::vector<std::string> lines;
  for (const auto& [ranks, more] : {std::pair{1, "--micro-batches 2 --micro-batch-size 2"},
                                    std::pair{2, "--micro-batches 4 --micro-batch-size 1 --schedule gpipe"}}) {
    const std::string evaluated =
        run(ranks, "evaluate --init " + out + " --val-data " + folder / "data/val.bin" +
                       " --val-batches 1 --seq-len 32 --multiple-choice test/data/questions.jsonl " + more);
    const std::size_t begin = evaluated.find("validation after");
    const std::size_t end = evaluated.find("per byte", evaluated.find("multiple choice, 20 questions"));
    ASSERT_NE(end, std::string::npos) << evaluated;
    lines.push_back(evaluated.substr(begin, end - begin));
  }
  EXPECT_EQ(lines[0], lines[1]);
  const std::string answers_alone =
      run(1, "evaluate --init " + out + " --seq-len 32 --multiple-choice test/data/questions.jsonl");
  EXPECT_EQ(answers_alone.find("nan"), std::string::npos) << answers_alone;
  EXPECT_NE(lines[0].find("bits per byte"), std::string::npos);
}

}  // namespace
}  // namespace train_gpt::test
