#include "services/documents/step_record_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "penstock/v1/tensorboard.pb.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(std::optional<double> value) { return value ? Json(*value) : Json(); }

// The columns, by name, in their order.
Json FieldsOf(const StepRecord& record) {
  return {{"step", record.step},
          {"loss", record.loss},
          {"learning_rate", record.learning_rate},
          {"gradient_norm", record.gradient_norm},
          {"seconds", OrNull(record.seconds)},
          {"samples_per_second", OrNull(record.samples_per_second())},
          {"tokens_per_second", OrNull(record.tokens_per_second())},
          {"validation_loss", OrNull(record.validation_loss)},
          {"attempt", record.attempt},
          {"unix_ms", record.unix_ms}};
}

// Four bytes, the lowest first.
std::string Bytes(uint32_t number) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

// TensorFlow masks checksums, so that one of data with checksums in it is sound.
std::string MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return Bytes(((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

// [u64 length][checksum of that][event][checksum of that].
std::string Framed(const v1::TensorboardEvent& event) {
  const std::string data = event.SerializeAsString();
  const auto size = static_cast<uint64_t>(data.size());
  const std::string length =
      Bytes(static_cast<uint32_t>(size)) + Bytes(static_cast<uint32_t>(size >> 32));
  return absl::StrCat(length, MaskedCrc(length), data, MaskedCrc(data));
}

void AddScalar(absl::string_view tag, std::optional<double> value, v1::TensorboardEvent& event) {
  if (!value.has_value()) return;
  v1::TensorboardSummary::Value& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(std::string(tag));
  scalar.set_simple_value(static_cast<float>(*value));
}

}  // namespace

std::string StepRecordJsonLine(const StepRecord& record) {
  Json json = FieldsOf(record);
  if (!record.validation_metrics.empty()) {
    Json& metrics = json["validation_metrics"] = Json::object();
    for (const v1::MetricValue& metric : record.validation_metrics) {
      metrics[metric.name()] = metric.value();
    }
  }
  return json.dump() + "\n";
}

std::string StepRecordCsvHeader() {
  std::vector<std::string> names;
  const Json fields = FieldsOf(StepRecord());
  for (const auto& [name, value] : fields.items()) names.push_back(name);
  return absl::StrJoin(names, ",") + "\n";
}

std::string StepRecordCsvLine(const StepRecord& record) {
  std::vector<std::string> values;
  for (const Json& value : FieldsOf(record)) {
    const std::string text = value.dump();  // null of what is not finite
    values.push_back(text == "null" ? "" : text);
  }
  return absl::StrJoin(values, ",") + "\n";
}

std::string TensorboardHeader(double unix_seconds) {
  v1::TensorboardEvent event;
  event.set_wall_time(unix_seconds);
  event.set_file_version("brain.Event:2");
  return Framed(event);
}

std::string TensorboardRecord(const StepRecord& record) {
  v1::TensorboardEvent event;
  event.set_wall_time(1e-3 * static_cast<double>(record.unix_ms));
  event.set_step(record.step);
  AddScalar("loss/train", record.loss, event);
  AddScalar("loss/validation", record.validation_loss, event);
  AddScalar("learning_rate", record.learning_rate, event);
  AddScalar("gradient_norm", record.gradient_norm, event);
  AddScalar("speed/seconds", record.seconds, event);
  AddScalar("speed/samples_per_second", record.samples_per_second(), event);
  AddScalar("speed/tokens_per_second", record.tokens_per_second(), event);
  for (const v1::MetricValue& metric : record.validation_metrics) {
    AddScalar(absl::StrCat("validation/", metric.name()), metric.value(), event);
  }
  return Framed(event);
}

}  // namespace penstock
