// penstock generate: text from a checkpoint.
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "inference/checkpoint_model.h"
#include "inference/text_generator.h"
#include "services/cli/checkpoint_source.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"

namespace penstock {
namespace {

struct GenerateOptions {
  std::string source;
  std::string prompt = "\n";
  int64_t tokens = 400;
  SamplerOptions sampler = {.temperature = 0.8, .top_k = 50};
  CoordinatorOptions coordinator;
  bool json = false;
};

absl::Status RunGenerate(const GenerateOptions& options, Console& console) {
  if (options.prompt.empty()) {
    return absl::InvalidArgumentError("--prompt: is empty; give at least one character");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string path,
                            FindCheckpointPath(RealFiles(), options.source, options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointModel model, OpenCheckpointModel(RealFiles(), path));
  PENSTOCK_ASSIGN_OR_RETURN(TextGenerator generator, TextGenerator::Create(RealFiles(), model));
  Sampler sampler(options.sampler);
  std::string text = options.prompt;
  if (!options.json) console.out << text;
  for (int64_t i = 0; i < options.tokens; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const char next, generator.Next(text, sampler));
    text.push_back(next);
    if (!options.json) console.out << next << std::flush;
  }
  if (options.json) {
    PrintJson({{"checkpoint", model.directory},
               {"step", model.manifest.step},
               {"prompt", options.prompt},
               {"text", text.substr(options.prompt.size())},
               {"tokens", options.tokens},
               {"temperature", options.sampler.temperature},
               {"top_k", options.sampler.top_k},
               {"seed", options.sampler.seed}},
              console);
  } else {
    console.out << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareGenerate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  app.add_option("CHECKPOINT|ID", options->source,
                 "A checkpoint, a directory of checkpoints (the newest counts), or a job's ID")
      ->required()
      ->type_name("");
  app.add_option("--prompt", options->prompt, "The text to continue; default a line feed")
      ->type_name("TEXT");
  app.add_option("--tokens", options->tokens, "Tokens to add")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--temperature", options->sampler.temperature,
                 "Below 1 text is likelier, above 1 more surprising; 0 always takes the likeliest")
      ->type_name("T")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", options->sampler.top_k, "Sample among the K likeliest; 0: all")
      ->type_name("K")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options->sampler.seed, "The same seed gives the same text")
      ->type_name("N")
      ->capture_default_str();
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunGenerate(*options, console); };
}

}  // namespace penstock
