// penstock data show: what a directory of records, or of pairs, holds.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "data/pair_files.h"
#include "data/record_files.h"
#include "data/record_statistics.h"
#include "services/cli/commands/data_records.h"
#include "services/cli/data_progress.h"
#include "services/cli/interrupt.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr int64_t kShownValuesMax = 20;  // of a label
constexpr int64_t kShownTimes[] = {16, 32, 64, 128, 256};

struct DataShowOptions {
  std::string directory;
  int64_t records = 10'000;
  bool check = false;
  bool json = false;
};

// What is looked at.
struct Shown {
  const RecordFiles& records;
  const PairFiles* pairs;  // null: no pairs
  RecordStatistics statistics;
  std::vector<LengthStatistics> lengths;
};

// "u8 [28, 28, 1]", as models have it.
std::string TypeText(const TensorType& tensor) {
  return absl::StrCat(absl::AsciiStrToLower(tensor.dtype), " [", absl::StrJoin(tensor.shape, ", "),
                      "]");
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

std::string LengthsText(const Shown& shown) {
  Table table({{"SEQUENCE"},
               {"TYPE"},
               {"SHORTEST", Table::Align::kRight},
               {"MEDIAN", Table::Align::kRight},
               {"90 %", Table::Align::kRight},
               {"99 %", Table::Align::kRight},
               {"LONGEST", Table::Align::kRight},
               {"MEAN", Table::Align::kRight}});
  for (size_t i = 0; i < shown.lengths.size(); ++i) {
    const SequenceType& sequence = shown.records.index().sequences[i];
    const LengthStatistics& of = shown.lengths[i];
    table.AddRow({sequence.name, absl::AsciiStrToLower(sequence.dtype), absl::StrCat(of.shortest),
                  absl::StrCat(of.median), absl::StrCat(of.percentile_90),
                  absl::StrCat(of.percentile_99), absl::StrCat(of.longest),
                  FormatFixed(of.mean, 1)});
  }
  return table.Render();
}

// Pairs that a model with that many time steps on both sides reads: pieces and end.
int64_t PairsThatFit(const PairFiles& pairs, int64_t time) {
  return static_cast<int64_t>(
      PairsByLength(pairs, {.source = time - 1, .target = time - 1}).size());
}

std::string PairsText(const PairFiles& pairs) {
  const PieceNumbers& vocabulary = pairs.vocabulary();
  std::string text =
      absl::StrCat("\nThe vocabulary has ", vocabulary.pieces, " pieces: ", vocabulary.padding,
                   " is padding, ", vocabulary.unknown, " unknown, ", vocabulary.bos,
                   " the beginning of a sentence, ", vocabulary.eos, " its end.\n\n");
  Table table({{"TIME STEPS", Table::Align::kRight},
               {"PAIRS THAT FIT", Table::Align::kRight},
               {"OF ALL", Table::Align::kRight}});
  for (const int64_t time : kShownTimes) {
    const int64_t fitting = PairsThatFit(pairs, time);
    table.AddRow(
        {absl::StrCat(time), absl::StrCat(fitting),
         FormatPercent(static_cast<double>(fitting) / static_cast<double>(pairs.pairs()))});
  }
  text += table.Render();
  if (pairs.facts().counts.empty()) return text;
  return absl::StrCat(text, "\nOf all pairs that were prepared: ",
                      absl::StrJoin(pairs.facts().counts, ", ",
                                    [](std::string* out, const PairCount& count) {
                                      absl::StrAppend(out, count.what, " ", count.pairs);
                                    }),
                      "\n");
}

nlohmann::ordered_json PairsJson(const PairFiles& pairs) {
  const PieceNumbers& vocabulary = pairs.vocabulary();
  nlohmann::ordered_json json = {{"vocabulary",
                                  {{"pieces", vocabulary.pieces},
                                   {"padding", vocabulary.padding},
                                   {"unknown", vocabulary.unknown},
                                   {"bos", vocabulary.bos},
                                   {"eos", vocabulary.eos}}}};
  for (const int64_t time : kShownTimes) {
    json["pairs_that_fit"][absl::StrCat(time)] = PairsThatFit(pairs, time);
  }
  for (const PairCount& count : pairs.facts().counts) json["counts"][count.what] = count.pairs;
  return json;
}

nlohmann::ordered_json LengthsJson(const Shown& shown) {
  nlohmann::ordered_json sequences = SequencesJson(shown.records.index());
  for (size_t i = 0; i < shown.lengths.size(); ++i) {
    const LengthStatistics& of = shown.lengths[i];
    sequences[shown.records.index().sequences[i].name].update(
        {{"values", of.values},
         {"mean_length", of.mean},
         {"shortest", of.shortest},
         {"median_length", of.median},
         {"percentile_90_length", of.percentile_90},
         {"percentile_99_length", of.percentile_99},
         {"longest", of.longest}});
  }
  return sequences;
}

nlohmann::ordered_json ShowJson(const Shown& shown, bool checked) {
  const RecordFiles& records = shown.records;
  const RecordStatistics& statistics = shown.statistics;
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
  nlohmann::ordered_json json = {{"directory", records.directory()},
                                 {"sha256", records.sha256()},
                                 {"records", records.records()},
                                 {"bytes", records.size_bytes()},
                                 {"content_checked", checked},
                                 {"records_looked_at", statistics.records},
                                 {"tensors", tensors},
                                 {"shards", shards}};
  if (!shown.lengths.empty()) json["sequences"] = LengthsJson(shown);
  if (shown.pairs != nullptr) json["pairs"] = PairsJson(*shown.pairs);
  return json;
}

absl::Status RunShow(const DataShowOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  absl::StatusOr<std::unique_ptr<RecordFiles>> opened;
  absl::StatusOr<RecordStatistics> statistics;
  {
    DataProgress checking("byte", interrupt, console);
    opened = RecordFiles::Open(
        RealFiles(), options.directory,
        {.checked_bytes_max = options.check ? std::numeric_limits<int64_t>::max() : -1,
         .progress = [&](int64_t done, int64_t all) {
           return checking.Report(done, all, "against their digests");
         }});
  }
  PENSTOCK_RETURN_IF_ERROR(opened.status());
  std::unique_ptr<RecordFiles> records = *std::move(opened);
  std::unique_ptr<PairFiles> pairs;
  const std::vector<ListedFile>& listed = records->index().files;
  if (std::any_of(listed.begin(), listed.end(),
                  [](const ListedFile& file) { return file.file == kPairsFile; })) {
    PENSTOCK_ASSIGN_OR_RETURN(pairs, PairFiles::Open(RealFiles(), std::move(records)));
  }
  const RecordFiles& files = pairs != nullptr ? pairs->records() : *records;
  {
    DataProgress looking("record", interrupt, console);
    statistics = StatisticsOf(files, options.records, [&](int64_t done, int64_t all) {
      return looking.Report(done, all, "");
    });
  }
  PENSTOCK_RETURN_IF_ERROR(statistics.status());
  const Shown shown = {.records = files,
                       .pairs = pairs.get(),
                       .statistics = *std::move(statistics),
                       .lengths = LengthsOf(files)};
  if (options.json) {
    PrintJson(ShowJson(shown, options.check), console);
    return absl::OkStatus();
  }
  console.out << files.directory() << ": " << Plural(files.records(), "record") << " in "
              << Plural(static_cast<int64_t>(files.index().shards.size()), "shard") << ", "
              << FormatBytes(files.size_bytes())
              << (options.check ? "; all files have the content that the index says" : "")
              << "\nSHA-256 of the index: " << files.sha256() << "\n\n";
  if (!files.index().tensors.empty()) console.out << StatisticsText(files, shown.statistics);
  if (shown.statistics.records < files.records() && !files.index().tensors.empty()) {
    console.out << "(of " << Plural(shown.statistics.records, "record")
                << " that are spread over all; --records looks at more)\n";
  }
  if (!shown.lengths.empty()) console.out << LengthsText(shown);
  if (pairs != nullptr) console.out << PairsText(*pairs);
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareDataShow(CLI::App& app) {
  const auto show = std::make_shared<DataShowOptions>();
  app.add_option("DIR", show->directory, "A directory with an index.json")
      ->required()
      ->type_name("");
  app.add_option("--records", show->records, "Records to look at, spread over all")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--check", show->check, "Check the content of all files against the index");
  app.add_flag("--json", show->json, "Print JSON");
  return [show](Console& console) { return RunShow(*show, console); };
}

}  // namespace penstock
