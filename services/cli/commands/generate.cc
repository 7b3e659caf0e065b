// penstock generate: text from a checkpoint.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "inference/checkpoint_model.h"
#include "inference/continuations.h"
#include "inference/text_generator.h"
#include "model/documents.h"
#include "services/cli/checkpoint_source.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"

namespace penstock {
namespace {

struct GenerateOptions {
  std::string source;
  std::vector<std::string> prompts;
  std::string tokenizer;
  std::vector<std::string> stops;
  int64_t tokens = 400;
  SamplerOptions sampler = {.temperature = 0.8, .top_k = 50};
  int threads = 1;
  bool no_cache = false;
  WeightChoice weights = WeightChoice::kCurrent;
  CoordinatorOptions coordinator;
  bool json = false;
};

void PrintResult(const GenerateOptions& options, const CheckpointModel& model,
                 const std::vector<Continuation>& texts, Console& console) {
  nlohmann::ordered_json continuations = nlohmann::ordered_json::array();
  for (const Continuation& text : texts) {
    continuations.push_back({{"prompt", text.prompt},
                             {"text", text.text},
                             {"tokens", text.tokens},
                             {"ended_by", text.ended_by}});
  }
  PrintJson({{"checkpoint", model.directory},
             {"step", model.manifest.step},
             {"weights", std::string(Name(model.weights))},
             {"prompt", texts.front().prompt},
             {"text", texts.front().text},
             {"tokens", texts.front().tokens},
             {"temperature", options.sampler.temperature},
             {"top_k", options.sampler.top_k},
             {"top_p", options.sampler.top_p},
             {"seed", options.sampler.seed},
             {"texts", continuations}},
            console);
}

absl::Status RunGenerate(GenerateOptions options, Console& console) {
  if (options.prompts.empty()) options.prompts = {"\n"};
  PENSTOCK_ASSIGN_OR_RETURN(const std::string path,
                            FindCheckpointPath(RealFiles(), options.source, options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointModel model,
                            OpenCheckpointModel(RealFiles(), path, options.weights));
  model.graph = JoinDocuments(model.graph);  // each text is one
  const bool has_tokenizer = !options.tokenizer.empty() || !model.manifest.attached.empty();
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckGeneratesText(model.graph, has_tokenizer), model.directory));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            TokenizerOf(RealFiles(), model, options.tokenizer));
  absl::StatusOr<Continuations> continuations = Continuations::Create(
      *tokenizer, options.prompts,
      {.tokens_max = options.tokens, .stops = options.stops, .sampler = options.sampler});
  PENSTOCK_RETURN_IF_ERROR(Annotate(continuations.status(), "--prompt"));
  const std::vector<Continuation>& texts = continuations->texts();
  PENSTOCK_ASSIGN_OR_RETURN(TextGenerator generator,
                            TextGenerator::Create(RealFiles(), model,
                                                  {.vocabulary = tokenizer->vocabulary_size(),
                                                   .texts = static_cast<int64_t>(texts.size()),
                                                   .threads = options.threads,
                                                   .caches = !options.no_cache}));
  // One text is shown as it comes, several when all have ended.
  const bool streams = !options.json && texts.size() == 1;
  if (streams) console.out << options.prompts.front() << std::flush;
  PENSTOCK_RETURN_IF_ERROR(continuations->Run(
      [&](auto tokens, auto samplers) { return generator.Next(tokens, samplers); },
      [&](size_t, absl::string_view shown) {
        if (streams) console.out << shown << std::flush;
      }));
  if (options.json) {
    PrintResult(options, model, texts, console);
  } else if (streams) {
    console.out << "\n";
  } else {
    const char* before = "";
    for (const Continuation& text : texts) {
      console.out << std::exchange(before, "\n") << text.prompt << text.text << "\n";
    }
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
  app.add_option("--prompt", options->prompts,
                 "The text to continue; default a line feed; may be repeated, for several at once")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  app.add_option("--tokenizer", options->tokenizer,
                 "A tokenizer.json, a .model of SentencePiece, or a directory with either; default "
                 "the checkpoint's, or bytes")
      ->type_name("PATH");
  app.add_option("--tokens", options->tokens, "Tokens to add at most")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--stop", options->stops, "End before this text; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  app.add_option("--temperature", options->sampler.temperature,
                 "Below 1 text is likelier, above 1 more surprising; 0 always takes the likeliest")
      ->type_name("T")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", options->sampler.top_k, "Sample among the K likeliest; 0: all")
      ->type_name("K")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-p", options->sampler.top_p,
                 "Sample among the likeliest that together have probability P")
      ->type_name("P")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options->sampler.seed, "The same seed gives the same text")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "Threads of the CPU")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag(
      "--no-cache", options->no_cache,
      "Compute a whole text for each token, instead of keeping what attention needs of it");
  AddWeightsOption(app, options->weights);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunGenerate(*options, console); };
}

}  // namespace penstock
