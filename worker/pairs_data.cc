#include "worker/pairs_data.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 5> kContentNames = {
    "source", "source_lengths", "inputs", "targets", "target_lengths"};  // by Content

// Padding must not be among what the loss is a mean over.
absl::Status CheckPaddingIsIgnored(const ModelGraph& model, int32_t padding) {
  const Node& loss = model.nodes.back();
  if (loss.attributes.has("ignore") && loss.attributes.integer("ignore") == padding) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "targets end with padding, piece ", padding, ", but the model's loss, ", loss.name,
      ", does not ignore it; the loss cross_entropy does with `ignore: ", padding, "`"));
}

std::string LimitsText(const PairLimits& limits) {
  const auto text = [](int64_t pieces) {
    return pieces == std::numeric_limits<int64_t>::max() ? std::string("any number of")
                                                         : absl::StrCat("at most ", pieces);
  };
  return absl::StrCat(text(limits.source), " pieces in the source and ", text(limits.target),
                      " in the target");
}

}  // namespace

PairLimits PairLimitsOf(absl::Span<const Port> ports) {
  PairLimits limits = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  for (const Port& port : ports) {
    if (port.type.dims.size() != 1) continue;
    int64_t& limit = port.name == "source" ? limits.source : limits.target;
    limit = std::min(limit, port.type.dims[0] - 1);
  }
  return limits;
}

absl::StatusOr<std::unique_ptr<PairsData>> PairsData::Open(std::unique_ptr<PairFiles> training,
                                                           std::unique_ptr<PairFiles> validation,
                                                           const ModelGraph& model,
                                                           const PairsOptions& options) {
  auto data = std::unique_ptr<PairsData>(
      new PairsData(std::move(training), std::move(validation), options));
  PENSTOCK_RETURN_IF_ERROR(data->BindPorts(model, *data->training_));
  const PairLimits limits = PairLimitsOf(model.ports);
  PENSTOCK_RETURN_IF_ERROR(data->OrderTraining(limits));
  PENSTOCK_RETURN_IF_ERROR(data->OrderValidation(limits));
  return data;
}

absl::StatusOr<std::unique_ptr<PairsData>> PairsData::OpenToEvaluate(
    std::unique_ptr<PairFiles> pairs, const ModelGraph& model) {
  auto data = std::unique_ptr<PairsData>(new PairsData(nullptr, std::move(pairs), {}));
  PENSTOCK_RETURN_IF_ERROR(data->BindPorts(model, *data->validation_));
  const PairLimits limits = PairLimitsOf(model.ports);
  data->validation_pairs_ = PairsByLength(*data->validation_, limits);
  if (!data->validation_pairs_.empty()) return data;
  return absl::InvalidArgumentError(absl::StrCat(data->validation_->directory(), " has no pair of ",
                                                 LimitsText(limits), " (of ",
                                                 data->validation_->pairs(), ")"));
}

absl::Status PairsData::BindPorts(const ModelGraph& model, const PairFiles& pairs) {
  PENSTOCK_RETURN_IF_ERROR(CheckPaddingIsIgnored(model, pairs.vocabulary().padding));
  const int64_t pieces = pairs.vocabulary().pieces;
  for (const Port& port : model.ports) {
    const auto name = std::find(kContentNames.begin(), kContentNames.end(), port.name);
    PENSTOCK_CHECK(name != kContentNames.end());
    PairPort& bound = ports_.emplace_back();
    bound.content = static_cast<Content>(name - kContentNames.begin());
    if (port.type.dims.empty()) continue;  // a length
    bound.time = port.type.dims[0];
    if (port.ids == 0 || port.ids >= pieces) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        pairs.directory(), " has a vocabulary of ", pieces, " pieces, but the model's input ",
        port.name, " takes ", port.ids, "; make the model's vocabulary that large"));
  }
  return absl::OkStatus();
}

absl::Status PairsData::OrderTraining(const PairLimits& limits) {
  std::vector<int64_t> by_length = PairsByLength(*training_, limits);
  const auto fitting = static_cast<int64_t>(by_length.size());
  if (fitting < options_.buckets.batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        training_->directory(), " has ", fitting, " pairs of ", LimitsText(limits), " (of ",
        training_->pairs(), "), but training.batch asks for ", options_.buckets.batch,
        "; make the batch smaller, or the model's inputs longer"));
  }
  order_.emplace(std::move(by_length), options_.buckets);
  return absl::OkStatus();
}

absl::Status PairsData::OrderValidation(const PairLimits& limits) {
  if (validation_ == nullptr) return absl::OkStatus();
  if (!(validation_->vocabulary() == training_->vocabulary())) {
    return absl::InvalidArgumentError(
        absl::StrCat(validation_->directory(), " has another vocabulary than ",
                     training_->directory(), "; prepare both with the same pieces"));
  }
  const std::vector<int64_t> by_length = PairsByLength(*validation_, limits);
  const auto fitting = static_cast<int64_t>(by_length.size());
  const int64_t asked = options_.validation_samples;
  if (asked > fitting) {
    return absl::InvalidArgumentError(
        absl::StrCat(validation_->directory(), " has ", fitting, " pairs of ", LimitsText(limits),
                     " (of ", validation_->pairs(), "), but a validation asks for ", asked,
                     "; set a smaller validation.batches"));
  }
  for (int64_t sample = 0; sample < asked; ++sample) {
    const auto place = static_cast<unsigned __int128>(sample) * static_cast<uint64_t>(fitting) /
                       static_cast<uint64_t>(asked);
    validation_pairs_.push_back(by_length[static_cast<int64_t>(place)]);
  }
  return absl::OkStatus();
}

absl::Status PairsData::Read(Split split, int64_t first_sample, int port,
                             absl::Span<std::byte> values) const {
  const PairPort& filled = ports_[port];
  const auto sample_bytes = filled.time * static_cast<int64_t>(sizeof(int32_t));
  const auto samples = static_cast<int64_t>(values.size()) / sample_bytes;
  PENSTOCK_CHECK(samples * sample_bytes == static_cast<int64_t>(values.size()));
  auto* const numbers = reinterpret_cast<int32_t*>(values.data());
  const auto of_sample = [&](int64_t i) {
    return absl::MakeSpan(numbers + i * filled.time, filled.time);
  };
  if (split == Split::kValidation) {
    PENSTOCK_CHECK(first_sample >= 0 && first_sample + samples <= validation_samples());
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t pair = validation_pairs_[first_sample + i];
      PENSTOCK_RETURN_IF_ERROR(Fill(*validation_, pair, filled, of_sample(i)));
    }
    return absl::OkStatus();
  }
  PENSTOCK_CHECK(order_.has_value());
  LengthBuckets::Reader order(*order_);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t pair = order.RecordOf(first_sample + i);
    PENSTOCK_RETURN_IF_ERROR(Fill(*training_, pair, filled, of_sample(i)));
  }
  return absl::OkStatus();
}

absl::Status PairsData::Fill(const PairFiles& pairs, int64_t pair, const PairPort& port,
                             absl::Span<int32_t> values) {
  const bool is_source = port.content == Content::kSource || port.content == Content::kSourceLength;
  const PairSide side = is_source ? PairSide::kSource : PairSide::kTarget;
  const int64_t pieces = pairs.PiecesOf(side, pair);
  if (port.content == Content::kSourceLength || port.content == Content::kTargetLength) {
    values[0] = static_cast<int32_t>(pieces + 1);  // with the beginning or the end
    return absl::OkStatus();
  }
  const PieceNumbers& vocabulary = pairs.vocabulary();
  const bool begins = port.content == Content::kInputs;
  PENSTOCK_RETURN_IF_ERROR(pairs.Read(side, pair, values.subspan(begins ? 1 : 0, pieces)));
  values[begins ? 0 : pieces] = begins ? vocabulary.bos : vocabulary.eos;
  std::fill(values.begin() + pieces + 1, values.end(), vocabulary.padding);
  return absl::OkStatus();
}

}  // namespace penstock
