#include "test/commands/program.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

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
