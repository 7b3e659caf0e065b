// penstock profile: what a device takes for every layer of a job's model.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "compute/device.h"
#include "job/model_profile.h"
#include "job/resolve.h"
#include "job/yaml_writer.h"
#include "services/cli/commands/commands.h"
#include "services/cli/drawings.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_file.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/cli/work_display.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

struct Options {
  JobFileOptions job;
  std::vector<int64_t> samples;  // empty: SizesAround the job's
  double seconds = LayerProfilerOptions().seconds;
  std::string device = "auto";
  std::string output;
  std::string times_output;
  bool json = false;
};

// Half as many samples in a microbatch as the job has, as many, and twice as many.
std::vector<int64_t> SizesAround(const ResolvedJob& job) {
  const int64_t samples = job.microbatch.batch;
  std::vector<int64_t> sizes;
  if (samples >= 2) sizes.push_back(samples / 2);
  sizes.push_back(samples);
  if (samples < job.batch) sizes.push_back(std::min(2 * samples, job.batch));
  return sizes;
}

absl::StatusOr<v1::ModelProfile> Profile(const ResolvedJob& job, const Options& options,
                                         const std::vector<int64_t>& samples, Console& console) {
  // Signals are taken in before the back-end starts threads.
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(const Device device, ParseDevice(options.device));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                            MakeBackendOn(device, job.threads, job.repeatability));
  WorkDisplay display("measurement", console, RealClock());
  return ProfileLayers(*backend, job.chain,
                       {.samples = samples,
                        .precision = job.precision,
                        .optimizer = job.optimizer,
                        .seed = job.seed,
                        .seconds = options.seconds},
                       RealClock(), [&](const ProfilerProgress& progress) -> absl::Status {
                         if (interrupt.Count() > 0) {
                           return InterruptedError("interrupted; nothing was written");
                         }
                         display.Draw(
                             progress.done, progress.total,
                             absl::StrCat(progress.layer, ", ", progress.samples, " samples"));
                         return absl::OkStatus();
                       });
}

int64_t LayersOfShape(const v1::ModelProfile& profile, const std::string& shape) {
  return std::count_if(profile.layers().begin(), profile.layers().end(),
                       [&](const v1::ProfiledLayer& layer) { return layer.shape() == shape; });
}

std::string TimeText(const v1::MeasuredTime& time) {
  return absl::StrCat(FormatFixed(time.ms(), 3), " ±", FormatFixed(time.spread_ms(), 3));
}

std::string ProfileText(const v1::ModelProfile& profile) {
  Table table({{"LAYERS", Table::Align::kRight},
               {"SHAPE"},
               {"SAMPLES", Table::Align::kRight},
               {"FORWARD MS", Table::Align::kRight},
               {"INPUT MS", Table::Align::kRight},
               {"WEIGHT MS", Table::Align::kRight},
               {"UPDATE MS", Table::Align::kRight},
               {"WEIGHTS", Table::Align::kRight},
               {"STASH", Table::Align::kRight}});
  for (const v1::ShapeProfile& shape : profile.shapes()) {
    bool first = true;
    for (const v1::SizeProfile& size : shape.sizes()) {
      table.AddRow({first ? absl::StrCat(LayersOfShape(profile, shape.shape())) : "",
                    first ? shape.shape() : "", absl::StrCat(size.samples()),
                    TimeText(size.forward()), TimeText(size.backward_input()),
                    TimeText(size.backward_weight()), first ? TimeText(shape.update()) : "",
                    first ? FormatBytes(shape.weight_bytes()) : "",
                    FormatBytes(size.stash_bytes() + size.kept_bytes())});
      first = false;
    }
  }
  return absl::StrCat(profile.device(), ", ", profile.precision(), ", ", profile.optimizer(), ", ",
                      profile.time_steps(), " time steps; the time of one microbatch\n\n",
                      table.Render());
}

nlohmann::ordered_json TimeJson(const v1::MeasuredTime& time) {
  return {{"ms", time.ms()}, {"spread_ms", time.spread_ms()}};
}

nlohmann::ordered_json ShapeJson(const v1::ShapeProfile& shape) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
  for (const v1::SizeProfile& size : shape.sizes()) {
    sizes.push_back({{"samples", size.samples()},
                     {"forward", TimeJson(size.forward())},
                     {"backward_input", TimeJson(size.backward_input())},
                     {"backward_weight", TimeJson(size.backward_weight())},
                     {"output_bytes", size.output_bytes()},
                     {"stash_bytes", size.stash_bytes()},
                     {"kept_bytes", size.kept_bytes()},
                     {"weight_stash_bytes", size.weight_stash_bytes()}});
  }
  return {{"shape", shape.shape()},
          {"weight_bytes", shape.weight_bytes()},
          {"gradient_bytes", shape.gradient_bytes()},
          {"optimizer_bytes", shape.optimizer_bytes()},
          {"update", TimeJson(shape.update())},
          {"sizes", sizes}};
}

nlohmann::ordered_json ProfileJson(const v1::ModelProfile& profile) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const v1::ProfiledLayer& layer : profile.layers()) {
    layers.push_back({{"layer", layer.layer()}, {"shape", layer.shape()}});
  }
  nlohmann::ordered_json shapes = nlohmann::ordered_json::array();
  for (const v1::ShapeProfile& shape : profile.shapes()) shapes.push_back(ShapeJson(shape));
  return {{"device", profile.device()},
          {"precision", profile.precision()},
          {"optimizer", profile.optimizer()},
          {"time_steps", profile.time_steps()},
          {"layers", layers},
          {"shapes", shapes}};
}

absl::Status WriteFile(const std::string& path, const std::string& text, Console& console) {
  PENSTOCK_RETURN_IF_ERROR(WriteTextFile(path, text));
  console.err << "wrote " << path << "\n";
  return absl::OkStatus();
}

// What cannot be written is better known before the work.
absl::Status CheckFiles(const Options& options, const std::vector<int64_t>& samples,
                        const ResolvedJob& job) {
  for (const std::string& path : {options.output, options.times_output}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  const int64_t of_job = job.microbatch.batch;
  if (options.times_output.empty() || (samples.front() <= of_job && of_job <= samples.back())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--times: the job's microbatches have ", of_job,
                                                 " samples, which is not among --samples; add ",
                                                 of_job));
}

absl::Status Run(const Options& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec spec, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  const std::vector<int64_t> samples = options.samples.empty() ? SizesAround(job) : options.samples;
  PENSTOCK_RETURN_IF_ERROR(CheckFiles(options, samples, job));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile,
                            Profile(job, options, samples, console));
  if (options.json) {
    PrintJson(ProfileJson(profile), console);
  } else {
    console.out << ProfileText(profile);
  }
  if (!options.output.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteFile(options.output, PrintModelProfile(profile), console));
  }
  if (options.times_output.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times,
                            DeviceTimesOf(profile, job.microbatch.batch));
  return WriteFile(options.times_output, WriteYamlMessage(times, "Measured by `penstock profile`."),
                   console);
}

}  // namespace

CommandRunner DeclareProfile(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  AddJobSourceOptions(app, options->job);
  app.add_option("--samples", options->samples,
                 "Samples in a microbatch, one size or several ascending; default: half as many as "
                 "the job's, as many, and twice as many")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--seconds", options->seconds, "Time to spend on each layer and size, at least")
      ->type_name("S")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--device", options->device,
                 "What to measure: cpu, cuda:N, or auto (a GPU or the CPU)")
      ->envname("PENSTOCK_DEVICE")
      ->check([](const std::string& text) {
        return std::string(ParseDevice(text).status().message());
      });
  app.add_option("-o,--output", options->output, "Write the profile to this file, as YAML")
      ->type_name("FILE");
  app.add_option("--times", options->times_output,
                 "Write the times of the job's own microbatches, for `compare --times`")
      ->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return Run(*options, console); };
}

}  // namespace penstock
