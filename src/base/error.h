#pragma once
#include <stdexcept>
#include <string>
#include <vector>

namespace mhar {

/// The five parts of an error message: which operation, on which argument, what it wanted, what it got, what to do.
struct Fault {
  std::string operation;  ///< what was being done: "read shard", "option --heads"
  std::string argument;   ///< on what: a path, a tensor name, an option's value; may be empty
  std::string wanted;
  std::string got;
  std::string remedy;  ///< what the user can do, as an imperative sentence without a final stop
};

/// "operation: argument: wanted W, got G; remedy".
std::string describe(const Fault& fault);

/// What the user gave or the machine lacks (a missing file, a bad option, a full disk). The program exits with 2.
/// Every other exception that reaches main is a fault of the program or of the run, and exits with 1.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const Fault& fault) : std::runtime_error(describe(fault)) {}
};

/// Training that must not go on: a loss or gradient that is not finite. Exits with 1, nothing of the step applied.
class RunError : public std::runtime_error {
 public:
  explicit RunError(const Fault& fault) : std::runtime_error(describe(fault)) {}
};

/// The candidate that `word` was most likely meant to be (edit distance at most 2), or an empty string.
/// For "unknown key: did you mean".
std::string closest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace mhar
