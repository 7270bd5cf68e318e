#include "bench/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

extern char** environ;

namespace mhar::bench {
namespace {

void read_lines(int from, const std::function<void(const std::string&)>& take_line) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(from, part, sizeof(part));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      take_line(text.substr(0, end));
  }
  if (!text.empty()) take_line(text);
}

}  // namespace

int run_program(const std::vector<std::string>& words, const std::function<void(const std::string&)>& take_line) {
  constexpr int not_started = 127;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return not_started;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed == 0) read_lines(ends[0], take_line);
  ::close(ends[0]);
  if (failed != 0) return not_started;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace mhar::bench
