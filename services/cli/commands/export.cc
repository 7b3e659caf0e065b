// penstock export: a checkpoint as a directory of Hugging Face's transformers.
#include <memory>

#include "base/status.h"
#include "inference/checkpoint_model.h"
#include "inference/hugging_face.h"
#include "services/cli/checkpoint_source.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"

namespace penstock {
namespace {

struct ExportOptions {
  std::string source;
  HuggingFaceOptions files;
  WeightChoice weights = WeightChoice::kCurrent;
  CoordinatorOptions coordinator;
  bool json = false;
};

absl::Status RunExport(const ExportOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string path,
                            FindCheckpointPath(RealFiles(), options.source, options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointModel model,
                            OpenCheckpointModel(RealFiles(), path, options.weights));
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedFiles exported,
                            ExportHuggingFace(RealFiles(), model, options.files));
  if (options.json) {
    PrintJson({{"checkpoint", model.directory},
               {"step", model.manifest.step},
               {"weights", std::string(Name(model.weights))},
               {"weights_sha256", model.manifest.weights_sha256},
               {"parameters", model.graph.parameter_count()},
               {"untied", model.graph.untied},
               {"model", exported.weights},
               {"config", exported.config},
               {"others", exported.others}},
              console);
  } else {
    console.out << "wrote " << exported.weights << " and " << exported.config << " ("
                << model.graph.parameter_count() << " parameters after step " << model.manifest.step
                << ")\n";
    if (model.graph.untied) {
      console.out << "weights that were tied are copies of their own now, trained apart\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareExport(CLI::App& app) {
  const auto options = std::make_shared<ExportOptions>();
  app.add_option("CHECKPOINT|ID", options->source,
                 "A checkpoint, a directory of checkpoints (the newest counts), or a job's ID")
      ->required()
      ->type_name("");
  app.add_option("-o,--output", options->files.output,
                 "A directory for model.safetensors and config.json, or the path of the former")
      ->required()
      ->type_name("DIR|FILE.safetensors");
  app.add_option(
         "--tokenizer", options->files.source,
         "Take the tokenizer, special tokens and labels from this directory of transformers, "
         "whatever tokenizer the checkpoint has; default: the checkpoint's tokenizer, and "
         "what it lacks from the directory whose weights the model started from")
      ->type_name("DIR");
  AddWeightsOption(app, options->weights);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunExport(*options, console); };
}

}  // namespace penstock
