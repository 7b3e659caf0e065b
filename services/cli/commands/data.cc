// penstock data prepare | show: image sets to records, and what a directory of records holds.
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "data/image_sets.h"
#include "data/record_files.h"
#include "data/record_statistics.h"
#include "services/cli/commands/commands.h"
#include "services/cli/interrupt.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/cli/work_display.h"

namespace penstock {
namespace {

constexpr int64_t kShownValuesMax = 20;  // of a label

struct DataPrepareOptions {
  std::string from;
  std::string to;
  int64_t shard_mebibytes = kShardBytes >> 20;
  bool json = false;
};

struct DataShowOptions {
  std::string directory;
  int64_t records = 10'000;
  bool check = false;
  bool json = false;
};

// Shows how far the work is on a terminal, and ends it when the user asks to.
class DataProgress {
 public:
  DataProgress(std::string unit, Interrupt& interrupt, Console& console) : interrupt_(interrupt) {
    if (console.err_is_terminal) display_.emplace(std::move(unit), console, RealClock());
  }

  absl::Status Report(int64_t done, int64_t all, const std::string& what) {
    if (display_) display_->Draw(done, all, what);
    return interrupt_.Count() > 0 ? InterruptedError("interrupted") : absl::OkStatus();
  }

 private:
  Interrupt& interrupt_;
  std::optional<WorkDisplay> display_;
};

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "u8 [28, 28, 1]", as models have it.
std::string TypeText(const TensorType& tensor) {
  return absl::StrCat(absl::AsciiStrToLower(tensor.dtype), " [", absl::StrJoin(tensor.shape, ", "),
                      "]");
}

nlohmann::ordered_json TensorsJson(const RecordIndex& index) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const TensorType& tensor : index.tensors) {
    tensors[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  return tensors;
}

absl::Status RunPrepare(const DataPrepareOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  absl::StatusOr<PreparedImages> prepared;
  {
    DataProgress progress("file", interrupt, console);
    prepared = PrepareImages(RealFiles(),
                             {.from = options.from,
                              .to = options.to,
                              .shard_bytes_max = options.shard_mebibytes << 20,
                              .progress = [&](int64_t done, int64_t all, const std::string& file) {
                                return progress.Report(done, all, file);
                              }});
  }
  PENSTOCK_RETURN_IF_ERROR(prepared.status());
  if (options.json) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const PreparedPart& part : prepared->parts) {
      parts.push_back({{"directory", part.directory},
                       {"records", part.index.records()},
                       {"shards", part.index.shards.size()},
                       {"tensors", TensorsJson(part.index)}});
    }
    PrintJson({{"set", prepared->set}, {"parts", parts}}, console);
    return absl::OkStatus();
  }
  for (const PreparedPart& part : prepared->parts) {
    console.out << "wrote " << part.directory << ": " << Plural(part.index.records(), "record")
                << " of " << prepared->set << "\n";
  }
  return absl::OkStatus();
}

std::string StatisticsText(const RecordFiles& records, const RecordStatistics& statistics) {
  Table table({{"TENSOR"},
               {"TYPE"},
               {"MIN", Table::Align::kRight},
               {"MAX", Table::Align::kRight},
               {"MEAN", Table::Align::kRight},
               {"DEVIATION", Table::Align::kRight}});
  std::string values;
  for (size_t i = 0; i < statistics.tensors.size(); ++i) {
    const TensorType& tensor = records.index().tensors[i];
    const TensorStatistics& of = statistics.tensors[i];
    if (!of.known) {
      table.AddRow({tensor.name, TypeText(tensor), "-", "-", "-", "-"});
      continue;
    }
    table.AddRow({tensor.name, TypeText(tensor), FormatDigits(of.min, 6), FormatDigits(of.max, 6),
                  FormatDigits(of.mean, 6), FormatDigits(of.deviation, 6)});
    if (of.counts.empty()) continue;
    absl::StrAppend(&values, tensor.name, " has ",
                    Plural(static_cast<int64_t>(of.counts.size()), "value"), ":");
    int64_t shown = 0;
    for (const auto& [value, count] : of.counts) {
      if (shown++ == kShownValuesMax) {
        absl::StrAppend(&values, " ...");
        break;
      }
      absl::StrAppend(&values, " ", value, " (", count, ")");
    }
    absl::StrAppend(&values, "\n");
  }
  return table.Render() + values;
}

nlohmann::ordered_json ShowJson(const RecordFiles& records, const RecordStatistics& statistics,
                                bool checked) {
  nlohmann::ordered_json tensors = TensorsJson(records.index());
  for (size_t i = 0; i < statistics.tensors.size(); ++i) {
    const TensorStatistics& of = statistics.tensors[i];
    if (!of.known) continue;
    nlohmann::ordered_json& tensor = tensors[records.index().tensors[i].name];
    tensor.update(
        {{"min", of.min}, {"max", of.max}, {"mean", of.mean}, {"deviation", of.deviation}});
    for (const auto& [value, count] : of.counts) tensor["values"][absl::StrCat(value)] = count;
  }
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const RecordShard& shard : records.index().shards) {
    shards.push_back({{"file", shard.file}, {"records", shard.records}, {"sha256", shard.sha256}});
  }
  return {{"directory", records.directory()},
          {"sha256", records.sha256()},
          {"records", records.records()},
          {"bytes", records.size_bytes()},
          {"content_checked", checked},
          {"records_looked_at", statistics.records},
          {"tensors", tensors},
          {"shards", shards}};
}

absl::Status RunShow(const DataShowOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  absl::StatusOr<std::unique_ptr<RecordFiles>> records;
  absl::StatusOr<RecordStatistics> statistics;
  {
    DataProgress checking("byte", interrupt, console);
    records = RecordFiles::Open(
        RealFiles(), options.directory,
        {.checked_bytes_max = options.check ? std::numeric_limits<int64_t>::max() : -1,
         .progress = [&](int64_t done, int64_t all) {
           return checking.Report(done, all, "against their digests");
         }});
  }
  PENSTOCK_RETURN_IF_ERROR(records.status());
  {
    DataProgress looking("record", interrupt, console);
    statistics = StatisticsOf(**records, options.records, [&](int64_t done, int64_t all) {
      return looking.Report(done, all, "");
    });
  }
  PENSTOCK_RETURN_IF_ERROR(statistics.status());
  const RecordFiles& shown = **records;
  if (options.json) {
    PrintJson(ShowJson(shown, *statistics, options.check), console);
    return absl::OkStatus();
  }
  console.out << shown.directory() << ": " << Plural(shown.records(), "record") << " in "
              << Plural(static_cast<int64_t>(shown.index().shards.size()), "shard") << ", "
              << FormatBytes(shown.size_bytes())
              << (options.check ? "; all shards have the content that the index says" : "")
              << "\nSHA-256 of the index: " << shown.sha256() << "\n\n"
              << StatisticsText(shown, *statistics);
  if (statistics->records < shown.records()) {
    console.out << "(of " << Plural(statistics->records, "record")
                << " that are spread over all; --records looks at more)\n";
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareData(CLI::App& app) {
  const auto prepare = std::make_shared<DataPrepareOptions>();
  CLI::App* prepare_app =
      app.add_subcommand("prepare", "Make records of the files of MNIST, CIFAR-10 or CIFAR-100");
  prepare_app
      ->add_option("FOLDER", prepare->from,
                   "Where the files are, under the names that they are published with")
      ->required()
      ->type_name("");
  prepare_app
      ->add_option("-o,--output", prepare->to,
                   "A folder for the directories `train` and `test`, for data.records")
      ->required()
      ->type_name("DIR");
  prepare_app->add_option("--shard-mebibytes", prepare->shard_mebibytes, "The size of a shard")
      ->type_name("N")
      ->check(CLI::Range(1, 16'384))
      ->capture_default_str();
  prepare_app->add_flag("--json", prepare->json, "Print JSON");

  const auto show = std::make_shared<DataShowOptions>();
  CLI::App* show_app = app.add_subcommand("show", "Show what a directory of records holds");
  show_app->add_option("DIR", show->directory, "A directory with an index.json")
      ->required()
      ->type_name("");
  show_app->add_option("--records", show->records, "Records to look at, spread over all")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  show_app->add_flag("--check", show->check, "Check the content of all shards against the index");
  show_app->add_flag("--json", show->json, "Print JSON");

  app.require_subcommand(1);
  return [prepare_app, prepare, show](Console& console) {
    return prepare_app->parsed() ? RunPrepare(*prepare, console) : RunShow(*show, console);
  };
}

}  // namespace penstock
