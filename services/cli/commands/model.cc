// penstock model show: the layers of a job's model, with what they cost.
#include <memory>
#include <string>

#include "base/status.h"
#include "job/defaults.h"
#include "job/keys/check_fields.h"
#include "job/model_graph.h"
#include "model/fuse_branches.h"
#include "model/render_graph.h"
#include "services/cli/commands/commands.h"
#include "services/cli/drawings.h"
#include "services/cli/job_file.h"
#include "services/cli/json_output.h"
#include "services/cli/model_output.h"

namespace penstock {
namespace {

struct ModelOptions {
  JobFileOptions job;
  std::string svg_path;
  bool json = false;
};

// The model alone has to be right, so that it can be looked at before the rest of the job is written.
absl::StatusOr<ModelGraph> ModelOfFile(const ModelOptions& options, std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(options.job));
  FillDefaultsOfAnyMethod(document.spec);
  name = document.spec.name();
  const v1::ModelSpec& spec = document.spec.model();
  absl::StatusOr<ModelGraph> model =
      spec.architecture_case() == v1::ModelSpec::ARCHITECTURE_NOT_SET
          ? InvalidKey("model", "is missing; the job has no model to show")
          : BuildModel(document.spec);
  if (!model.ok()) return WithPlace(model.status(), document.path, document.positions);
  return model;
}

absl::Status RunShow(const ModelOptions& options, Console& console) {
  if (!options.svg_path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(options.svg_path));
  std::string name;
  PENSTOCK_ASSIGN_OR_RETURN(const ModelGraph described, ModelOfFile(options, name));
  const ModelGraph model = FuseBranches(described);  // what it costs is what is computed
  if (!options.svg_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteTextFile(
        options.svg_path, RenderGraphSvg(model, name.empty() ? options.job.path : name)));
    console.err << "wrote " << options.svg_path << "\n";
  }
  if (options.json) {
    PrintJson(ModelJson(model), console);
  } else {
    console.out << ModelText(model);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareModel(CLI::App& app) {
  const auto options = std::make_shared<ModelOptions>();
  CLI::App* show = app.add_subcommand(
      "show", "List the layers with shapes, parameters, FLOPs and the bytes at each cut");
  AddJobOption(*show, options->job);
  show->add_option("--svg", options->svg_path, "Draw the layers and their values into this file")
      ->type_name("FILE");
  show->add_flag("--json", options->json, "Print JSON");
  app.require_subcommand(1);
  return [options](Console& console) { return RunShow(*options, console); };
}

}  // namespace penstock
