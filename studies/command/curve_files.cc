#include "studies/command/curve_files.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "penstock/v1/trained_run.pb.h"
#include "services/cli/json_output.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCurveFileBytesMax = int64_t{64} << 20;
constexpr char kCurvesEnd[] = "-curves.csv";
constexpr char kCurvesHead[] = "chart,line,x,mean,";

// "runs" and "a.json" of "results/runs/a.json"; the folder of "a.json" is empty.
std::pair<std::string, std::string> FolderAndName(absl::string_view path) {
  std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  const std::string name(parts.back());
  return {parts.size() > 1 ? std::string(parts[parts.size() - 2]) : "", name};
}

// What all names begin with, up to the last of "-._" before they differ.
std::string CommonBeginning(const std::vector<std::string>& names) {
  std::string common = names.front();
  for (const std::string& name : names) {
    size_t same = 0;
    while (same < std::min(common.size(), name.size()) && common[same] == name[same]) ++same;
    common.resize(same);
  }
  if (names.size() == 1) return common;
  const size_t cut = common.find_last_of("-._");
  return cut == std::string::npos || cut == 0 ? common : common.substr(0, cut);
}

class CurveReader {
 public:
  explicit CurveReader(Files& files) : files_(files) {}

  absl::Status Add(const std::string& path) {
    const absl::StatusOr<std::vector<std::string>> entries = files_.List(path);
    if (!entries.ok()) return AddFile(path);  // it is no folder
    const size_t before = curves_.size();
    for (const std::string& entry : *entries) {
      if (!absl::EndsWith(entry, ".json") && !absl::EndsWith(entry, kCurvesEnd)) continue;
      PENSTOCK_RETURN_IF_ERROR(AddFile(JoinPath(path, entry)));
    }
    if (curves_.size() > before) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no curves; they are in files *.json and *", kCurvesEnd));
  }

  std::vector<FinishedCurve> Finish() && {
    for (const auto& [job, of_job] : kept_runs_) {
      std::vector<std::string> names;
      for (const size_t at : of_job) names.push_back(curves_[at].name);
      const std::string setup = CommonBeginning(names);
      for (const size_t at : of_job) curves_[at].setup = setup;
    }
    return std::move(curves_);
  }

 private:
  absl::Status AddFile(const std::string& path) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files_.Read(path, kCurveFileBytesMax));
    if (absl::StartsWith(text, kCurvesHead)) return AddCharts(path, text);
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("job") && json["job"].is_object()) {
      return AddKeptRun(path, text);
    }
    if (json.is_object() && json.contains("losses") && json["losses"].is_array() &&
        json.contains("job") && json["job"].is_string()) {
      return AddResult(path, json);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": has no curve; give runs that a study kept, results of `penstock train --json "
        "--losses`, or the file *",
        kCurvesEnd, " of a study"));
  }

  absl::Status AddKeptRun(const std::string& path, const std::string& text) {
    v1::TrainedRun run;
    const auto parsed = google::protobuf::util::JsonStringToMessage(text, &run);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is no run that a study kept: ", parsed.ToString()));
    }
    if (run.diverged()) return absl::OkStatus();
    FinishedCurve curve = {.name =
                               std::string(absl::StripSuffix(FolderAndName(path).second, ".json"))};
    for (const v1::TrainedRun::Validation& validation : run.validations()) {
      curve.points.push_back({validation.step(), validation.loss()});
    }
    if (curve.points.empty()) curve.losses = {run.losses().begin(), run.losses().end()};
    v1::JobSpec job = run.job();
    job.clear_name();
    job.clear_pipeline();
    job.mutable_training()->clear_seed();
    job.mutable_training()->clear_microbatches();
    job.mutable_training()->clear_staleness();
    kept_runs_[job.SerializeAsString()].push_back(curves_.size());
    curves_.push_back(std::move(curve));
    return absl::OkStatus();
  }

  absl::Status AddResult(const std::string& path, const Json& json) {
    const auto [folder, name] = FolderAndName(path);
    FinishedCurve curve = {.name = std::string(absl::StripSuffix(name, ".json"))};
    const std::string job = json["job"].get<std::string>();
    curve.setup = folder.empty() ? job : absl::StrCat(folder, "/", job);
    for (const Json& point : json["losses"]) {
      const bool is_next =
          point.is_object() && point.contains("step") && point.contains("loss") &&
          point["step"].is_number_integer() && point["loss"].is_number() &&
          point["step"].get<int64_t>() == static_cast<int64_t>(curve.losses.size()) + 1;
      if (!is_next) {
        return absl::InvalidArgumentError(
            absl::StrCat(path,
                         ": losses: has not one loss for each step, from 1 on; a result of "
                         "`penstock train --json --losses` has"));
      }
      curve.losses.push_back(point["loss"].get<double>());
    }
    curves_.push_back(std::move(curve));
    return absl::OkStatus();
  }

  // The fields of a line; quotes are around those with commas.
  static std::vector<std::string> FieldsOf(absl::string_view line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    return fields;
  }

  absl::Status AddCharts(const std::string& path, const std::string& text) {
    const std::string study(absl::StripSuffix(FolderAndName(path).second, kCurvesEnd));
    std::vector<FinishedCurve> of_file;
    int64_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (++number == 1 || line.empty()) continue;
      const std::vector<std::string> fields = FieldsOf(line);
      double x = 0;
      double loss = 0;
      if (fields.size() < 4 || !absl::SimpleAtod(fields[2], &x) ||
          !absl::SimpleAtod(fields[3], &loss)) {
        return absl::InvalidArgumentError(absl::StrCat(path, ":", number,
                                                       ": is no point of a chart, which is ",
                                                       kCurvesHead, "least,greatest"));
      }
      const std::string setup = fields[0].empty() ? study : absl::StrCat(study, "-", fields[0]);
      if (of_file.empty() || of_file.back().setup != setup || of_file.back().name != fields[1]) {
        of_file.push_back({.setup = setup, .name = fields[1]});
      }
      std::vector<LossCurve::Point>& points = of_file.back().points;
      const auto at = static_cast<int64_t>(x);
      const bool counts = std::isfinite(loss) && loss > 0 && x >= 1 && x < 1e15 &&
                          (points.empty() || at > points.back().steps);
      if (counts) points.push_back({at, loss});
    }
    for (FinishedCurve& curve : of_file) {
      if (curve.points.size() > 1) curves_.push_back(std::move(curve));
    }
    return absl::OkStatus();
  }

  Files& files_;
  std::vector<FinishedCurve> curves_;
  // The places of kept runs in curves_, by what decides how fast they learn.
  std::map<std::string, std::vector<size_t>> kept_runs_;
};

}  // namespace

absl::StatusOr<std::vector<FinishedCurve>> ReadCurveFiles(Files& files,
                                                          absl::Span<const std::string> paths) {
  CurveReader reader(files);
  for (const std::string& path : paths) PENSTOCK_RETURN_IF_ERROR(reader.Add(path));
  return std::move(reader).Finish();
}

}  // namespace penstock
