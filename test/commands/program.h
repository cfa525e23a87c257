// Runs the program that users run, as they run it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace train_gpt::test {

struct ProgramRun {
  int status = -1;     // exit status; 128 + signal if it was killed
  std::string output;  // stdout and stderr, in order
};

// How a run differs from the usual.
struct Variant {
  std::string program = "train_gpt";  // of the same build folder as this test
  std::string environment = {};       // "NAME=VALUE NAME=VALUE"
};

// `ranks` > 0: under mpirun. Ends it after 120 s.
ProgramRun run_program(int ranks, const std::string& arguments, const Variant& variant = {});

// A folder that is removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const void* data, std::size_t bytes);
std::string read_file(const std::string& path);
std::set<std::string> names_in(const std::string& folder);

// The program under mpirun as a process that goes on beside the test; ended with it.
class StartedProgram {
 public:
  // In `folder`, where its output goes to the file "printed".
  StartedProgram(int ranks, const std::vector<std::string>& words, const std::string& folder);
  ~StartedProgram();
  StartedProgram(const StartedProgram&) = delete;
  StartedProgram& operator=(const StartedProgram&) = delete;

  pid_t launcher() const { return launcher_; }
  // The processes of all ranks, as the state files in `output` say, once there is a step in its log. Empty: it ended
  // before.
  std::vector<pid_t> ranks_that_step(const std::string& output);
  bool is_over();
  // Waits for the end.
  ProgramRun result();

 private:
  std::string printed_;
  pid_t launcher_ = 0;
  std::optional<int> status_;
};

// How often `part` stands in `text`.
int count(const std::string& text, const std::string& part);

}  // namespace train_gpt::test
