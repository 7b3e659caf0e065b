// penstock evaluate: what a checkpoint's model makes of data.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "compute/device.h"
#include "data/pair_files.h"
#include "inference/checkpoint_model.h"
#include "inference/evaluator.h"
#include "inference/text_generator.h"
#include "inference/translation.h"
#include "job/data/data_kind.h"
#include "job/defaults.h"
#include "services/cli/checkpoint_source.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/evaluation_output.h"
#include "services/cli/job_file.h"
#include "services/cli/json_output.h"
#include "services/cli/work_display.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

struct EvaluateOptions {
  std::string source;
  std::string data;
  std::string split;
  int64_t samples = std::numeric_limits<int64_t>::max();
  int64_t batch = 16;
  std::string device = "auto";
  int threads = 1;
  std::string decode_to;  // a folder; empty: nothing is decoded
  WeightChoice weights = WeightChoice::kCurrent;
  CoordinatorOptions coordinator;
  bool json = false;
};

// Where the model is, and what it is evaluated on.
struct EvaluationInput {
  std::string checkpoint;
  v1::JobSpec job;   // its data and seed
  std::string root;  // its relative paths start there
  DataPart part = DataPart::kValidation;
};

bool IsJobFile(const std::string& path) {
  return absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
}

constexpr std::pair<const char*, DataPart> kSplits[] = {{"training", DataPart::kTraining},
                                                        {"validation", DataPart::kValidation},
                                                        {"all", DataPart::kAll}};

absl::Status TakeJob(const std::string& path, EvaluationInput& input) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob({.path = path}));
  input.job = std::move(document.spec);
  input.root = FolderOfJob(path);
  return absl::OkStatus();
}

// A job's data have a part that was kept for this; a path that is given is for this as a whole.
absl::StatusOr<EvaluationInput> FindInput(const EvaluateOptions& options) {
  EvaluationInput input;
  if (IsJobFile(options.source)) {
    PENSTOCK_RETURN_IF_ERROR(TakeJob(options.source, input));
    input.checkpoint = input.job.checkpoint().directory();
    if (input.checkpoint.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint.directory: is missing in ", options.source,
                       ", so that there is no model to evaluate; give the checkpoint, with --data ",
                       options.source));
    }
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(input.checkpoint,
                              FindCheckpointPath(RealFiles(), options.source, options.coordinator));
  }
  if (IsJobFile(options.data)) {
    PENSTOCK_RETURN_IF_ERROR(TakeJob(options.data, input));
  } else if (!options.data.empty()) {
    *input.job.mutable_data() = DataAt(options.data);
    input.root = std::filesystem::current_path().string();
    input.part = DataPart::kAll;
  }
  if (input.job.data().source_case() == v1::DataSpec::SOURCE_NOT_SET) {
    return absl::InvalidArgumentError(
        "--data: is missing; a checkpoint does not hold its data, so name a text, a directory of "
        "records, or the job file");
  }
  FillDefaultsOfAnyMethod(input.job);
  for (const auto& [name, part] : kSplits) {
    if (options.split == name) input.part = part;
  }
  return input;
}

std::string NameOf(DataPart part) {
  const auto* const found =
      std::find_if(std::begin(kSplits), std::end(kSplits),
                   [part](const auto& split) { return split.second == part; });
  return found->first;
}

// The path that was read: of records with a directory for validation, that one.
std::string DataPath(EvaluationInput& input) {
  const std::vector<DataInput> paths =
      DataKindOf(input.job.data()).inputs(*input.job.mutable_data());
  if (paths.empty()) return "made-up data";
  const auto validation = std::find_if(paths.begin(), paths.end(), [](const DataInput& path) {
    return path.use == DataInput::Use::kValidation;
  });
  const bool is_second = validation != paths.end() && input.part == DataPart::kValidation;
  return JoinPath(input.root, *(is_second ? *validation : paths.front()).path);
}

// Of a text whose tokens are not bytes, what its checkpoint's tokenizer makes of it.
void TakeTokenizer(const CheckpointModel& model, EvaluationInput& input) {
  if (!input.job.data().has_text() || model.manifest.attached.empty()) return;
  v1::TextSpec& text = *input.job.mutable_data()->mutable_text();
  // The characters of another text would have other ids.
  if (text.tokenizer() == kByteTokenizer || text.tokenizer() == kCharacterTokenizer) {
    text.set_tokenizer(model.directory);
  }
}

// The bits that the model needs for a byte of the text; none of data that are no text, or whose text is not known.
absl::StatusOr<std::optional<double>> BitsPerByte(const CheckpointModel& model,
                                                  const EvaluationInput& input,
                                                  const DataSource& data,
                                                  const ModelScores& scores) {
  const bool is_text = input.job.data().has_text();
  const bool has_bytes = is_text && input.job.data().text().tokenizer() == kByteTokenizer;
  if (!scores.perplexity.has_value()) return std::nullopt;
  const double bits = scores.evaluation.loss / std::log(2.0);
  if (has_bytes) return bits;
  const bool has_tokenizer = is_text || !model.manifest.attached.empty();
  // Of masked tokens the targets are no text.
  const bool has_next_tokens =
      is_text || (input.job.data().has_tokens() && !input.job.data().tokens().has_masking());
  if (!has_tokenizer || !has_next_tokens) return std::nullopt;
  const std::string path =
      is_text ? JoinPath(input.root, input.job.data().text().tokenizer()) : std::string();
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            TokenizerOf(RealFiles(), model, path));
  PENSTOCK_ASSIGN_OR_RETURN(
      const int64_t bytes,
      TargetBytes(data, scores.samples, model.graph.ports[0].type.dims[0], *tokenizer));
  return bits * static_cast<double>(scores.targets) / static_cast<double>(bytes);
}

// Decodes the pairs in `directory`.
absl::StatusOr<DecodedPairs> Decode(const EvaluateOptions& options, const CheckpointModel& model,
                                    const std::string& directory, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PairFiles> pairs,
                            PairFiles::Open(RealFiles(), directory, {}));
  absl::StatusOr<Translation> translation;
  {
    WorkDisplay display("pair", console, RealClock());
    translation = Translate(RealFiles(), model, *pairs,
                            {.batch = options.batch,
                             .threads = options.threads,
                             .pairs_max = std::min(options.samples, pairs->pairs()),
                             .progress = [&](int64_t done, int64_t all) {
                               display.Draw(done, all, "decoding");
                               return absl::OkStatus();
                             }});
  }
  PENSTOCK_RETURN_IF_ERROR(translation.status());
  DecodedPairs decoded = {.pairs = static_cast<int64_t>(translation->hypotheses.size()),
                          .left_out = translation->left_out};
  PENSTOCK_ASSIGN_OR_RETURN(decoded.files,
                            WriteTranslation(RealFiles(), *translation, options.decode_to));
  return decoded;
}

absl::Status RunEvaluate(const EvaluateOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(EvaluationInput input, FindInput(options));
  if (!options.decode_to.empty() && !input.job.data().has_pairs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--decode: is for pairs of sequences (data.pairs), but the data are ",
                     DataKindOf(input.job.data()).key));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointModel model,
                            OpenCheckpointModel(RealFiles(), input.checkpoint, options.weights));
  TakeTokenizer(model, input);
  PENSTOCK_ASSIGN_OR_RETURN(const Device device, ParseDevice(options.device));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                            MakeBackendOn(device, options.threads));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<DataSource> data,
                            OpenEvaluationData(RealFiles(), input.job, model.graph, input.part,
                                               options.batch, input.root));

  EvaluationReport report = {.checkpoint = model.directory,
                             .step = model.manifest.step,
                             .weights = model.weights,
                             .data = DataPath(input),
                             .split = NameOf(input.part)};
  {
    WorkDisplay display("sample", console, RealClock());
    Evaluator evaluator(RealFiles(), model, *backend, options.batch);
    PENSTOCK_ASSIGN_OR_RETURN(
        report.scores, evaluator.Run(*data, options.samples, [&](int64_t done, int64_t samples) {
          display.Draw(done, samples, model.directory);
        }));
  }
  PENSTOCK_ASSIGN_OR_RETURN(report.bits_per_byte, BitsPerByte(model, input, *data, report.scores));
  if (!options.decode_to.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(report.decoded, Decode(options, model, report.data, console));
  }
  if (options.json) {
    PrintJson(EvaluationJson(report), console);
  } else {
    console.out << EvaluationText(report);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareEvaluate(CLI::App& app) {
  const auto options = std::make_shared<EvaluateOptions>();
  app.add_option("CHECKPOINT|ID|JOB.yaml", options->source,
                 "A checkpoint, a directory of checkpoints (the newest counts), a job's ID, or a "
                 "job file, whose checkpoint.directory and data count")
      ->required()
      ->type_name("");
  app.add_option(
         "--data", options->data,
         "A text, token files, a directory of records or of pairs, or a job file with the data")
      ->type_name("PATH");
  app.add_option("--split", options->split,
                 "training, validation or all of it; default: of a job's data validation, of a "
                 "text or records all")
      ->type_name("SPLIT")
      ->check(CLI::IsMember({"training", "validation", "all"}));
  app.add_option("--samples", options->samples, "Stop after this many samples; default: all")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", options->batch, "Samples of a forward")
      ->type_name("N")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--device", options->device, "auto, cpu or cuda:N")
      ->type_name("DEVICE")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "Threads of the CPU")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--decode", options->decode_to,
                 "Of pairs: decode the sources greedily, on the CPU, and write hypotheses.txt, "
                 "references.txt and sources.txt into this folder")
      ->type_name("DIR");
  AddWeightsOption(app, options->weights);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunEvaluate(*options, console); };
}

}  // namespace penstock
