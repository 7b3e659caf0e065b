#include "studies/command/result_files.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/work_done.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kResultBytesMax = int64_t{64} << 20;

// The number under a key, as `format` writes it; "-" where it is null or absent.
std::string Number(const Json& json, const char* key, std::string (*format)(double)) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? format(it->get<double>()) : "-";
}

// One value for each stage: "12.1 % | 3.0 %".
std::string PerStage(const Json& result, std::string (*format)(const Json& stage)) {
  const auto stages = result.find("per_stage");
  if (stages == result.end() || !stages->is_array()) return "-";
  std::vector<std::string> values;
  for (const Json& stage : *stages) values.push_back(format(stage));
  return absl::StrJoin(values, " | ");
}

// "8.89 k tokens/s". Files of the version before say no unit, and have tokens.
std::string Speed(const Json& result) {
  const auto said = result.find("unit");
  const std::string unit =
      said != result.end() && said->is_string() ? said->get<std::string>() : std::string(kTokens);
  const std::string number = Number(result, absl::StrCat(unit, "_per_second").c_str(), FormatCount);
  return number == "-" ? number : absl::StrCat(number, " ", unit, "/s");
}

std::string Bubble(const Json& stage) { return Number(stage, "bubble_ratio", FormatPercent); }

std::string Staleness(const Json& stage) {
  const auto it = stage.find("staleness");
  if (it == stage.end()) return "-";
  return absl::StrCat(Number(*it, "max", [](double max) { return absl::StrFormat("%g", max); }),
                      "/", Number(*it, "mean", [](double mean) { return FormatFixed(mean, 2); }));
}

std::string Versions(const Json& stage) { return Number(stage, "versions_peak", FormatCount); }

absl::StatusOr<Json> ReadResult(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, RealFiles().Read(path, kResultBytesMax));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("method") || !json["method"].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a result that `penstock train --json` printed"));
  }
  return json;
}

}  // namespace

absl::StatusOr<std::string> CompareResultFiles(const std::vector<std::string>& paths) {
  using Align = Table::Align;
  Table table({{"METHOD"},
               {"TRAINING LOSS", Align::kRight},
               {"VALIDATION LOSS", Align::kRight},
               {"SPEED", Align::kRight},
               {"TIME", Align::kRight},
               {"BUBBLE BY STAGE", Align::kRight},
               {"STALENESS BY STAGE (UPDATES)", Align::kRight},
               {"VERSIONS", Align::kRight}});
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(const Json result, ReadResult(path));
    table.AddRow({result["method"].get<std::string>(), Number(result, "train_loss", FormatLoss),
                  Number(result, "validation_loss", FormatLoss), Speed(result),
                  Number(result, "wall_seconds", FormatDuration), PerStage(result, Bubble),
                  PerStage(result, Staleness), PerStage(result, Versions)});
  }
  return table.Render();
}

}  // namespace penstock
