#include "commands/run/recorder.h"

#include <algorithm>
#include <cstring>

#include "commands/run/record_header.h"
#include "pipeline/plan/plan_bytes.h"

namespace train_gpt {
namespace {

constexpr const char* kFile = "/records.bin";

// Precedes the numbers of one rank and step in the buffer.
struct ParcelHead {
  std::int64_t step = 0;
  double ms = 0;
  double base = 0;
};

std::size_t parcel_bytes(std::int64_t numbers) {
  return sizeof(ParcelHead) + static_cast<std::size_t>(numbers) * sizeof(float);
}

}  // namespace

std::int64_t recorded_numbers(const std::vector<Action>& list) {
  std::int64_t numbers = 0;
  for (const Action& action : list) numbers += action.op == Op::backward ? 3 : 2;
  return numbers;
}

Recorder::Recorder(TrainingRun& run) : run_(run) {
  const std::int64_t most = run.options.run.records;
  if (!run.trains() || most == 0) return;
  if (run.flushless()) return;  // whatif replays steps that begin and end with an empty pipe
  const Schedule& schedule = run.plan.request.schedule;
  for (int w = 0; w < run.session.world().size(); ++w)
    numbers_.push_back(recorded_numbers(schedule.actions(w % run.inputs.layout.pipeline)));
  std::int64_t step_bytes = 0;
  for (const std::int64_t numbers : numbers_) step_bytes += static_cast<std::int64_t>(parcel_bytes(numbers));
  if (step_bytes > most / 2) {
    run.log->essential("note: no records of the steps are kept: one step takes " + format_bytes(step_bytes) +
                       ", --records allows " + format_bytes(most));
    return;
  }
  for (const Action& action : schedule.actions(run.groups.rank())) {
    const double input = run.planned.input[action.stage], both = input + run.planned.weight[action.stage];
    input_share_.push_back(both > 0 ? input / both : 0.5);
  }
  buffer_.resize(parcel_bytes(numbers_[run.session.world().rank()]) * kStepsTogether);
  if (!run.session.is_first()) return;
  writer_ = std::make_unique<RecordsWriter>(run.options.run.output + kFile, record_header(run), numbers_, most);
}

void Recorder::keep(std::int64_t step, double ms) {
  if (!records() || kept_ == kStepsTogether) return;
  const std::vector<ActionMarks>& marks = run_.trainer->last_step_marks();
  const std::vector<Action>& list = run_.plan.request.schedule.actions(run_.groups.rank());
  Device& device = run_.session.device();
  const double ahead = run_.trainer->clock_ahead();
  ParcelHead head{step, ms, marks.empty() ? 0 : device.time_ms(marks.front().begin) - ahead};
  const auto put = [&](const void* bytes, std::size_t count) {
    std::memcpy(buffer_.data() + filled_, bytes, count);
    filled_ += count;
  };
  put(&head, sizeof head);
  const auto put_time = [&](double time) {
    const auto number = static_cast<float>(time - ahead - head.base);
    put(&number, sizeof number);
  };
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double begin = device.time_ms(marks[i].begin), end = device.time_ms(marks[i].end);
    put_time(begin);
    if (list[i].op == Op::backward) {
      const bool known = marks[i].middle != marks[i].begin;
      put_time(known ? device.time_ms(marks[i].middle) : begin + input_share_[i] * (end - begin));
    }
    put_time(end);
  }
  ++kept_;
}

void Recorder::hand_on_if_much() {
  if (kept_ == kStepsTogether) hand_on();
}

void Recorder::hand_on() {
  if (!records() || kept_ == 0) return;
  const auto parcels = run_.session.world().gather_host({buffer_.data(), filled_}, 0);
  if (writer_) write(parcels, kept_);
  filled_ = 0;
  kept_ = 0;
}

void Recorder::write(const std::vector<std::vector<char>>& parcels, int steps) {
  for (int s = 0; s < steps; ++s) {
    StepRecord record;
    for (std::size_t w = 0; w < parcels.size(); ++w) {
      const char* at = parcels[w].data() + s * parcel_bytes(numbers_[w]);
      ParcelHead head;
      std::memcpy(&head, at, sizeof head);
      if (w == 0) record.step = head.step, record.ms = head.ms;
      StepRecord::Rank& rank = record.ranks.emplace_back();
      rank.base = head.base;
      rank.numbers.resize(static_cast<std::size_t>(numbers_[w]));
      std::memcpy(rank.numbers.data(), at + sizeof head, rank.numbers.size() * sizeof(float));
    }
    writer_->write(record);
  }
  writer_->flush();
}

}  // namespace train_gpt
