// penstock generate: text from a checkpoint.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "inference/checkpoint_model.h"
#include "inference/text_generator.h"
#include "inference/text_output.h"
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
  CoordinatorOptions coordinator;
  bool json = false;
};

// A text on its way.
struct Continuation {
  TextOutput output;
  std::string text;  // without the prompt
  int64_t added = 0;
  const char* ended_by = nullptr;  // null: it goes on
};

// `tokens`: gets those of each prompt.
absl::StatusOr<std::vector<Continuation>> Begin(const GenerateOptions& options,
                                                const Tokenizer& tokenizer,
                                                std::vector<std::vector<int32_t>>& tokens) {
  std::vector<Continuation> texts;
  for (const std::string& prompt : options.prompts) {
    PENSTOCK_ASSIGN_OR_RETURN(tokens.emplace_back(), tokenizer.Encode(prompt, Framing::kOfFile));
    if (tokens.back().empty()) {
      return absl::InvalidArgumentError("--prompt: is empty; give at least one character");
    }
    texts.push_back({.output = TextOutput(tokenizer, tokens.back(), options.stops)});
  }
  return texts;
}

// Adds `token` to a text that goes on, and returns what can be shown of it now.
absl::StatusOr<std::string> Extend(const GenerateOptions& options, std::optional<int32_t> end,
                                   int32_t token, Continuation& text) {
  ++text.added;
  std::string shown;
  if (token == end) {
    text.ended_by = "end";
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(shown, text.output.Add(token));
    if (text.output.stopped()) text.ended_by = "stop";
  }
  if (text.ended_by == nullptr && text.added == options.tokens) text.ended_by = "tokens";
  if (text.ended_by != nullptr) shown += text.output.TakeRest();
  text.text += shown;
  return shown;
}

// `tokens`: of each text. `show`: called with what can be shown of the first one.
absl::Status Continue(const GenerateOptions& options, const Tokenizer& tokenizer,
                      TextGenerator& generator, std::vector<std::vector<int32_t>> tokens,
                      std::vector<Continuation>& texts,
                      absl::FunctionRef<void(const std::string&)> show) {
  const std::optional<int32_t> end = tokenizer.SpecialId(SpecialToken::kEos);
  std::vector<Sampler> samplers;
  for (size_t i = 0; i < texts.size(); ++i) {
    SamplerOptions sampler = options.sampler;
    sampler.seed += i;
    samplers.emplace_back(sampler);
  }
  const auto goes_on = [](const Continuation& text) { return text.ended_by == nullptr; };
  while (std::any_of(texts.begin(), texts.end(), goes_on)) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> next,
                              generator.Next(tokens, absl::MakeSpan(samplers)));
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!goes_on(texts[i])) continue;
      tokens[i].push_back(next[i]);
      PENSTOCK_ASSIGN_OR_RETURN(const std::string shown, Extend(options, end, next[i], texts[i]));
      if (i == 0) show(shown);
    }
  }
  return absl::OkStatus();
}

void PrintResult(const GenerateOptions& options, const CheckpointModel& model,
                 const std::vector<Continuation>& texts, Console& console) {
  nlohmann::ordered_json continuations = nlohmann::ordered_json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    continuations.push_back({{"prompt", options.prompts[i]},
                             {"text", texts[i].text},
                             {"tokens", texts[i].added},
                             {"ended_by", texts[i].ended_by}});
  }
  PrintJson({{"checkpoint", model.directory},
             {"step", model.manifest.step},
             {"prompt", options.prompts.front()},
             {"text", texts.front().text},
             {"tokens", texts.front().added},
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
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointModel model, OpenCheckpointModel(RealFiles(), path));
  const bool has_tokenizer = !options.tokenizer.empty() || !model.manifest.attached.empty();
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckGeneratesText(model.graph, has_tokenizer), model.directory));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            TokenizerOf(RealFiles(), model, options.tokenizer));
  std::vector<std::vector<int32_t>> tokens;
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Continuation> texts, Begin(options, *tokenizer, tokens));
  PENSTOCK_ASSIGN_OR_RETURN(TextGenerator generator,
                            TextGenerator::Create(RealFiles(), model,
                                                  {.vocabulary = tokenizer->vocabulary_size(),
                                                   .texts = static_cast<int64_t>(texts.size()),
                                                   .threads = options.threads,
                                                   .caches = !options.no_cache}));
  // One text is shown as it comes, several when all have ended.
  const bool streams = !options.json && texts.size() == 1;
  if (streams) console.out << options.prompts.front() << std::flush;
  PENSTOCK_RETURN_IF_ERROR(Continue(options, *tokenizer, generator, std::move(tokens), texts,
                                    [&](const std::string& shown) {
                                      if (streams) console.out << shown << std::flush;
                                    }));
  if (options.json) {
    PrintResult(options, model, texts, console);
  } else if (streams) {
    console.out << "\n";
  } else {
    for (size_t i = 0; i < texts.size(); ++i) {
      console.out << (i == 0 ? "" : "\n") << options.prompts[i] << texts[i].text << "\n";
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
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunGenerate(*options, console); };
}

}  // namespace penstock
