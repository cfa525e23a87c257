#include "data/documents.h"

#include "data/manifest.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "data/train_val_split.h"
#include "test/data/token_files.h"

namespace train_gpt {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

std::vector<std::string> texts_of(const std::vector<std::string>& files, const DocumentSettings& settings,
                                  DocumentPlace from = {}) {
  DocumentReader reader(files, settings, from);
  std::vector<std::string> texts;
  for (Document document; reader.next(document);) {
    std::string row;
    texts.emplace_back(reader.text_of(document, row));
  }
  return texts;
}

TEST(Documents, OfTextFilesAndRows) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = {folder / "a.txt", folder / "b.txt", folder / "c.jsonl", folder / "d.txt"};
  write_bytes(files[0], "one<|endoftext|>two\n<|endoftext|>");
  write_bytes(files[1], "");
  write_bytes(
      files[2],
      "{\"id\": 1, \"text\": \"th\\u00e9\", \"meta\": {\"text\": \"no\"}}\r\n\n{\"text\": \"four\", \"x\": [1, {}]}");
  write_bytes(files[3], "five");
  EXPECT_EQ(texts_of(files, {}), (std::vector<std::string>{"one", "two\n", "", "th\u00e9", "", "four", "five"}));
  EXPECT_EQ(texts_of({files[0]}, {.split_at_end_of_text = false}),
            (std::vector<std::string>{"one<|endoftext|>two\n<|endoftext|>"}));

  // From any place on, the rest.
  const std::vector<std::string> all = texts_of(files, {});
  DocumentReader reader(files, {});
  for (std::size_t taken = 0; taken <= all.size(); ++taken) {
    EXPECT_EQ(texts_of(files, {}, reader.place()), (std::vector<std::string>(all.begin() + taken, all.end())));
    EXPECT_EQ(reader.place().document, static_cast<std::int64_t>(taken));
    Document document;
    EXPECT_EQ(reader.next(document), taken < all.size());
  }
}

TEST(Documents, BadRowsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& row, const std::vector<std::string>& parts) {
    write_bytes(folder / "rows.jsonl", "{\"text\": \"good\"}\n" + row + "\n");
    try {
      texts_of({folder / "rows.jsonl"}, {});
      ADD_FAILURE() << row;
    } catch (const std::invalid_argument& error) {
      for (const std::string& part : parts)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("{\"text\": \"cut", {"rows.jsonl", "line 2", "no JSON"});
  refused("{\"content\": \"x\"}", {"line 2", "no text \"text\"", "--field"});
  refused("{\"text\": 5}", {"line 2", "no text \"text\""});
  refused("{\"text\": {\"en\": \"x\"}}", {"line 2", "no text \"text\""});
  refused("[\"text\"]", {"line 2", "no JSON object"});
  refused("{\"text\": \"\xFF\"}", {"line 2", "no JSON"});
  refused(std::string(100000, '['), {"line 2", "no JSON"});
  write_bytes(folder / "good.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n");
  write_bytes(folder / "rows.jsonl", "5\n");
  EXPECT_REFUSED(texts_of({folder / "good.jsonl", folder / "rows.jsonl"}, {}), "rows.jsonl", "line 1,");
  write_bytes(folder / "a.gz", "x");
  EXPECT_REFUSED(texts_of({folder / "a.gz"}, {}), "a.gz", "gunzip");
}

// ---- the share for validation ---------------------------------------------------------------------------------------

TEST(TrainValSplit, TakesEveryTenthDocument) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += (i == 0 ? "" : "<|endoftext|>") + std::to_string(i);
  write_bytes(folder / "a.txt", text);
  const TrainValSplit split(0.1, {folder / "a.txt"}, {});
  int validating = 0;
  for (int i = 0; i < 100; ++i) {
    const auto parts = split.parts(i, "text");
    EXPECT_EQ(std::string(parts.train) + std::string(parts.validation), "text");
    EXPECT_TRUE(parts.train.empty() || parts.validation.empty());
    EXPECT_EQ(parts.train.empty(), i % 10 == 9) << i;
    validating += parts.train.empty() ? 1 : 0;
  }
  EXPECT_EQ(validating, 10);
}

TEST(TrainValSplit, OfFewDocumentsTakesTheLastPartFromALineOn) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "x");
  const TrainValSplit split(0.1, {folder / "a.txt"}, {});
  const std::string lines = std::string(90, 'a') + "bb\n" + std::string(7, 'c');
  EXPECT_EQ(split.parts(0, lines).validation, std::string(7, 'c'));
  EXPECT_EQ(split.parts(0, lines).train, lines.substr(0, 93));
  EXPECT_EQ(split.parts(0, std::string(100, 'a')).train.size(), 90U);
  std::string wide;
  for (int i = 0; i < 50; ++i) wide += "\u00e9";
  EXPECT_EQ(split.parts(0, "a" + wide).validation.size() % 2, 0U) << "no character is cut";
  EXPECT_EQ(split.parts(0, "").train, "");
}

// ---- whole preparations ---------------------------------------------------------------------------------------------

std::vector<std::int32_t> tokens_of(const std::vector<std::string>& files) {
  std::vector<std::int32_t> all;
  for (const std::string& path : files) {
    const TokenFile file(path);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.token_count()));
    file.read(ids.data(), 0, file.token_count(), 1 << 20);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

// 40 documents of 3 files, some of them empty.
PrepareRequest small_request(const TemporaryFolder& folder) {
  std::string rows;
  for (int i = 0; i < 20; ++i) rows += "{\"text\": \"row " + std::to_string(i * i) + "\"}\n";
  std::string text;
  for (int i = 0; i < 18; ++i) text += std::string(static_cast<std::size_t>(i), 'x') + "<|endoftext|>";
  write_bytes(folder / "a.jsonl", rows);
  write_bytes(folder / "b.txt", text);
  write_bytes(folder / "c.txt", "the last one");
  PrepareRequest request;
  request.text_files = {folder / "a.jsonl", folder / "b.txt", folder / "c.txt"};
  request.train_file = folder / "out/train.bin";
  request.val_file = folder / "out/val.bin";
  request.tokenizer_file = "tokenizer.json";
  request.val_fraction = 0.25;
  return request;
}

TEST(PrepareDocuments, ShardsHoldTheSameTokensAsOneFile) {
  const TemporaryFolder folder;
  PrepareRequest request = small_request(folder);
  const Tokenizer tokenizer(byte_vocabulary());
  const PrepareSummary whole = prepare(request, tokenizer);
  EXPECT_EQ(whole.files, (std::vector<std::string>{folder / "out/train.bin", folder / "out/val.bin"}));
  EXPECT_EQ(whole.documents, 38);
  EXPECT_EQ(whole.empty, 1);
  const std::vector<std::int32_t> train = tokens_of({whole.files[0]});
  EXPECT_EQ(static_cast<std::int64_t>(train.size()), whole.train_tokens);

  request.shard_tokens = 50;
  request.threads = 3;
  write_bytes(folder / "out/train-000099.bin", "not of a run of shards without holes");
  const PrepareSummary shards = prepare(request, tokenizer);
  ASSERT_GT(shards.files.size(), 4U);
  EXPECT_EQ(shards.train_tokens, whole.train_tokens);
  std::vector<std::string> of_train;
  for (const std::string& path : shards.files) {
    if (path.find("train-") == std::string::npos) continue;
    of_train.push_back(path);
    EXPECT_EQ(read_manifest(path)->tokens, TokenFile(path).token_count());
  }
  for (std::size_t i = 0; i + 1 < of_train.size(); ++i) EXPECT_EQ(TokenFile(of_train[i]).token_count(), 50);
  EXPECT_EQ(tokens_of(of_train), train);

  // Shards of any size: some documents end with their shard.
  for (int tokens = 3; tokens < 40; ++tokens) {
    request.shard_tokens = tokens;
    std::vector<std::string> full;
    for (const std::string& path : prepare(request, tokenizer).files) {
      if (path.find("train-") != std::string::npos) full.push_back(path);
    }
    for (std::size_t i = 0; i + 1 < full.size(); ++i) EXPECT_EQ(TokenFile(full[i]).token_count(), tokens);
  }

  // A later preparation with fewer shards leaves none of these.
  request.shard_tokens = 1000;
  const PrepareSummary fewer = prepare(request, tokenizer);
  EXPECT_FALSE(std::filesystem::exists(of_train[1]));
  EXPECT_EQ(tokens_of({fewer.files[0]}), train);
}

TEST(PrepareDocuments, WideIdsWhereTheVocabularyNeedsThem) {
  const TemporaryFolder folder;
  PrepareRequest request = small_request(folder);
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.tokens.resize(70001);
  vocabulary.tokens[70000] = "<|endoftext|>";
  vocabulary.end_of_text = 70000;
  prepare(request, Tokenizer(vocabulary));
  EXPECT_EQ(TokenFile(request.train_file).bytes_per_token(), 4);
  EXPECT_EQ(tokens_of({request.train_file})[0], 70000);
  EXPECT_EQ(tokens_of({request.train_file})[1], 'r');
  // 65536 ids fit into two bytes, one more does not.
  for (const int size : {65536, 65537}) {
    vocabulary.tokens.resize(static_cast<std::size_t>(size));
    vocabulary.tokens.back() = "<|endoftext|>";
    vocabulary.end_of_text = size - 1;
    prepare(request, Tokenizer(vocabulary));
    EXPECT_EQ(TokenFile(request.train_file).bytes_per_token(), size == 65536 ? 2 : 4);
  }
}

// Ended at every possible moment, a preparation goes on to the very same files.
TEST(PrepareDocuments, GoesOnWhereItWasEnded) {
  const TemporaryFolder folder;
  PrepareRequest request = small_request(folder);
  const Tokenizer tokenizer(byte_vocabulary());
  prepare(request, tokenizer);
  request.batch_bytes = 3;  // so that documents are many batches, and some are long
  request.threads = 2;
  const std::string train = read_bytes(request.train_file);
  const std::string validation = read_bytes(request.val_file);
  const std::string manifest = read_bytes(manifest_path(request.train_file));
  int resumed = 0;
  for (int moment = 1;; ++moment) {
    ASSERT_LT(moment, 1000);
    int asked = 0;
    const PrepareHooks hooks = {{}, [&] { return ++asked >= moment; }};
    const PrepareSummary first = prepare(request, tokenizer, hooks);
    if (!first.stopped) {
      EXPECT_GT(resumed, 10);
      break;
    }
    const PrepareSummary second = prepare(request, tokenizer);
    EXPECT_FALSE(second.stopped);
    resumed += second.resumed ? 1 : 0;
    EXPECT_EQ(read_bytes(request.train_file), train);
    EXPECT_EQ(read_bytes(request.val_file), validation);
    EXPECT_EQ(read_bytes(manifest_path(request.train_file)), manifest);
    EXPECT_FALSE(std::filesystem::exists(request.train_file + ".journal"));
  }
}

// A preparation that was ended begins anew where its outcome would be another.
TEST(PrepareDocuments, ABeginningOfAnotherPreparationIsNotUsed) {
  const TemporaryFolder folder;
  PrepareRequest request = small_request(folder);
  request.batch_bytes = 3;
  const Tokenizer tokenizer(byte_vocabulary());
  int asked = 0;
  const PrepareHooks ends = {{}, [&] { return ++asked >= 20; }};
  const std::string name = tokenizer.vocabulary().name;
  ASSERT_TRUE(prepare(request, tokenizer, ends).stopped);
  ASSERT_TRUE(can_resume(request, name));
  PrepareRequest other = request;
  other.val_fraction = 0.5;
  EXPECT_FALSE(can_resume(other, name));
  other = request;
  other.shard_tokens = 100;
  EXPECT_FALSE(can_resume(other, name));
  other = request;
  other.documents.field = "content";
  EXPECT_FALSE(can_resume(other, name));
  // A text of the same size, changed within the same second.
  const auto time = std::filesystem::last_write_time(folder / "c.txt");
  std::filesystem::last_write_time(folder / "c.txt", time - std::chrono::nanoseconds(1));
  EXPECT_FALSE(can_resume(request, name));
}

}  // namespace
}  // namespace train_gpt
