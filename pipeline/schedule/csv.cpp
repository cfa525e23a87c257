#include "pipeline/schedule/csv.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "pipeline/schedule/lowered_csv.h"

namespace train_gpt {

namespace {

constexpr std::string_view kFused = "OVERLAP_F_B";

// A place in the file; both numbers count from 1.
struct Position {
  std::size_t row = 0;
  std::size_t cell = 0;
};

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw std::invalid_argument("schedule file " + name + ": " + what);
}

// A cell in a form fit for messages: short, and without control characters.
std::string printable(std::string_view cell) {
  std::string text;
  for (const char c : cell.substr(0, 40)) text += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  return "`" + text + (cell.size() > 40 ? "..." : "") + "`";
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<Op> op_of(char letter) {
  for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
    if (op_letter(op) == letter) return op;
  }
  return std::nullopt;
}

// "12F3"; empty for any other text.
std::optional<Action> parse_action(std::string_view text) {
  const auto number = [&](std::int32_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool found = error == std::errc() && value >= 0;
    if (found) text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return found;
  };
  Action action;
  if (!number(action.stage) || text.empty()) return std::nullopt;
  const std::optional<Op> op = op_of(text.front());
  if (!op) return std::nullopt;
  action.op = *op;
  text.remove_prefix(1);
  if (!number(action.micro_batch) || !text.empty()) return std::nullopt;
  return action;
}

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Schedule read(std::string_view text);

 private:
  [[noreturn]] void refuse_cell(Position at, std::string_view cell, const std::string& what) const {
    refuse(name_,
           "row " + std::to_string(at.row) + ", cell " + std::to_string(at.cell) + ": " + printable(cell) + " " + what);
  }

  void read_cell(Position at, std::string_view cell);
  void append(Position at, const Action& action);
  void check_messages(const Schedule& schedule) const;
  std::vector<int> rank_of_stage() const;
  void check_micro_batches() const;
  Placement placement() const;
  bool bidirectional(const std::vector<int>& table) const;

  const std::string& name_;
  std::vector<std::vector<Action>> lists_;
  std::vector<std::vector<Position>> positions_;    // [rank][action]
  std::vector<std::vector<MessageCell>> messages_;  // [rank], of a lowered schedule
  std::vector<std::vector<Position>> messages_at_;
  std::size_t actions_ = 0;
  Action highest_stage_, highest_micro_batch_;
  Position highest_stage_at_, highest_micro_batch_at_;
};

void Reader::append(Position at, const Action& action) {
  lists_.back().push_back(action);
  positions_.back().push_back(at);
  ++actions_;
  if (highest_stage_at_.row == 0 || action.stage > highest_stage_.stage) {
    highest_stage_ = action;
    highest_stage_at_ = at;
  }
  if (highest_micro_batch_at_.row == 0 || action.micro_batch > highest_micro_batch_.micro_batch) {
    highest_micro_batch_ = action;
    highest_micro_batch_at_ = at;
  }
}

void Reader::read_cell(Position at, std::string_view cell) {
  std::string_view text = cell;
  const bool fused = text.ends_with(kFused);
  if (fused) {
    text.remove_suffix(kFused.size());
    text = trim(text);
    if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
    const std::vector<std::string_view> halves = split(text, ';');
    if (halves.size() == 2) {
      std::optional<Action> first = parse_action(trim(halves[0]));
      const std::optional<Action> second = parse_action(trim(halves[1]));
      if (first && second && first->op == Op::forward && second->op == Op::backward) {
        first->fused_with_next = true;
        append(at, *first);
        append(at, *second);
        return;
      }
    }
    refuse_cell(at, cell, "is no fused pair: write a forward and a backward, as in (2F0;1B3)OVERLAP_F_B");
  }
  if (is_sharding_cell(text)) return;
  if (std::optional<MessageCell> message = parse_message_cell(text)) {
    message->before = lists_.back().size();
    messages_.back().push_back(*message);
    messages_at_.back().push_back(at);
    return;
  }
  const std::optional<Action> action = parse_action(text);
  if (!action) refuse_cell(at, cell, "is no action: write stage, F, B, I or W, and micro-batch, as in 2F0");
  append(at, *action);
}

// Requires every stage from 0 to the highest one, each in one row, and a stage in every row.
std::vector<int> Reader::rank_of_stage() const {
  const auto stages = static_cast<std::size_t>(highest_stage_.stage) + 1;
  if (stages > actions_) {
    refuse_cell(highest_stage_at_, to_string(highest_stage_),
                "names stage " + std::to_string(highest_stage_.stage) + ", but the file has only " +
                    std::to_string(actions_) + " actions: stages count from 0 without gaps");
  }
  std::vector<int> table(stages, -1);
  for (std::size_t r = 0; r < lists_.size(); ++r) {
    for (std::size_t k = 0; k < lists_[r].size(); ++k) {
      int& rank = table[static_cast<std::size_t>(lists_[r][k].stage)];
      if (rank >= 0 && rank != static_cast<int>(r)) {
        refuse_cell(positions_[r][k], to_string(lists_[r][k]),
                    "is of a stage that row " + std::to_string(rank + 1) + " computes already: a stage has one rank");
      }
      rank = static_cast<int>(r);
    }
  }
  const auto gap = std::find(table.begin(), table.end(), -1);
  if (gap != table.end()) {
    refuse_cell(highest_stage_at_, to_string(highest_stage_),
                "names stage " + std::to_string(highest_stage_.stage) + ", but stage " +
                    std::to_string(gap - table.begin()) + " is nowhere: stages count from 0 without gaps");
  }
  return table;
}

void Reader::check_micro_batches() const {
  if (static_cast<std::size_t>(highest_micro_batch_.micro_batch) < actions_) return;
  refuse_cell(highest_micro_batch_at_, to_string(highest_micro_batch_),
              "names micro-batch " + std::to_string(highest_micro_batch_.micro_batch) + ", but the file has only " +
                  std::to_string(actions_) + " actions: micro-batches count from 0 without gaps");
}

// The table of a V and that of two directions are the same; the half of the micro-batches that a stage takes tells them
// apart.
bool Reader::bidirectional(const std::vector<int>& table) const {
  const int p = static_cast<int>(lists_.size());
  const int m = highest_micro_batch_.micro_batch + 1;
  if (m % 2 != 0 || static_cast<int>(table.size()) != 2 * p) return false;
  return std::all_of(lists_.begin(), lists_.end(), [&](const std::vector<Action>& list) {
    return std::all_of(list.begin(), list.end(),
                       [&](const Action& action) { return (action.stage >= p) == (action.micro_batch >= m / 2); });
  });
}

Placement Reader::placement() const {
  const std::vector<int> table = rank_of_stage();
  check_micro_batches();
  const auto stages = static_cast<int>(table.size());
  const auto p = static_cast<int>(lists_.size());
  const int m = highest_micro_batch_.micro_batch + 1;
  const auto matches = [&](const Placement& candidate) {
    return std::equal(table.begin(), table.end(), candidate.stages.begin(), candidate.stages.end(),
                      [](int rank, const Placement::VirtualStage& stage) { return rank == stage.rank; });
  };
  if (stages == 2 * p && matches(Placement::v_shape(p, m))) {
    if (bidirectional(table)) return Placement::bidirectional(p, m);
    if (p > 1) return Placement::v_shape(p, m);
  }
  if (stages % p == 0 && matches(Placement::loop(p, stages / p, m))) return Placement::loop(p, stages / p, m);
  return Placement::from_table(table, p, m);
}

// Checks that the messages of a lowered schedule are those that follow from its actions.
void Reader::check_messages(const Schedule& schedule) const {
  if (std::all_of(messages_.begin(), messages_.end(), [](const auto& row) { return row.empty(); })) return;
  const std::optional<MessageTrouble> trouble = message_trouble(schedule, messages_);
  if (!trouble) return;
  if (!trouble->cell) refuse(name_, "row " + std::to_string(trouble->rank + 1) + " " + trouble->what);
  const MessageCell& cell = messages_[trouble->rank][*trouble->cell];
  const std::string text = std::to_string(cell.stage) + (cell.sends ? "SEND_" : "RECV_") + (cell.forward ? "F" : "B") +
                           std::to_string(cell.micro_batch);
  refuse_cell(messages_at_[trouble->rank][*trouble->cell], text, trouble->what);
}

Schedule Reader::read(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets may write one
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  if (text.empty()) refuse(name_, "holds no action: one row per rank, cells such as 2F0 separated by commas");
  Position at;
  for (const std::string_view row : split(text, '\n')) {
    ++at.row;
    at.cell = 0;
    lists_.emplace_back();
    positions_.emplace_back();
    messages_.emplace_back();
    messages_at_.emplace_back();
    for (const std::string_view padded : split(row, ',')) {
      ++at.cell;
      std::string_view cell = trim(padded);
      if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = trim(cell.substr(1, cell.size() - 2));
      if (!cell.empty()) read_cell(at, cell);
    }
    if (lists_.back().empty()) {
      refuse(name_, "row " + std::to_string(at.row) + " holds no action: every rank needs some, and rows are ranks");
    }
  }
  Placement checked = placement();  // first, since the highest number there is may be the largest of its type
  Schedule schedule(std::move(checked), highest_micro_batch_.micro_batch + 1);
  schedule.name = name_;
  schedule.lists = std::move(lists_);
  check_messages(schedule);
  return schedule;
}

}  // namespace

Schedule parse_schedule_csv(std::string_view text, const std::string& name) { return Reader(name).read(text); }

Schedule read_schedule_csv(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) refuse(path, "cannot be opened for reading");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) refuse(path, "cannot be read");
  return parse_schedule_csv(text, path);
}

void write_schedule_csv(const Schedule& schedule, std::ostream& output) {
  for (const std::vector<Action>& list : schedule.lists) {
    bool inside_pair = false;
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (k > 0) output << (inside_pair ? ";" : ",");
      const bool opens_pair = list[k].fused_with_next && !inside_pair && k + 1 < list.size();
      output << (opens_pair ? "(" : "") << to_string(list[k]);
      if (inside_pair) output << ")" << kFused;
      inside_pair = opens_pair;
    }
    output << "\n";
  }
}

}  // namespace train_gpt
