// Plants faults into copies of source files: all faults at once, each behind a switch, so that a run needs one build.
//
//   plant FOLDER LIST..     writes FOLDER/<file> for every file that a list names, and FOLDER/faults: a line per fault
//
// A list has one fault per paragraph; lines that begin with # are comments:
//
//   name: tied-sum-too-early             a name that says what is wrong
//   file: pipeline/plan/lowering.cpp
//   code: a.done + 1                     text within one line, exactly as it stands in the file, and only once in it
//   fault: a.done                        what stands there instead; code that ends with ; is a statement, other code an
//                                        expression: a whole one, since it gets parentheses
//   suite: test_pipeline --gtest_filter=Lowering*      who must notice
//   equivalent: why                      optional: proven to change nothing that can be seen; it is not run
//
// Ends with status 1 and a message where a file or its text is not found, or where two faults overlap.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Fault {
  std::string where, list, name, file, code, fault, suite, equivalent;  // list: its file's name without .faults
};

// The number that the switch of a fault asks for. It follows from the name, so that a new fault compiles its own file
// alone.
std::uint32_t number_of(const Fault& fault) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : fault.name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash % 1000000000U + 1;
}

std::string* field_of(Fault& fault, const std::string& key) {
  const std::map<std::string, std::string*> fields{{"name", &fault.name},   {"file", &fault.file},
                                                   {"code", &fault.code},   {"fault", &fault.fault},
                                                   {"suite", &fault.suite}, {"equivalent", &fault.equivalent}};
  const auto found = fields.find(key);
  return found == fields.end() ? nullptr : found->second;
}

void add(std::vector<Fault>& faults, const Fault& fault) {
  if (fault.where.empty()) return;
  if (fault.name.empty() || fault.file.empty() || fault.code.empty() || fault.fault.empty() || fault.suite.empty()) {
    throw std::runtime_error(fault.where + ": a fault needs name, file, code, fault and suite");
  }
  const auto same = [&](const Fault& other) { return number_of(other) == number_of(fault); };
  const auto found = std::find_if(faults.begin(), faults.end(), same);
  if (found != faults.end()) {
    throw std::runtime_error(fault.where + ": " + fault.name + " needs another name, for that of " + found->where);
  }
  faults.push_back(fault);
}

void read_list(std::vector<Fault>& faults, const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  Fault fault;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string where = path + ":" + std::to_string(number);
    if (!line.empty() && line[0] == '#') continue;
    if (line.empty()) {
      add(faults, fault);
      fault = {};
      continue;
    }
    const std::size_t colon = line.find(": ");
    std::string* field = colon == std::string::npos ? nullptr : field_of(fault, line.substr(0, colon));
    if (field == nullptr) throw std::runtime_error(where + ": not `name:`, `file:`, `code:`, `fault:` or `suite:`");
    if (fault.where.empty()) fault.where = where, fault.list = std::filesystem::path(path).stem().string();
    *field = line.substr(colon + 2);
  }
  add(faults, fault);
}

std::string read_file(const std::string& path, const std::string& where) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(where + ": there is no file " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string switched(const Fault& fault) {
  const std::string asks = "planted_fault(" + std::to_string(number_of(fault)) + ")";
  if (fault.code.back() == ';') return "if (" + asks + ") { " + fault.fault + " } else { " + fault.code + " }";
  return "(" + asks + " ? (" + fault.fault + ") : (" + fault.code + "))";
}

// All faults of one file planted in its text, from the last place to the first.
std::string plant(const std::string& file, const std::vector<Fault>& faults) {
  std::string text;
  std::vector<std::pair<std::size_t, const Fault*>> places;
  for (const Fault& fault : faults) {
    if (fault.file != file) continue;
    if (text.empty()) text = read_file(file, fault.where);
    const std::size_t at = text.find(fault.code);
    if (at == std::string::npos) throw std::runtime_error(fault.where + ": " + file + " has no `" + fault.code + "`");
    if (text.find(fault.code, at + 1) != std::string::npos) {
      throw std::runtime_error(fault.where + ": " + file + " has `" + fault.code + "` more than once");
    }
    places.emplace_back(at, &fault);
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i - 1].first + places[i - 1].second->code.size() <= places[i].first) continue;
    throw std::runtime_error(places[i].second->where + ": overlaps with " + places[i - 1].second->name);
  }
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    text.replace(place->first, place->second->code.size(), switched(*place->second));
  }
  return "#include \"test/mutants/planted_fault.h\"\n#line 1 \"" + file + "\"\n" + text;
}

// Leaves a file that already has this text as it is, so that it is not compiled again.
void write_if_changed(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ifstream old(path);
  std::ostringstream before;
  if (old) before << old.rdbuf();
  if (old && before.str() == text) return;
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw std::runtime_error(path.string() + ": cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::runtime_error("usage: plant FOLDER LIST..");
    const std::filesystem::path folder = argv[1];
    std::vector<Fault> faults;
    for (int i = 2; i < argc; ++i) read_list(faults, argv[i]);
    std::string table;
    for (const Fault& fault : faults) {
      write_if_changed(folder / fault.file, plant(fault.file, faults));
      table += std::to_string(number_of(fault)) + "\t" + fault.name + "\t" + fault.file + "\t" + fault.suite + "\t" +
               fault.list + "\t" + fault.equivalent + "\n";
    }
    write_if_changed(folder / "faults", table);
  } catch (const std::exception& error) {
    std::cerr << "plant: error: " << error.what() << "\n";
    return 1;
  }
}
