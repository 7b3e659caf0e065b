#include "data/record_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kRecordsBetweenReports = 256;

// Welford's mean and sum of squared distances from it.
class Meter {
 public:
  explicit Meter(const TensorType& type)
      : type_(type), counts_values_(type.shape.empty() && type.dtype != "F32") {}

  bool known() const { return type_.dtype == "U8" || type_.dtype == "I32" || type_.dtype == "F32"; }

  void Add(const std::vector<std::byte>& record) {
    if (type_.dtype == "U8") AddAll<uint8_t>(record);
    if (type_.dtype == "I32") AddAll<int32_t>(record);
    if (type_.dtype == "F32") AddAll<float>(record);
  }

  TensorStatistics Result() const {
    if (!known() || count_ == 0) return {};
    return {.known = true,
            .min = min_,
            .max = max_,
            .mean = mean_,
            .deviation = std::sqrt(squares_ / static_cast<double>(count_)),
            .counts = counts_};
  }

 private:
  template <typename T>
  void AddAll(const std::vector<std::byte>& record) {
    for (size_t offset = 0; offset < record.size(); offset += sizeof(T)) {
      T typed;
      std::memcpy(&typed, record.data() + offset, sizeof(T));
      const auto value = static_cast<double>(typed);
      min_ = std::min(min_, value);
      max_ = std::max(max_, value);
      ++count_;
      const double distance = value - mean_;
      mean_ += distance / static_cast<double>(count_);
      squares_ += distance * (value - mean_);
      if (counts_values_) Count(static_cast<int64_t>(typed));
    }
  }

  void Count(int64_t value) {
    ++counts_[value];
    if (counts_.size() <= kCountedValuesMax) return;
    counts_.clear();
    counts_values_ = false;
  }

  const TensorType& type_;
  bool counts_values_;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  double mean_ = 0.0;
  double squares_ = 0.0;
  int64_t count_ = 0;
  std::map<int64_t, int64_t> counts_;
};

}  // namespace

std::vector<LengthStatistics> LengthsOf(const RecordFiles& records) {
  std::vector<LengthStatistics> statistics;
  std::vector<int64_t> lengths(records.records());
  for (size_t sequence = 0; sequence < records.index().sequences.size(); ++sequence) {
    LengthStatistics& of = statistics.emplace_back();
    for (int64_t record = 0; record < records.records(); ++record) {
      lengths[record] = records.LengthOf(static_cast<int>(sequence), record);
      of.values += lengths[record];
    }
    std::sort(lengths.begin(), lengths.end());
    const auto percentile = [&](int64_t percent) {
      return lengths[(records.records() * percent + 99) / 100 - 1];
    };
    of.mean = static_cast<double>(of.values) / static_cast<double>(records.records());
    of.shortest = lengths.front();
    of.median = percentile(50);
    of.percentile_90 = percentile(90);
    of.percentile_99 = percentile(99);
    of.longest = lengths.back();
  }
  return statistics;
}

absl::StatusOr<RecordStatistics> StatisticsOf(
    const RecordFiles& records, int64_t records_max,
    const std::function<absl::Status(int64_t done, int64_t all)>& progress) {
  RecordStatistics statistics = {.records = std::min(records_max, records.records())};
  const std::vector<TensorType>& tensors = records.index().tensors;
  std::vector<Meter> meters(tensors.begin(), tensors.end());
  std::vector<std::byte> values;
  for (int64_t i = 0; i < statistics.records; ++i) {
    const auto place = static_cast<unsigned __int128>(i) * records.records() / statistics.records;
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      if (!meters[tensor].known()) continue;
      values.resize(RecordBytes(tensors[tensor]));
      PENSTOCK_RETURN_IF_ERROR(records.Read(static_cast<int>(tensor), static_cast<int64_t>(place),
                                            absl::MakeSpan(values)));
      meters[tensor].Add(values);
    }
    if (progress && (i + 1) % kRecordsBetweenReports == 0) {
      PENSTOCK_RETURN_IF_ERROR(progress(i + 1, statistics.records));
    }
  }
  for (const Meter& meter : meters) statistics.tensors.push_back(meter.Result());
  return statistics;
}

}  // namespace penstock
