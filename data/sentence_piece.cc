#include "data/sentence_piece.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"

extern char** environ;

namespace penstock {
namespace {

constexpr int64_t kResultBytesMax = int64_t{4} << 30;
constexpr int64_t kLogBytesMax = int64_t{64} << 20;
constexpr auto kPollEvery = std::chrono::milliseconds(50);

// A directory that is gone when the object is.
class ScratchDirectory {
 public:
  static absl::StatusOr<ScratchDirectory> Create() {
    std::error_code error;
    std::string path = std::filesystem::absolute(std::filesystem::temp_directory_path(error) /
                                                 "penstock-pieces-XXXXXX")
                           .string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no temporary directory ", path,
                                                       " can be made (", std::strerror(errno),
                                                       "); TMPDIR names another place"));
    }
    return ScratchDirectory(std::move(path));
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  std::string Path(absl::string_view name) const { return JoinPath(path_, name); }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Errors: Cancelled (the program was ended), Internal.
absl::StatusOr<int> WaitFor(pid_t pid, const std::string& program, const StopRequested& stop) {
  bool ended = false;
  while (true) {
    int wait_status = 0;
    const pid_t done = waitpid(pid, &wait_status, WNOHANG);
    if (done == pid) {
      if (ended) return absl::CancelledError(absl::StrCat(program, " was interrupted"));
      return wait_status;
    }
    if (done < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("waiting for ", program, ": ", std::strerror(errno)));
    }
    if (!ended && stop && stop()) {
      kill(pid, SIGKILL);  // it has nothing to put in order
      ended = true;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

// The line of a log that says why the program failed.
std::string ReasonOf(const std::string& log) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty()) last = std::string(stripped);
  }
  return last;
}

// Runs `program` in `scratch`, where its files are: a model notes the names that it was trained with, which must be the
// same each time.
absl::Status RunProgram(const std::string& program, std::vector<std::string> arguments,
                        const ScratchDirectory& scratch, const StopRequested& stop) {
  const std::string log = scratch.Path("log");
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, scratch.Path("").c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat(program, " cannot be started (", std::strerror(error),
                                            "); Debian's package sentencepiece has it"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int wait_status, WaitFor(pid, program, stop));
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return absl::OkStatus();
  const absl::StatusOr<std::string> said = RealFiles().Read(log, kLogBytesMax);
  return absl::InvalidArgumentError(
      absl::StrCat(program, " failed: ", said.ok() ? ReasonOf(*said) : "it left no log"));
}

absl::Status WriteLines(const std::string& path, absl::Span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return RealFiles().WriteDurably(path, {text});
}

}  // namespace

absl::StatusOr<PieceFiles> TrainPieces(absl::Span<const std::string> lines,
                                       const PieceTraining& training, const StopRequested& stop) {
  PENSTOCK_ASSIGN_OR_RETURN(const ScratchDirectory scratch, ScratchDirectory::Create());
  PENSTOCK_RETURN_IF_ERROR(WriteLines(scratch.Path("text"), lines));
  // One thread: with several, the sums of expected counts would depend on how many there are.
  PENSTOCK_RETURN_IF_ERROR(
      RunProgram("spm_train",
                 {"--input=text", "--model_prefix=pieces",
                  absl::StrCat("--vocab_size=", training.pieces), "--hard_vocab_limit=false",
                  absl::StrCat("--model_type=",
                               training.algorithm == PieceAlgorithm::kBpe ? "bpe" : "unigram"),
                  "--num_threads=1", "--pad_id=0", "--unk_id=1", "--bos_id=2", "--eos_id=3"},
                 scratch, stop));
  PieceFiles files;
  PENSTOCK_ASSIGN_OR_RETURN(files.model,
                            RealFiles().Read(scratch.Path("pieces.model"), kResultBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(files.list,
                            RealFiles().Read(scratch.Path("pieces.vocab"), kResultBytesMax));
  return files;
}

absl::StatusOr<PieceFiles> LoadPieces(std::string model, const StopRequested& stop) {
  PENSTOCK_ASSIGN_OR_RETURN(const ScratchDirectory scratch, ScratchDirectory::Create());
  PENSTOCK_RETURN_IF_ERROR(RealFiles().WriteDurably(scratch.Path("model"), {model}));
  PENSTOCK_RETURN_IF_ERROR(
      RunProgram("spm_export_vocab", {"--model=model", "--output=list"}, scratch, stop));
  PieceFiles files = {.model = std::move(model)};
  PENSTOCK_ASSIGN_OR_RETURN(files.list, RealFiles().Read(scratch.Path("list"), kResultBytesMax));
  return files;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePieces(const PieceFiles& vocabulary,
                                                               absl::Span<const std::string> lines,
                                                               const StopRequested& stop) {
  PENSTOCK_ASSIGN_OR_RETURN(const ScratchDirectory scratch, ScratchDirectory::Create());
  PENSTOCK_RETURN_IF_ERROR(RealFiles().WriteDurably(scratch.Path("model"), {vocabulary.model}));
  PENSTOCK_RETURN_IF_ERROR(WriteLines(scratch.Path("text"), lines));
  PENSTOCK_RETURN_IF_ERROR(RunProgram(
      "spm_encode", {"--model=model", "--output_format=id", "--input=text", "--output=ids"},
      scratch, stop));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            RealFiles().Read(scratch.Path("ids"), kResultBytesMax));
  std::vector<std::vector<int32_t>> encoded;
  encoded.reserve(lines.size());
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (encoded.size() == lines.size()) break;  // behind the last line's end
    std::vector<int32_t>& ids = encoded.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
        return absl::InternalError(
            absl::StrCat("spm_encode wrote \"", word, "\", which is no number of a piece"));
      }
    }
  }
  if (encoded.size() != lines.size()) {
    return absl::InternalError(absl::StrCat("spm_encode wrote ", encoded.size(), " lines of ",
                                            lines.size(), " that it was given"));
  }
  return encoded;
}

}  // namespace penstock
