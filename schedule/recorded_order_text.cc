#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "schedule/recorded_order.h"

namespace penstock {
namespace {

constexpr absl::string_view kFirstLine = "penstock-order 1";
constexpr size_t kLineMax = 96;
// So that a short text cannot ask for much memory.
constexpr int64_t kRecordedStagesMax = 1 << 12;
constexpr int64_t kLayersMax = 1 << 20;
constexpr int64_t kBlocksMax = int64_t{1} << 28;

void PrintBlocks(const OrderLog& log, std::string& text) {
  std::string line;
  for (int64_t i = 0; i < log.size();) {
    const OrderBlock block = log.At(i);
    int64_t run = 1;
    while (i + run < log.size() && log.At(i + run) == block) ++run;
    const std::string word = run == 1 ? ToString(block) : absl::StrCat(ToString(block), "*", run);
    if (line.size() + 1 + word.size() > kLineMax) {
      absl::StrAppend(&text, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, " ", word);
    i += run;
  }
  if (!line.empty()) absl::StrAppend(&text, line, "\n");
}

class OrderParser {
 public:
  explicit OrderParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<RecordedOrder> Parse() {
    for (const absl::string_view line : absl::StrSplit(text_, '\n')) {
      ++line_;
      const absl::string_view content = line.substr(0, line.find('#'));
      const std::vector<absl::string_view> words =
          absl::StrSplit(content, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
      if (words.empty()) continue;
      if (ended_) return Error("nothing after the line \"end\"", content);
      PENSTOCK_RETURN_IF_ERROR(ParseLine(words, content));
    }
    if (!begun_) return Error(absl::StrCat("the line \"", kFirstLine, "\""), "an empty text");
    if (!ended_) return Error("more lines and then \"end\"", "the end of the text: it was cut off");
    return std::move(order_);
  }

 private:
  using Words = std::vector<absl::string_view>;

  absl::Status Error(absl::string_view expected, absl::string_view got) const {
    constexpr size_t kShown = 60;
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": expected ", expected, ", got ",
                     absl::CHexEscape(absl::StripAsciiWhitespace(got).substr(0, kShown))));
  }
  // Names the place in the log that is being read.
  absl::Status LogError(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": microbatches ", Range().microbatches.first, " to ",
                     Range().microbatches.end() - 1, ", worker ", Range().workers.size() - 1,
                     ", block ", Range().workers.back().size(), ": ", what));
  }

  const RecordedOrder::Range& Range() const { return order_.ranges.back(); }

  static bool Number(absl::string_view text, int64_t most, int64_t& number) {
    return absl::SimpleAtoi(text, &number) && number >= 0 && number <= most;
  }
  // "<first>+<count>"
  static bool Pair(absl::string_view text, int64_t most, int64_t& first, int64_t& count) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('+', 1));
    return Number(parts.first, most, first) && Number(parts.second, most, count) && count > 0;
  }

  absl::Status ParseLine(const Words& words, absl::string_view line) {
    if (!begun_) {
      begun_ = absl::StrJoin(words, " ") == kFirstLine;
      return begun_ ? absl::OkStatus() : Error(absl::StrCat("the line \"", kFirstLine, "\""), line);
    }
    if (words[0] == "range") return ParseRange(words, line);
    if (words[0] == "worker") return ParseWorker(words, line);
    if (words[0] == "end") {
      if (order_.ranges.empty()) PENSTOCK_RETURN_IF_ERROR(CheckHeaderComplete(line));
      PENSTOCK_RETURN_IF_ERROR(CheckRangeComplete());
      ended_ = words.size() == 1;
      return ended_ ? absl::OkStatus() : Error("\"end\" alone", line);
    }
    if (!order_.ranges.empty()) return ParseBlocks(words);
    return ParseHeader(words, line);
  }

  absl::Status ParseHeader(const Words& words, absl::string_view line) {
    if (words.size() == 2 && words[0] == "method") {
      order_.method = std::string(words[1]);
      return absl::OkStatus();
    }
    if (words.size() == 2 && words[0] == "weights") {
      order_.weights = std::string(words[1]);
      return absl::OkStatus();
    }
    if (words.size() == 2 && words[0] == "microbatches" &&
        Number(words[1], kMicrobatchMax, order_.microbatches) && order_.microbatches > 0) {
      return absl::OkStatus();
    }
    if (words[0] == "stage") return ParseStage(words, line);
    return Error("method NAME, weights NAME, microbatches N, stage ..., or range ...", line);
  }

  absl::Status ParseStage(const Words& words, absl::string_view line) {
    int64_t stage = 0;
    int64_t worker = 0;
    int64_t first_layer = 0;
    int64_t layers = 0;
    const bool valid = words.size() == 6 && Number(words[1], kRecordedStagesMax, stage) &&
                       stage == static_cast<int64_t>(order_.stages.size()) &&
                       words[2] == "worker" && Number(words[3], kRecordedStagesMax, worker) &&
                       words[4] == "layers" && Pair(words[5], kLayersMax, first_layer, layers);
    if (!valid) {
      return Error(absl::StrCat("stage ", order_.stages.size(),
                                " worker <worker> layers <first layer>+<layers>"),
                   line);
    }
    order_.stages.push_back({WorkerId(static_cast<int32_t>(worker)),
                             static_cast<int32_t>(first_layer), static_cast<int32_t>(layers)});
    return absl::OkStatus();
  }

  absl::Status ParseRange(const Words& words, absl::string_view line) {
    if (order_.ranges.empty()) PENSTOCK_RETURN_IF_ERROR(CheckHeaderComplete(line));
    PENSTOCK_RETURN_IF_ERROR(CheckRangeComplete());
    MicrobatchRange range;
    if (words.size() != 2 || !Pair(words[1], kMicrobatchMax / 2, range.first, range.count)) {
      return Error("range <first microbatch>+<microbatches>, for example range 0+32", line);
    }
    blocks_ += 2 * static_cast<int64_t>(order_.stages.size()) * range.count;
    if (range.count > kBlocksMax || blocks_ > kBlocksMax) {
      return Error(absl::StrCat("at most ", kBlocksMax, " forwards and backwards in all"), line);
    }
    if (!order_.ranges.empty() && Range().microbatches.end() != range.first) {
      return Error(absl::StrCat("range ", Range().microbatches.end(),
                                "+<microbatches>, where the "
                                "one before ended"),
                   line);
    }
    order_.ranges.push_back({.microbatches = range, .workers = {}});
    return absl::OkStatus();
  }

  absl::Status CheckHeaderComplete(absl::string_view line) const {
    if (order_.method.empty()) return Error("the line \"method NAME\" first", line);
    if (order_.microbatches == 0) return Error("the line \"microbatches N\" first", line);
    if (order_.stages.empty()) return Error("the lines \"stage ...\" first", line);
    for (int32_t worker = 0; worker < order_.workers(); ++worker) {
      if (order_.StagesOf(WorkerId(worker)).empty()) {
        return Error(absl::StrCat("a stage on each of ", order_.workers(), " workers"),
                     absl::StrCat("none on worker ", worker));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckLogComplete() const {
    if (order_.ranges.empty() || Range().workers.empty()) return absl::OkStatus();
    const OrderLog& log = Range().workers.back();
    if (log.size() == log.size_complete()) return absl::OkStatus();
    return LogError(absl::StrCat("expected ", log.size_complete(), " blocks, got ", log.size(),
                                 ": the log is cut off"));
  }

  absl::Status CheckRangeComplete() const {
    if (order_.ranges.empty()) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(CheckLogComplete());
    const auto workers = static_cast<int32_t>(Range().workers.size());
    if (workers == order_.workers()) return absl::OkStatus();
    return Error(absl::StrCat("the logs of ", order_.workers(), " workers for the range ",
                              Range().microbatches.first, "+", Range().microbatches.count),
                 absl::StrCat(workers));
  }

  absl::Status ParseWorker(const Words& words, absl::string_view line) {
    PENSTOCK_RETURN_IF_ERROR(CheckLogComplete());
    int64_t worker = 0;
    if (order_.ranges.empty()) return Error("a line \"range ...\" before the first worker", line);
    const auto next = static_cast<int32_t>(Range().workers.size());
    if (words.size() != 2 || !Number(words[1], kRecordedStagesMax, worker) || worker != next ||
        next >= order_.workers()) {
      return Error(next < order_.workers() ? absl::StrCat("worker ", next) : "range or end", line);
    }
    const int32_t replicas = order_.ReplicasOn(WorkerId(next));
    if (Range().microbatches.count % replicas != 0) {
      return Error(absl::StrCat("a range that ", replicas, " replicas can share"), line);
    }
    order_.ranges.back().workers.emplace_back(order_.StagesOf(WorkerId(next)), Range().microbatches,
                                              replicas);
    return absl::OkStatus();
  }

  absl::Status ParseBlocks(const Words& words) {
    if (Range().workers.empty()) return Error("worker 0", words[0]);
    for (const absl::string_view word : words) PENSTOCK_RETURN_IF_ERROR(ParseBlock(word));
    return absl::OkStatus();
  }

  absl::Status ParseBlock(absl::string_view word) {
    OrderLog& log = order_.ranges.back().workers.back();
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('*', 1));
    const absl::string_view block = parts.first;
    int64_t stage = 0;
    int64_t run = 1;
    const bool repeats = word.find('*') != absl::string_view::npos;
    const bool valid = block.size() >= 2 && (block.back() == 'F' || block.back() == 'B') &&
                       Number(block.substr(0, block.size() - 1), kRecordedStagesMax, stage) &&
                       (!repeats || (Number(parts.second, kBlocksMax, run) && run > 0));
    if (!valid) {
      return LogError(absl::StrCat("expected <stage>F or <stage>B, or several as 0F*3; got ",
                                   absl::CHexEscape(word.substr(0, 30))));
    }
    const StageId id(static_cast<int32_t>(stage));
    if (std::find(log.stages().begin(), log.stages().end(), id) == log.stages().end()) {
      return LogError(absl::StrCat("stage ", stage, " is not on this worker"));
    }
    if (log.size() + run > log.size_complete()) {
      return LogError(absl::StrCat("expected ", log.size_complete(), " blocks, got more"));
    }
    for (int64_t i = 0; i < run; ++i) log.Append({id, block.back() == 'B'});
    return absl::OkStatus();
  }

  const absl::string_view text_;
  int64_t line_ = 0;
  bool begun_ = false;
  bool ended_ = false;
  int64_t blocks_ = 0;
  RecordedOrder order_;
};

}  // namespace

std::string PrintRecordedOrder(const RecordedOrder& order) {
  std::string text = absl::StrCat(
      kFirstLine, "  # in which order each worker ran forwards (F) and backwards (B)\nmethod ",
      order.method, "\n");
  if (!order.weights.empty()) absl::StrAppend(&text, "weights ", order.weights, "\n");
  absl::StrAppend(&text, "microbatches ", order.microbatches, "  # of a step\n");
  for (size_t stage = 0; stage < order.stages.size(); ++stage) {
    const RecordedOrder::Stage& each = order.stages[stage];
    absl::StrAppend(&text, "stage ", stage, " worker ", each.worker.value, " layers ",
                    each.first_layer, "+", each.layers, "\n");
  }
  for (const RecordedOrder::Range& range : order.ranges) {
    absl::StrAppend(&text, "range ", range.microbatches.first, "+", range.microbatches.count, "\n");
    for (size_t worker = 0; worker < range.workers.size(); ++worker) {
      absl::StrAppend(&text, "worker ", worker, "\n");
      PrintBlocks(range.workers[worker], text);
    }
  }
  absl::StrAppend(&text, "end\n");
  return text;
}

absl::StatusOr<RecordedOrder> ParseRecordedOrder(absl::string_view text) {
  return OrderParser(text).Parse();
}

}  // namespace penstock
