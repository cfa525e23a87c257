#include "commands/report/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "commands/cli/wording.h"
#include "commands/report/report_parts.h"
#include "pipeline/draw/markup.h"
#include "pipeline/draw/table.h"

namespace train_gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReloadSeconds = 10;

constexpr const char* kStyle =
    "<style>:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--soft:#f6f6f8;--line:#ddd;--faint:#555}"
    "@media "
    "(prefers-color-scheme:dark){:root{--ink:#e6e6ea;--paper:#16181d;--soft:#1f2229;--line:#3a3e48;--faint:#a8adb8}}"
    "body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1140px;margin:24px "
    "auto;"
    "padding:0 20px}"
    "h1{font-size:22px;margin:0 0 8px}h2{font-size:17px;margin:32px 0 6px;border-bottom:1px solid var(--line)}"
    "p{margin:4px 0 10px}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:8px 0}"
    "td,th{padding:3px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left}td.label,th.label{text-align:left}"
    ".explain,figcaption{color:var(--faint);font-size:13px}figcaption b{color:var(--ink)}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}dt{color:var(--faint)}"
    "dd{margin:0;overflow-wrap:anywhere}dd span{display:inline-block;max-width:100%}"
    ".state{font-size:13px;font-weight:600;padding:2px 9px;border-radius:9px;background:var(--soft);vertical-align:3px}"
    ".running{background:#2f6fde;color:#fff}.failed{background:#c43c3c;color:#fff}.finished{background:#2f8f4e;color:#"
    "fff}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:14px 24px}"
    "figure{margin:0}@media (min-width:1000px){figcaption{min-height:3em}}"
    ".charts svg.chart{width:100%;height:auto;display:block}.wide svg.chart{max-width:100%;min-width:560px;height:auto}"
    "body svg.chart .paper,body svg.timeline .paper{fill:var(--paper)}body svg.chart text,body svg.timeline "
    ".title,body svg.timeline .note,"
    "body svg.timeline .name,body svg.timeline .legend,body svg.timeline .tick{fill:var(--ink)}body svg.chart "
    ".grid{stroke:var(--line)}"
    "@media (prefers-color-scheme:dark){body svg.timeline .idle{fill:#23262d}body svg.timeline .end{stroke:#bbb}}"
    "</style>";

// The word as one would type it into a shell.
std::string quoted_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_=./,:+@%") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The command line as markup that breaks between words, not after hyphens.
std::string command_of(const Json& start) {
  std::string text;
  const auto words = start.is_object() ? start.find("command_line") : start.end();
  if (!start.is_object() || words == start.end() || !words->is_array()) return "";
  for (const Json& word : *words) {
    if (!word.is_string()) continue;
    text += (text.empty() ? "<span>" : " <span>") + escaped_markup(quoted_word(word.get<std::string>())) + "</span>";
  }
  return text;
}

struct State {
  const char* kind;  // class of its badge
  std::string text;
};

State state_of(const LoggedRun& run, RunCondition condition) {
  const std::string how = text_in(run.end, "event");
  if (how == "end") return {"finished", "finished"};
  if (how == "stop") {
    return {"stopped",
            "stopped by " + text_in(run.end, "reason") + " after " + counted(integer_in(run.end, "step"), "step")};
  }
  if (how == "failure") return {"failed", "failed: " + text_in(run.end, "message")};
  if (condition == RunCondition::running) return {"running", "running"};
  return {"failed", "ended without a word: it was killed, or its host went down"};
}

using Facts = std::vector<std::pair<std::string, std::string>>;  // name, markup

void add_fact(Facts& facts, const char* name, const std::string& text) {
  if (!text.empty()) facts.emplace_back(name, escaped_markup(text));
}

std::string data_fact(const Json& start, const char* files, const char* tokens) {
  const std::string pattern = text_in(start, files);
  const double count = number_in(start, tokens);
  return count > 0 ? pattern + " (" + grouped_digits(integer_in(start, tokens)) + " tokens)" : pattern;
}

std::string learning_rate_fact(const Json& start) {
  const double rate = number_in(start, "learning_rate");
  if (rate == 0) return "";
  const double warmup = number_in(start, "warmup_steps");
  return with_digits(rate, 4) + ", " + text_in(start, "lr_schedule") +
         (warmup > 0 ? ", " + counted(integer_in(start, "warmup_steps"), "warm-up step") : "");
}

std::string steps_fact(const LoggedRun& run) {
  if (run.step.is_null()) return "";
  std::string text = counted(integer_in(run.step, "step") + 1, "step");
  if (const double all = number_in(run.start, "steps"); all > 0) text += " of " + with_digits(all, 15);
  if (const double epoch = number_in(run.step, "epoch", -1); epoch >= 0) text += ", epoch " + with_digits(epoch, 4);
  const double elapsed = number_in(run.step, "elapsed_s", -1), left = number_in(run.step, "eta_s", -1);
  if (elapsed >= 0) text += ", " + duration_text(elapsed);
  if (run.end.is_null() && left > 0) text += ", about " + rough_duration(left) + " left";
  return text;
}

std::string speed_fact(const LoggedRun& run) {
  if (run.ms.empty() || run.tokens_per_s.empty() || run.bubble.empty()) return "";
  return "median step " + with_digits(median(run.ms), 5) + " ms, " +
         grouped_digits(std::llround(median(run.tokens_per_s))) + " tokens/s, median bubble " +
         percent(median(run.bubble));
}

std::string result_fact(const LoggedRun& run) {
  const double loss = number_in(run.end, "final_loss", NAN);
  const std::string hash = text_in(run.end, "parameter_hash");
  std::string text = std::isnan(loss) ? "" : "training loss of the last step " + with_digits(loss, 7);
  if (!run.validation_loss.empty()) {
    text += (text.empty() ? "" : ", ") + std::string("validation loss ") +
            with_digits(run.validation_loss.back().second, 7);
  }
  if (!hash.empty()) text += (text.empty() ? "" : ", ") + std::string("parameter hash ") + hash;
  return text;
}

std::string facts_list(const LoggedRun& run) {
  const Json& start = run.start;
  Facts facts;
  const std::string begun = text_in(run.first_start, "time"), again = text_in(start, "time");
  add_fact(facts, "begun", begun + (again != begun ? ", last resumed " + again : ""));
  if (const std::string command = command_of(start); !command.empty()) facts.emplace_back("command", command);
  add_fact(facts, "program", text_in(start, "program"));
  add_fact(facts, "machine", text_in(start, "device"));
  const std::string model = text_in(start, "model"), heading = "model: ";
  add_fact(facts, "model", model.starts_with(heading) ? model.substr(heading.size()) : model);
  add_fact(facts, "schedule", text_in(run.plan, "schedule"));
  add_fact(facts, "training data", data_fact(start, "train_data", "training_tokens"));
  add_fact(facts, "validation data", data_fact(start, "val_data", "validation_tokens"));
  add_fact(facts, "learning rate", learning_rate_fact(start));
  if (number_in(start, "seed", -1) >= 0) add_fact(facts, "seed", start.at("seed").dump());
  add_fact(facts, run.end.is_null() ? "so far" : "steps", steps_fact(run));
  add_fact(facts, "speed", speed_fact(run));
  add_fact(facts, "result", result_fact(run));
  std::string out = "<dl>";
  for (const auto& [name, text] : facts) {
    out += "<dt>" + name + "</dt><dd>" + text + "</dd>\n";
  }
  return out + "</dl>\n";
}

}  // namespace

std::string html_report(const LoggedRun& run, RunCondition condition) {
  const State state = state_of(run, condition);
  std::string out =
      "<!DOCTYPE html>\n<html xmlns='http://www.w3.org/1999/xhtml' lang='en'><head><meta charset='utf-8'/>";
  out += "<meta name='viewport' content='width=device-width'/>";
  if (run.end.is_null() && condition == RunCondition::running) {
    out += "<meta http-equiv='refresh' content='" + std::to_string(kReloadSeconds) + "'/>";
  }
  out += std::string("<title>train_gpt report</title>\n") + kStyle + "</head><body>\n";
  const std::string schedule = text_in(run.plan, "schedule");
  out += "<h1>train_gpt" + (schedule.empty() ? "" : ": " + escaped_markup(schedule)) + " <span class='state " +
         state.kind + "'>" + escaped_markup(state.text) + "</span></h1>\n";
  out += facts_list(run);
  if (run.step.is_null()) {
    out += "<p>No step was logged yet.</p>\n";
  } else {
    out += curves_over_steps(run);
  }
  out += timeline_section(run.timeline, run.measurement) + idle_section(run.measurement) + memory_section(run.plan) +
         partition_section(run.plan, run.measurement);
  return out + "</body></html>\n";
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string partial = path + "." + std::to_string(getpid()) + ".partial";
  const auto fail = [&]() -> void {
    const std::string why = std::strerror(errno);
    unlink(partial.c_str());
    throw std::runtime_error(path + " cannot be written: " + why);
  };
  unlink(partial.c_str());  // left by a killed process of the same id; a link is removed, not its target
  const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) fail();
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(file, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      close(file);
      fail();
    }
    at += static_cast<std::size_t>(written);
  }
  if (close(file) != 0 || std::rename(partial.c_str(), path.c_str()) != 0) fail();
}

}  // namespace train_gpt
