#include "services/cli/job_file.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/put_path.h"
#include "base/status.h"
#include "data/pair_files.h"
#include "data/token_shards.h"
#include "google/protobuf/util/field_mask_util.h"
#include "job/data/data_kind.h"
#include "job/defaults.h"
#include "job/hugging_face/read_config.h"
#include "job/keys/key_options.h"
#include "job/open_job.h"
#include "job/yaml/yaml.h"
#include "job/yaml/yaml_message.h"
#include "schedule/text.h"
#include "services/cli/command_text.h"
#include "tokenizer/tokenizer.h"

namespace penstock {
namespace {

// "a.b.c" and "v" as a YAML document of nested mappings.
std::string NestedYaml(absl::string_view key, absl::string_view value) {
  std::string text;
  std::string indent;
  for (const absl::string_view part : absl::StrSplit(key, '.')) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", indent, part, ":");
    indent += "  ";
  }
  absl::StrAppend(&text, " ", value, "\n");
  return text;
}

// `error` of a document named `name`, without the line and column, which no file has.
absl::Status WithoutPlace(const absl::Status& error, const std::string& name) {
  absl::string_view message = error.message();
  if (absl::ConsumePrefix(&message, name)) {
    message.remove_prefix(std::min(message.find(' '), message.size()));
  }
  return absl::Status(error.code(), absl::StrCat(name, ":", message));
}

// Gives `key`, which an option says instead of the file, the option as its place.
void Move(const std::string& key, const std::string& option, YamlPositions& positions) {
  std::erase_if(positions, [&](const auto& entry) {
    absl::string_view known = entry.first;
    return absl::ConsumePrefix(&known, key) && (known.empty() || known.front() == '.');
  });
  positions[key] = option;
}

// Sets training.steps. Settings of the file for the first steps end with the last step.
void SetSteps(int64_t steps, JobDocument& document) {
  const std::string option = absl::StrCat("--steps ", steps);
  // Returns whether `key`, which asks for `asked` steps, is too long. A contradiction between two options is left
  // for the user to solve.
  const auto shortens = [&](const std::string& key, int64_t asked) {
    const auto place = document.positions.find(key);
    const bool in_file =
        place != document.positions.end() && !absl::StartsWith(place->second, "--");
    if (asked <= steps || !in_file) return false;
    document.notes.push_back(
        absl::StrCat(option, ": ", key, " is shortened from ", asked, " to ", steps));
    return true;
  };
  v1::TrainingSpec& training = *document.spec.mutable_training();
  training.set_steps(steps);
  Move("training.steps", option, document.positions);
  if (shortens("training.learning_rate.warmup_steps", training.learning_rate().warmup_steps())) {
    training.mutable_learning_rate()->set_warmup_steps(steps);
  }
  if (shortens("training.learning_rate.cooldown_steps",
               training.learning_rate().cooldown_steps())) {
    training.mutable_learning_rate()->set_cooldown_steps(steps);
  }
  v1::PipelineSpec& pipeline = *document.spec.mutable_pipeline();
  if (shortens("pipeline.synchronous_steps", pipeline.synchronous_steps())) {
    pipeline.set_synchronous_steps(steps);
  }
}

// Token files of a directory come with the tokenizer that made them, if it is there.
void TakeTokenizer(const std::string& path, v1::DataSpec& data) {
  if (!data.has_tokens() || !FindTokenizerFile(RealFiles(), path).ok()) return;
  data.mutable_tokens()->set_tokenizer(path);
}

// Names other data of the job's kind, or of any kind if it names none.
absl::Status SetData(const std::string& path, JobDocument& document) {
  v1::DataSpec& data = *document.spec.mutable_data();
  if (data.source_case() == v1::DataSpec::SOURCE_NOT_SET) data = DataAt(path);
  const std::vector<DataInput> inputs = DataKindOf(data).inputs(data);
  if (inputs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", path, ": the job has ",
                                                   DataKindOf(data).key,
                                                   ", which reads no files; leave the flag out"));
  }
  std::error_code error;
  *inputs.front().path =
      IsPutPath(path) ? path : std::filesystem::absolute(path, error).lexically_normal().string();
  TakeTokenizer(std::string(*inputs.front().path), data);
  Move(inputs.front().key, absl::StrCat("--data ", path), document.positions);
  return absl::OkStatus();
}

bool ModelWasPut(const v1::JobSpec& spec) {
  return IsPutPath(spec.model().hugging_face().directory());
}

// Puts the family in the place of a directory of Hugging Face's.
absl::Status ReadModel(const JobFileOptions& options, JobDocument& document) {
  if (ModelWasPut(document.spec)) {
    if (options.leaves_put_model) return absl::OkStatus();
    return WithPlace(
        absl::InvalidArgumentError(absl::StrCat(
            "model.hugging_face.directory: ", document.spec.model().hugging_face().directory(),
            " is with a coordinator, which `penstock submit` hands the job to; name a directory "
            "of this machine for all else")),
        document.path, document.positions);
  }
  const std::string root = options.root.empty() ? FolderOfJob(options.path) : options.root;
  const absl::Status read =
      ReadHuggingFaceConfig(RealFiles(), root, *document.spec.mutable_model());
  return read.ok() ? read : WithPlace(read, document.path, document.positions);
}

}  // namespace

v1::DataSpec DataAt(const std::string& path) {
  v1::DataSpec data;
  std::error_code error;
  const bool is_pattern = path.find('*') != std::string::npos;
  const bool is_directory = std::filesystem::is_directory(path, error);
  if (std::filesystem::exists(JoinPath(path, kPairsFile), error)) {
    data.mutable_pairs()->set_path(path);
  } else if (absl::EndsWith(path, ".bin") || is_pattern ||
             (is_directory && TokenShardPaths(RealFiles(), path).ok())) {
    data.mutable_tokens()->set_path(path);
  } else if (is_directory) {
    data.mutable_records()->set_path(path);
  } else {
    data.mutable_text()->set_path(path);
  }
  return data;
}

CLI::Option* AddJobOption(CLI::App& app, JobFileOptions& options) {
  CLI::Option* job = app.add_option("JOB.yaml", options.path, "The job file (YAML)");
  job->required()->type_name("");
  app.add_option(
         "--set", options.overrides,
         "Change a key of the job (`penstock manual job`), as in --set training.seed=2; may be "
         "repeated")
      ->type_name("KEY=VALUE")
      ->check(KnownSettings())
      ->expected(1)
      ->take_all();
  return job;
}

CLI::Option* AddJobSourceOptions(CLI::App& app, JobFileOptions& options) {
  CLI::Option* job = AddJobOption(app, options);
  app.add_option("--steps", options.steps, "Train N steps; a longer warm-up is shortened to N")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--data", options.data,
                 "Train on this text, these token files, or this directory of records or pairs")
      ->type_name("PATH");
  return job;
}

void AddJobFileOptions(CLI::App& app, JobFileOptions& options) {
  AddJobSourceOptions(app, options);
  app.add_option(
         "--method", options.method,
         "Train with this method (`penstock methods`), and with its paper's optimizer unless --set "
         "names one")
      ->type_name("NAME")
      ->check(KnownMethods({"auto", "searched"}));
  app.add_option(
         "--resume", options.resume,
         "Resume the `latest` checkpoint of the job's directory, or start if there is none; or "
         "resume the checkpoint at a path")
      ->type_name("latest|DIR")
      ->check(KnownValues({"latest"}));
  app.add_option("--race-until", options.race_until_loss,
                 "With method auto: choose the first to this training loss; default: the lowest "
                 "loss at the "
                 "end of the race")
      ->type_name("LOSS")
      ->check(CLI::PositiveNumber);
}

absl::Status ApplyOverride(const std::string& override_text, v1::JobSpec& spec,
                           std::vector<std::string>* notes) {
  const std::string name = absl::StrCat("--set ", override_text);
  const std::pair<std::string, std::string> pair =
      absl::StrSplit(override_text, absl::MaxSplits('=', 1));
  if (pair.first.empty() || !absl::StrContains(override_text, '=') ||
      absl::StrContains(override_text, '\n')) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected KEY=VALUE"));
  }
  v1::JobSpec changed;
  YamlPositions positions;
  const std::string key = PresentJobKey(pair.first);
  const absl::Status read = ReadYamlMessage(NestedYaml(key, pair.second), name, changed, positions);
  if (!read.ok()) return WithoutPlace(read, name);
  google::protobuf::FieldMask mask;
  mask.add_paths(FieldOfJobKey(key));
  google::protobuf::util::FieldMaskUtil::MergeOptions merge;
  merge.set_replace_message_fields(true);
  merge.set_replace_repeated_fields(true);
  google::protobuf::util::FieldMaskUtil::MergeMessageTo(changed, mask, merge, &spec);
  if (notes != nullptr && key != pair.first) {
    notes->push_back(absl::StrCat(name, ": the key is called ", key,
                                  " now; the next version will not know the old name"));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobDocument> ReadJob(const JobFileOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJobDocument(options.path));
  v1::JobSpec& spec = document.spec;
  document.had_prediction = spec.has_prediction();
  bool names_optimizer = false;
  for (const std::string& override_text : options.overrides) {
    PENSTOCK_RETURN_IF_ERROR(ApplyOverride(override_text, spec, &document.notes));
    Move(PresentJobKey(override_text.substr(0, override_text.find('='))),
         absl::StrCat("--set ", override_text), document.positions);
    names_optimizer = names_optimizer || absl::StartsWith(override_text, "training.optimizer");
  }
  if (!options.method.empty()) {
    SetMethod(options.method, names_optimizer, spec);
    Move("pipeline.method", absl::StrCat(options.method_flag, " ", options.method),
         document.positions);
  }
  if (options.steps > 0) SetSteps(options.steps, document);
  if (!options.data.empty()) {
    PENSTOCK_RETURN_IF_ERROR(SetData(options.data, document));
  }
  if (!options.resume.empty()) {
    const bool latest = options.resume == "latest";
    std::error_code error;
    spec.mutable_checkpoint()->set_resume(
        latest ? options.resume : std::filesystem::absolute(options.resume, error).string());
    Move("checkpoint.resume", absl::StrCat("--resume ", options.resume), document.positions);
  }
  if (options.race_until_loss.has_value()) {
    if (!MethodIsOpen(spec)) {
      return absl::InvalidArgumentError(
          "--race-until: the job names its method, so there is nothing to choose; set "
          "pipeline.method=auto or leave the flag out");
    }
    spec.mutable_planning()->set_race_until_loss(*options.race_until_loss);
  }
  PENSTOCK_RETURN_IF_ERROR(ReadModel(options, document));
  return document;
}

absl::StatusOr<v1::JobSpec> CompleteSubmission(const JobDocument& document) {
  JobDocument draft = document;
  if (ModelWasPut(document.spec)) {
    PENSTOCK_RETURN_IF_ERROR(TakeScheduleFile(draft));
    return draft.spec;
  }
  draft.spec = DraftOf(document.spec);
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec complete, CompleteJob(std::move(draft)));
  if (OrderIsOpen(document.spec)) {
    complete.mutable_pipeline()->set_method(document.spec.pipeline().method());
  }
  const bool is_open = MethodIsOpen(document.spec);
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(ResolveSubmitted(is_open ? document.spec : complete).status(), document.path));
  if (!is_open) return complete;
  v1::JobSpec spec = document.spec;
  FillKnownDefaults(spec);
  return spec;
}

absl::StatusOr<v1::JobSpec> LoadJob(const JobFileOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(options));
  if (MethodIsOpen(document.spec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path,
        ": pipeline.method: is auto; `penstock train` and `penstock submit` choose one for "
        "their workers, and `penstock plan -o FILE` writes a job with one"));
  }
  document.spec = DraftOf(document.spec);
  return CompleteJob(std::move(document));
}

std::string FolderOfJob(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  const std::filesystem::path absolute =
      std::filesystem::absolute(folder.empty() ? "." : folder, error);
  return error ? folder : absolute.lexically_normal().string();
}

std::string NotesOf(const JobDocument& read, const v1::JobSpec& complete) {
  std::string text;
  for (const std::string& note : read.notes) absl::StrAppend(&text, note, "\n");
  if (const std::string note = NoteOnOldNames(complete.pipeline().schedule()); !note.empty()) {
    absl::StrAppend(&text, "pipeline.schedule_file: ", note, "\n");
  }
  if (read.had_prediction && !complete.has_prediction()) {
    absl::StrAppend(&text,
                    "the job's prediction is left out: it was planned for other keys of the job; "
                    "`penstock plan` makes a new one\n");
  }
  return text;
}

}  // namespace penstock
