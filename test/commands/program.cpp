#include "test/commands/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "pipeline/train/state_file.h"

namespace train_gpt::test {
namespace {

std::string build_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

std::string launcher() { return std::system("command -v mpirun.mpich >/dev/null") == 0 ? "mpirun.mpich" : "mpirun"; }

}  // namespace

ProgramRun run_program(int ranks, const std::string& arguments, const Variant& variant) {
  std::string command = "env " + variant.environment + " timeout -k 5 120 ";
  if (ranks > 0) command += launcher() + " -n " + std::to_string(ranks) + " ";
  command += build_folder() + "/" + variant.program + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  ProgramRun run;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) run.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

StartedProgram::StartedProgram(int ranks, const std::vector<std::string>& words, const std::string& folder)
    : printed_(folder + "/printed") {
  std::vector<std::string> line = {::train_gpt::test::launcher(), "-n", std::to_string(ranks),
                                   build_folder() + "/train_gpt"};
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : line) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  launcher_ = fork();
  if (launcher_ != 0) return;
  setpgid(0, 0);
  const int file = open(printed_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int none = open("/dev/null", O_RDONLY);
  if (chdir(folder.c_str()) != 0 || dup2(none, 0) < 0 || dup2(file, 1) < 0 || dup2(file, 2) < 0) _exit(126);
  execvp(pointers[0], pointers.data());
  _exit(127);
}

StartedProgram::~StartedProgram() {
  if (!is_over()) {
    kill(-launcher_, SIGKILL);
    result();
  }
}

std::vector<pid_t> StartedProgram::ranks_that_step(const std::string& output) {
  while (!is_over()) {
    if (read_file(output + "/log.jsonl").find("\"event\":\"step\"") != std::string::npos) {
      std::vector<pid_t> ranks;
      for (const RankState& state : read_states(output)) ranks.push_back(static_cast<pid_t>(state.process));
      return ranks;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

bool StartedProgram::is_over() {
  int status = 0;
  if (!status_ && waitpid(launcher_, &status, WNOHANG) == launcher_) status_ = status;
  return status_.has_value();
}

ProgramRun StartedProgram::result() {
  while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return {.status = WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_),
          .output = read_file(printed_)};
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "train_gpt_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, const void* data, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

}  // namespace train_gpt::test
