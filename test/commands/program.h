// Runs the program that users run, as they run it.
#pragma once

#include <string>

namespace train_gpt::test {

struct ProgramRun {
  int status = -1;     // exit status; 128 + signal if it was killed
  std::string output;  // stdout and stderr, in order
};

// `ranks` > 0: under mpirun. The program is the one of the same build folder as this test. Ends it after 120 s.
ProgramRun run_program(int ranks, const std::string& arguments);

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

// How often `part` stands in `text`.
int count(const std::string& text, const std::string& part);

}  // namespace train_gpt::test
