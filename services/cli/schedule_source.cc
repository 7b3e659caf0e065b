#include "services/cli/schedule_source.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "job/keys/key_options.h"
#include "job/keys/suggest.h"
#include "schedule/lower.h"
#include "schedule/recompute.h"
#include "schedule/text.h"
#include "services/cli/command_text.h"

namespace penstock {
namespace {

constexpr int64_t kScheduleBytesMax = int64_t{256} << 20;
constexpr int32_t kSimulatedStagesMax = 1024;

absl::Status NeitherMethodNorFile(const std::string& name) {
  std::vector<std::string> names;
  for (const Method& method : Methods()) {
    names.emplace_back(method.name.data(), method.name.size());
  }
  const std::string nearest = NearestName(name, names);
  return absl::NotFoundError(absl::StrCat("'", name, "' is neither a method nor a file; ",
                                          nearest.empty()
                                              ? "`penstock methods` lists the methods"
                                              : absl::StrCat("did you mean ", nearest, "?")));
}

// `topology` with the stages that the user chose.
absl::StatusOr<Topology> WithRecompute(Topology topology, const std::string& text) {
  absl::StatusOr<RecomputeChoice> choice = ParseRecompute(text);
  if (!choice.ok()) return Annotate(choice.status(), "--recompute");
  if (topology.form == Topology::Form::kThereAndBack && !choice->places.empty()) {
    return absl::InvalidArgumentError(
        "--recompute: there and back all but the last stage recompute; use all, or leave it out");
  }
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckPlaces(*choice, topology.depth()), "--recompute"));
  topology.Recompute(ChosenStages(*choice, topology));
  return topology;
}

absl::StatusOr<Schedule> LoadFile(const std::string& path, const LowerOptions& options,
                                  Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, RealFiles().Read(path, kScheduleBytesMax));
  absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (const std::string note = NoteOnOldNames(text); schedule.ok() && !note.empty()) {
    console.err << path << ": " << note << "\n";
  }
  if (schedule.ok() && !IsComplete(*schedule)) {
    schedule = CompleteSchedule(*std::move(schedule), options);
  }
  if (!schedule.ok()) return Annotate(schedule.status(), path);
  return schedule;
}

// A file says itself what these flags say of a method.
absl::Status CheckIsOfAFile(const ScheduleSource& source) {
  const ScheduleSource plain;
  const std::pair<bool, const char*> flags[] = {
      {source.stages != plain.stages, "--stages"},
      {source.stages_per_worker != plain.stages_per_worker, "--stages-per-worker"},
      {source.stages_per_forward != plain.stages_per_forward, "--stages-per-forward"},
      {source.replicas != plain.replicas, "--replicas"},
      {source.microbatches != plain.microbatches, "--microbatches"},
      {source.steps != plain.steps, "--steps"},
      {source.recompute != plain.recompute, "--recompute"},
      {source.offload != plain.offload, "--offload"},
      {source.stream_weights, "--stream-weights"},
      {source.weights_in_file, "--weights-in-file"},
      {source.delta != plain.delta, "--delta"},
      {source.seed != plain.seed, "--seed"}};
  for (const auto& [given, flag] : flags) {
    if (!given) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is of a method; the schedule file ", source.name, " says its own"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Topology> PlaceStages(const Method& method, const ScheduleSource& source,
                                     int32_t per_worker) {
  const bool of_model = method.placement == Placement::kReplicas;
  if (!source.replicas.empty() && !of_model) {
    const bool says_stages = source.has_stages || source.replicas.size() == 1;
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<int32_t> replicas,
        ReplicasOfStages(source.replicas,
                         says_stages ? std::optional(source.stages) : std::nullopt));
    return PlaceReplicas(method, replicas, per_worker);
  }
  if (source.replicas.size() > 1) {
    return absl::InvalidArgumentError(
        "--replicas takes one number here, that of the copies of the model");
  }
  const std::optional<int32_t> copies =
      source.replicas.empty() ? std::nullopt : std::optional(source.replicas.front());
  absl::StatusOr<Topology> topology = PlaceMethod(
      method, source.stages, source.workers > 0 ? source.workers : source.stages / per_worker,
      source.microbatches, copies, source.stages_per_forward);
  return topology.ok() && source.stream_weights ? StreamWeights(*topology, source.weights_in_file)
                                                : topology;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReplicasOfStages(const std::vector<int32_t>& given,
                                                      std::optional<int32_t> stages) {
  if (!stages.has_value() || static_cast<size_t>(*stages) == given.size()) return given;
  if (given.size() == 1) return std::vector<int32_t>(*stages, given.front());
  return absl::InvalidArgumentError(absl::StrCat("--replicas has ", given.size(),
                                                 " numbers, but --stages is ", *stages,
                                                 "; give one number, or one for each stage"));
}

void AddScheduleOptions(CLI::App& app, ScheduleSource& source) {
  app.add_option("--stages", source.stages, "Stages of the pipeline (of a method)")
      ->type_name("S")
      ->check(CLI::Range(1, kSimulatedStagesMax))
      ->each([&source](const std::string&) { source.has_stages = true; })
      ->capture_default_str();
  app.add_option("--stages-per-worker", source.stages_per_worker,
                 "Stages of a worker; default: the fewest that the method runs with, 1 or 2")
      ->type_name("V")
      ->check(CLI::Range(1, kSimulatedStagesMax));
  app.add_option("--workers", source.workers,
                 "Workers that the stages go round (of roundpipe and roundpipe-async); default: "
                 "one for each")
      ->type_name("W")
      ->check(CLI::Range(1, kSimulatedStagesMax));
  app.add_option("--stages-per-forward", source.stages_per_forward,
                 "Stages that a worker passes together on the way there (of roundpipe and "
                 "roundpipe-async)")
      ->type_name("N")
      ->check(CLI::Range(1, kSimulatedStagesMax))
      ->capture_default_str();
  app.add_option(
         "--replicas", source.replicas,
         "Workers that hold each stage, for all or one number for each (of gpipe, 1f1b, "
         "pipedream and their like); copies of the model (of local-sgd; default: as many as "
         "workers)")
      ->type_name("R[,R...]")
      ->delimiter(',')
      ->check(CLI::Range(1, kSimulatedStagesMax));
  app.add_option("--microbatches", source.microbatches, "Microbatches in a step (of a method)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--steps", source.steps, "Steps without a cut between them (of a method)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--recompute", source.recompute,
                 "Stages that do their forward again before the backward (of a method): none, all, "
                 "or places such as 0,1")
      ->type_name("WHICH")
      ->check(KnownValues({"none", "all"}))
      ->capture_default_str();
  app.add_option("--offload", source.offload,
                 "Stages that keep only some stashes on the device, 3 or as many as a colon says, "
                 "and the others on the host (of a method): none, all, or places such as 0,1:4")
      ->type_name("WHICH")
      ->check(KnownValues({"none", "all"}))
      ->capture_default_str();
  app.add_flag("--stream-weights", source.stream_weights,
               "Workers keep the weights of those stages alone that they update, and get others "
               "when they need them (of roundpipe)");
  app.add_flag("--weights-in-file", source.weights_in_file,
               "Those weights, and the optimizer's state, are in files of the workers (with "
               "--stream-weights)");
  app.add_option("--delta", source.delta,
                 "The most updates that weights may be old (of rpd); default: PipeDream's delay")
      ->type_name("D")
      ->check(CLI::Range(int64_t{0}, MaxOfJobKey("pipeline.rpd.delta")));
  app.add_option("--seed", source.seed, "The seed of the samples of rpd")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--send-early", source.send_early,
               "Send a gradient on before that of the weights is computed (of a method, or a file "
               "without messages)");
}

absl::StatusOr<ScheduleOptions> CatalogOptions(const Method& method, const ScheduleSource& source) {
  if (method.placement == Placement::kListed) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name,
                     " has an order for the times of its stages; `penstock schedule search` finds "
                     "and draws one, and writes it to a file"));
  }
  const int32_t per_worker = source.stages_per_worker > 0 ? source.stages_per_worker
                                                          : StagesPerWorkerMin(method.placement);
  if (source.workers > 0 && method.placement != Placement::kRoundTrip) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers is not for ", method.name,
                     ", whose stages say how many workers it has; roundpipe has it"));
  }
  if (source.stages_per_forward > 1 && method.placement != Placement::kRoundTrip) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--stages-per-forward is not for ", method.name,
        ", whose stages do their backwards where their forwards are; roundpipe has it"));
  }
  if (source.stream_weights && method.placement != Placement::kRoundTrip) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stream-weights is not for ", method.name,
                     ", whose workers keep the stages that they pass; roundpipe has it"));
  }
  if (source.weights_in_file && method.streams_weights) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--weights-in-file is not for ", method.name,
        ", whose weights come from the memory of the worker that updates them; roundpipe has it"));
  }
  if (source.weights_in_file && !source.stream_weights) {
    return absl::InvalidArgumentError(
        "--weights-in-file is for weights that are streamed; give "
        "--stream-weights, too");
  }
  if (source.workers > 0 && source.stages_per_worker > 0) {
    return absl::InvalidArgumentError("--workers and --stages-per-worker say the same; give one");
  }
  if (source.workers == 0 && source.stages % per_worker != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--stages ", source.stages,
                                                   " is not a multiple of the ", per_worker,
                                                   " stages that each worker holds"));
  }
  absl::StatusOr<Topology> topology = PlaceStages(method, source, per_worker);
  if (!topology.ok()) return Annotate(topology.status(), method.name);
  topology = WithRecompute(*std::move(topology), source.recompute);
  PENSTOCK_RETURN_IF_ERROR(topology.status());
  absl::StatusOr<OffloadChoice> offload = ParseOffload(source.offload);
  if (!offload.ok()) return Annotate(offload.status(), "--offload");
  PENSTOCK_RETURN_IF_ERROR(Annotate(
      CheckOffload(*offload, *ParseRecompute(source.recompute), topology->depth()), "--offload"));
  return ScheduleOptions{.topology = *std::move(topology),
                         .microbatches_per_step = source.microbatches,
                         .delta = source.delta,
                         .seed = source.seed,
                         .send_gradient_early = source.send_early,
                         .offload = *std::move(offload)};
}

absl::StatusOr<Schedule> LoadSchedule(const ScheduleSource& source, Console& console) {
  const absl::StatusOr<const Method*> method = FindMethod(source.name);
  if (method.ok()) {
    PENSTOCK_ASSIGN_OR_RETURN(const ScheduleOptions options, CatalogOptions(**method, source));
    return BuildSchedule(**method, options,
                         {.first = 0, .count = source.steps * source.microbatches});
  }
  if (RealFiles().Exists(source.name)) {
    PENSTOCK_RETURN_IF_ERROR(CheckIsOfAFile(source));
    return LoadFile(source.name, {.send_gradient_early = source.send_early}, console);
  }
  return NeitherMethodNorFile(source.name);
}

}  // namespace penstock
