// penstock data prepare instructions: prompts with responses, and chats, to records.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "data/instruction_sets.h"
#include "services/cli/commands/data_records.h"
#include "services/cli/data_progress.h"
#include "services/cli/interrupt.h"

namespace penstock {
namespace {

struct PrepareInstructionsOptions {
  InstructionSetOptions instructions;
  std::vector<std::string> roles;
  bool is_unpacked = false;
  PrepareCommon common;
};

absl::Status RunPrepareInstructions(const PrepareInstructionsOptions& options, Console& console) {
  InstructionSetOptions instructions = options.instructions;
  for (const std::string& role : options.roles) {
    PENSTOCK_RETURN_IF_ERROR(Annotate(AddRole(role, instructions.roles), "--role"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  instructions.to = options.common.to;
  instructions.is_packed = !options.is_unpacked;
  instructions.shard_bytes_max = options.common.shard_mebibytes << 20;
  absl::StatusOr<PreparedInstructions> prepared;
  {
    DataProgress progress("byte", interrupt, console);
    instructions.progress = [&](int64_t done, int64_t all, const std::string& what) {
      return progress.Report(done, all, what);
    };
    prepared = PrepareInstructions(RealFiles(), instructions);
  }
  if (absl::IsCancelled(prepared.status())) return InterruptedError(prepared.status().message());
  PENSTOCK_RETURN_IF_ERROR(prepared.status());
  if (options.common.json) {
    PrintJson({{"directory", instructions.to},
               {"tokenizer", prepared->tokenizer},
               {"examples", prepared->examples},
               {"too_long", prepared->too_long},
               {"records", prepared->rows},
               {"tokens", prepared->tokens},
               {"targets", prepared->targets}},
              console);
    return absl::OkStatus();
  }
  console.out << "wrote " << instructions.to << ": " << Plural(prepared->rows, "record") << " of "
              << Plural(prepared->examples, "example") << " with "
              << Plural(prepared->tokens, "token") << ", of which " << prepared->targets
              << " count; " << Plural(prepared->too_long, "example")
              << " of more tokens than the context left out\n"
              << "In a job: model: {ignored_target: " << kIgnoredTarget
              << (instructions.is_packed ? ", separate_documents: true" : "")
              << ", ...}, data: {records: {path: " << instructions.to << "}}\n";
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareInstructions(CLI::App& app) {
  const auto options = std::make_shared<PrepareInstructionsOptions>();
  InstructionSetOptions& instructions = options->instructions;
  app.add_option("FILE", instructions.from,
                 "Files whose lines are {\"prompt\": TEXT, \"response\": TEXT} or {\"messages\": "
                 "[{\"role\": ROLE, \"content\": TEXT}, ...]}")
      ->required()
      ->type_name("");
  AddCommon(app, "A directory for the records, for data.records", options->common);
  app.add_option("--tokenizer", instructions.tokenizer,
                 "A tokenizer.json, a .model of SentencePiece, or a directory with either")
      ->required()
      ->type_name("PATH");
  app.add_option("--context", instructions.context, "The context of the model, in tokens")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 65'536));
  app.add_option("--role", options->roles,
                 "How a message of a role is written, with {} where its text stands; for each role "
                 "that there is. Without any, a prompt and its response stand as they are")
      ->type_name("ROLE=TEXT");
  app.add_flag("--unpacked", options->is_unpacked,
               "Give each example a row of its own, for models that cannot keep several apart");
  return [options](Console& console) { return RunPrepareInstructions(*options, console); };
}

}  // namespace penstock
