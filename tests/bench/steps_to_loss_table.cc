// How well planner/job/steps_to_loss.h predicts the trainings of steps_to_loss.py, as tables.
//
//   steps_to_loss_table DIRECTORY
//
// DIRECTORY has SETTING.yaml, a job, and SETTING.METHOD.STAGES.json, what it printed when it trained.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"
#include "planner/job/assign.h"
#include "planner/job/steps_to_loss.h"

namespace penstock {
namespace {

constexpr char kSetting[] = "small";
// Trains alike on any number of stages, so that none of its runs may be known when one is held out.
constexpr char kAlike[] = "pipedream-2bw";
// Losses that a synchronous run of the setting has after these parts of its steps.
constexpr double kParts[] = {0.25, 0.354, 0.5, 0.707, 1.0};
constexpr double kPartOfARace = 0.25;
constexpr int64_t kWarmUps = 3;

struct Trained {
  std::string setting;
  std::string method;
  int stages = 0;
  ObservedRun run;
};

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<Trained> Read(const std::filesystem::path& file) {
  const std::vector<std::string> parts = absl::StrSplit(file.filename().string(), '.');
  const std::string text = ReadAll(file);
  Trained trained;
  if (parts.size() != 4 || text.empty() || !absl::SimpleAtoi(parts[2], &trained.stages)) {
    return std::nullopt;
  }
  trained.setting = parts[0];
  trained.method = parts[1];
  v1::JobSpec spec;
  YamlPositions positions;
  const std::string job = ReadAll(file.parent_path() / (parts[0] + ".yaml"));
  PENSTOCK_CHECK(ReadYamlMessage(job, "job.yaml", spec, positions).ok());
  SetMethod(trained.method, /*keeps_optimizer=*/false, spec);
  spec.mutable_pipeline()->set_stages(trained.stages);
  FillDefaults(spec);
  const absl::StatusOr<ResolvedJob> resolved = ResolveJob(spec);
  PENSTOCK_CHECK(resolved.ok());
  const auto layers = SplitLayers(*resolved, trained.stages);
  PENSTOCK_CHECK(layers.ok());
  const auto pattern = UpdatePatternOf(*resolved, *layers);
  PENSTOCK_CHECK(pattern.ok());
  std::vector<double> losses;
  const nlohmann::json printed = nlohmann::json::parse(text);
  for (const nlohmann::json& point : printed.at("losses")) losses.push_back(point.at("loss"));
  PENSTOCK_CHECK(!losses.empty());
  trained.run = {.setup = trained.setting,
                 .steps = spec.training().steps(),
                 .first = kWarmUps * spec.training().learning_rate().warmup_steps(),
                 .pattern = *pattern,
                 .curve = CurveOf(losses)};
  return trained;
}

class Tables {
 public:
  explicit Tables(std::vector<Trained> all) : all_(std::move(all)) {}

  void Print() const {
    HoldOutCombinations();
    HoldOutLosses();
    HoldOutSetting("another setting, from those of the two others", false);
    HoldOutSetting("another setting, from nothing", true);
    CompareSeeds();
  }

 private:
  // Errors of predicted factors, and how many of them the intervals hold.
  struct Errors {
    void Add(const StepsFactor& predicted, double measured) {
      of.push_back(std::abs(predicted.median() / measured - 1));
      held += predicted.low() <= measured && measured <= predicted.high();
    }
    void Print(const std::string& name) const {
      std::vector<double> sorted = of;
      std::sort(sorted.begin(), sorted.end());
      const auto at = [&](double part) {
        return 100 * sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
      };
      const auto within =
          std::count_if(sorted.begin(), sorted.end(), [](double error) { return error <= 0.1; });
      std::cout << absl::StrFormat("| %s | %d | %.1f %% | %.1f %% | %.1f %% | %d %% | %d %% |\n",
                                   name, sorted.size(), at(0.5), at(0.8), at(1),
                                   100 * within / static_cast<int64_t>(sorted.size()),
                                   100 * held / static_cast<int64_t>(sorted.size()));
    }
    std::vector<double> of;
    int64_t held = 0;
  };

  // Whether the seeds alone are others.
  static bool IsAgain(const Trained& trained) { return trained.setting.rfind("seed", 0) == 0; }

  const LossCurve& Synchronous(const std::string& setting) const {
    for (const Trained& one : all_) {
      if (one.setting == setting && one.run.pattern.synchronous) return one.run.curve;
    }
    PENSTOCK_CHECK(false);
    return all_.front().run.curve;
  }

  // Absent: it does not get there.
  std::optional<double> Measured(const Trained& trained, double part) const {
    const LossCurve& reference = Synchronous(trained.setting);
    const auto loss = reference.LossAt(part * static_cast<double>(trained.run.steps));
    if (!loss.has_value()) return std::nullopt;
    const auto steps = trained.run.curve.StepsTo(*loss);
    if (!steps.has_value()) return std::nullopt;
    return *steps / *reference.StepsTo(*loss);
  }

  StepsToLoss Fit(const std::function<std::optional<ObservedRun>(const Trained&)>& kept) const {
    std::vector<ObservedRun> runs;
    for (const Trained& one : all_) {
      if (IsAgain(one)) continue;
      if (const auto run = kept(one); run.has_value()) runs.push_back(*run);
    }
    return StepsToLoss(runs);
  }

  void ForEachOf(const std::string& setting,
                 const std::function<void(const Trained&)>& visit) const {
    for (const Trained& one : all_) {
      if (one.setting == setting && !one.run.pattern.synchronous) visit(one);
    }
  }

  void HoldOutCombinations() const {
    std::cout << "| method | stages | delay |";
    const LossCurve& reference = Synchronous(kSetting);
    for (const double part : kParts) {
      const double steps = part * static_cast<double>(reference.steps());
      std::cout << absl::StrFormat(" loss %.3f | |", *reference.LossAt(steps));
    }
    std::cout << "\n|---|---|---|";
    for (size_t i = 0; i < std::size(kParts); ++i) std::cout << "---|---|";
    std::cout << "\n";
    std::map<std::string, Errors> errors;
    for (const char* setting : {"small", "low-rate", "four-microbatches"}) {
      ForEachOf(setting, [&](const Trained& held) {
        if (held.method == kAlike && held.stages > 2) return;
        const StepsToLoss model = Fit([&](const Trained& one) {
          const bool is_it =
              one.method == held.method && (one.stages == held.stages || held.method == kAlike);
          return is_it ? std::nullopt : std::optional(one.run);
        });
        std::string row =
            absl::StrFormat("| %s | %d | %.2f |", held.method, held.stages, held.run.pattern.delay);
        for (const double part : kParts) {
          const StepsFactor predicted = model.Predict(held.run.pattern, setting, part);
          const std::optional<double> measured = Measured(held, part);
          absl::StrAppendFormat(&row, " %.2f (%.2f to %.2f), ", predicted.median(), predicted.low(),
                                predicted.high());
          if (!measured.has_value()) {
            row += "never | |";
            continue;
          }
          absl::StrAppendFormat(&row, "%.2f | %+.0f %% |", *measured,
                                100 * (predicted.median() / *measured - 1));
          errors[setting].Add(predicted, *measured);
        }
        if (setting == std::string(kSetting)) std::cout << row << "\n";
      });
    }
    std::cout
        << "\n| held out | cells | median error | of four fifths at most | largest | within 10 % "
           "| in the interval |\n|---|---|---|---|---|---|---|\n";
    for (const auto& [setting, of_setting] : errors) {
      of_setting.Print("method and stages, " + setting);
    }
  }

  void HoldOutLosses() const {
    const StepsToLoss model = Fit([](const Trained& one) {
      ObservedRun run = one.run;
      if (one.setting == kSetting) {
        std::erase_if(run.curve.points, [&](const LossCurve::Point& point) {
          return static_cast<double>(point.steps) > kPartOfARace * static_cast<double>(run.steps);
        });
      }
      return std::optional(run);
    });
    std::map<double, Errors> errors;
    ForEachOf(kSetting, [&](const Trained& one) {
      if (one.method == kAlike && one.stages > 2) return;
      for (const double part : kParts) {
        const auto measured = Measured(one, part);
        if (part <= kPartOfARace || !measured.has_value()) continue;
        errors[part].Add(model.Predict(one.run.pattern, kSetting, part), *measured);
      }
    });
    for (const auto& [part, of_part] : errors) {
      of_part.Print(absl::StrFormat("losses after a quarter of the steps: at %.0f %%", 100 * part));
    }
  }

  void HoldOutSetting(const std::string& name, bool all) const {
    const StepsToLoss model = Fit([&](const Trained& one) {
      return all || one.setting == kSetting ? std::nullopt : std::optional(one.run);
    });
    Errors errors;
    ForEachOf(kSetting, [&](const Trained& one) {
      if (one.method == kAlike && one.stages > 2) return;
      for (const double part : kParts) {
        const auto measured = Measured(one, part);
        if (measured.has_value()) {
          errors.Add(model.Predict(one.run.pattern, kSetting, part), *measured);
        }
      }
    });
    errors.Print(name);
  }

  // How far two measurements are apart.
  void CompareSeeds() const {
    Errors errors;
    for (const Trained& one : all_) {
      if (!IsAgain(one) || one.run.pattern.synchronous) continue;
      ForEachOf(kSetting, [&](const Trained& first) {
        if (first.method != one.method || first.stages != one.stages) return;
        for (const double part : kParts) {
          const auto a = Measured(first, part);
          const auto b = Measured(one, part);
          if (!a.has_value() || !b.has_value()) continue;
          errors.Add({.log_mean = std::log(*a)}, *b);
        }
      });
    }
    if (!errors.of.empty()) errors.Print("nothing: the same run with another seed");
  }

  const std::vector<Trained> all_;
};

int Main(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Trained> all;
  for (const std::filesystem::path& file : files) {
    if (std::optional<Trained> trained = Read(file); trained.has_value()) {
      all.push_back(*std::move(trained));
    }
  }
  Tables(std::move(all)).Print();
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: steps_to_loss_table DIRECTORY\n";
    return 1;
  }
  return penstock::Main(argv[1]);
}
