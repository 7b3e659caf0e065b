#include "services/cli/next_commands.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "inference/hugging_face.h"
#include "inference/text_generator.h"
#include "job/data/data_kind.h"
#include "job/model_graph.h"
#include "services/cli/shell_word.h"

namespace penstock {
namespace {

// Returns the value that a command uses without the flag.
std::string Unsaid(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// `of`: the job, or the checkpoint.
std::string CommandLine(const char* verb, const std::string& of, const char* more,
                        const std::string& flags) {
  std::vector<std::string> words = {"penstock", verb, ShellWord(of)};
  if (*more != '\0') words.emplace_back(more);
  if (!flags.empty()) words.push_back(flags);
  return absl::StrJoin(words, " ");
}

// The data that a job keeps for validation, as flags of `penstock evaluate`.
std::string ValidationDataFlags(v1::DataSpec data, const std::string& data_root) {
  std::vector<DataInput> paths;
  if (data.source_case() != v1::DataSpec::SOURCE_NOT_SET) {
    paths = DataKindOf(data).inputs(data);
  }
  if (paths.empty()) return "--data PATH";
  const auto validation = std::find_if(paths.begin(), paths.end(), [](const DataInput& path) {
    return path.use == DataInput::Use::kValidation;
  });
  const bool has_own = validation != paths.end();
  return absl::StrCat("--data ",
                      ShellWord(JoinPath(data_root, *(has_own ? *validation : paths[0]).path)),
                      has_own ? "" : " --split validation");
}

// Whether the job's checkpoints have a tokenizer.
bool HasTokenizer(v1::DataSpec data) {
  if (data.source_case() == v1::DataSpec::SOURCE_NOT_SET) return false;
  const std::vector<DataInput> inputs = DataKindOf(data).inputs(data);
  return std::any_of(inputs.begin(), inputs.end(), [](const DataInput& input) {
    return input.use == DataInput::Use::kTokenizer;
  });
}

// What can be done with a job's model, once it is at `checkpoint`.
std::vector<std::string> CommandsForModel(const v1::JobSpec& job, const std::string& data_root,
                                          const std::string& checkpoint) {
  std::vector<std::string> commands;
  const absl::StatusOr<ModelGraph> model = BuildModel(job.model());
  if (model.ok() && CheckGeneratesText(*model, HasTokenizer(job.data())).ok()) {
    commands.push_back(CommandLine("generate", checkpoint, "--prompt 'The '", ""));
  } else {
    const std::string data = ValidationDataFlags(job.data(), data_root);
    commands.push_back(CommandLine("evaluate", checkpoint, data.c_str(), ""));
  }
  if (model.ok() && CheckExportsHuggingFace(*model).ok())
    commands.push_back(CommandLine("export", checkpoint, "-o model", ""));
  return commands;
}

}  // namespace

std::string FlagsOf(const CoordinatorOptions& options) {
  std::vector<std::string> flags;
  if (options.address != Unsaid("PENSTOCK_COORDINATOR", kDefaultCoordinator)) {
    flags.push_back(absl::StrCat("--coordinator ", ShellWord(options.address)));
  }
  const SecurityFlags& security = options.security;
  // Plain text goes before certificates, as where it is decided.
  if (security.insecure_network) {
    flags.emplace_back("--insecure-network");
  } else if (security.insecure) {
    flags.emplace_back("--insecure");
  } else if (security.certificates != Unsaid("PENSTOCK_CERTIFICATES", "")) {
    flags.push_back(absl::StrCat("--certificates ", ShellWord(security.certificates)));
  }
  return absl::StrJoin(flags, " ");
}

std::string NextCommands(const std::string& job_id, const std::string& flags) {
  return absl::StrCat("  ", FollowCommand(job_id, flags), "\n  ",
                      CommandLine("status", job_id, "", flags), "\n  ",
                      CommandLine("timeline", job_id, "-o trace.json", flags), "\n  ",
                      CommandLine("cancel", job_id, "", flags), "\n");
}

std::string FollowCommand(const std::string& job_id, const std::string& flags) {
  return CommandLine("logs", job_id, "-f", flags);
}

std::string ShowOrderCommand(const std::string& job_id, const std::string& file,
                             const std::string& flags) {
  return CommandLine("schedule show", job_id, ("-o " + ShellWord(file)).c_str(), flags);
}

std::string ModelCommands(const v1::GetJobResponse& job, const std::string& data_root) {
  // Without a directory of its own a job may still name the checkpoint it began with.
  const bool kept =
      !job.spec().checkpoint().directory().empty() && !job.result().checkpoint().empty();
  const std::vector<std::string> commands =
      CommandsForModel(job.spec(), data_root, kept ? job.result().checkpoint() : "DIR");
  if (kept) return absl::StrCat("next:\n  ", absl::StrJoin(commands, "\n  "), "\n");
  return absl::StrCat("the model was not kept; --set checkpoint.directory=DIR keeps it, for `",
                      absl::StrJoin(commands, "` and `"), "`\n");
}

std::string DetachedText(const std::string& job_id, const std::string& flags) {
  return absl::StrCat("no longer watching; job ", job_id, " goes on: `",
                      FollowCommand(job_id, flags), "` watches it, `",
                      CommandLine("cancel", job_id, "", flags), "` ends it");
}

}  // namespace penstock
