#include "services/tracing/otlp_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Numbers of the protocol's enums.
constexpr int kSpanKindInternal = 1;
constexpr int kStatusError = 2;

// Beyond any text of ours; what would be longer ends there.
constexpr size_t kTextBytesMax = 8 << 10;

std::string Text(const std::string& text) { return CleanUtf8(text, kTextBytesMax); }

// 64-bit numbers are strings in the JSON of protocol buffers.
std::string Decimal(int64_t number) { return absl::StrCat(number); }

struct ValueToJson {
  Json operator()(const std::string& text) const { return {{"stringValue", Text(text)}}; }
  Json operator()(int64_t number) const { return {{"intValue", Decimal(number)}}; }
  Json operator()(double number) const {
    // JSON has no word for these numbers; protocol buffers write them as strings.
    if (std::isnan(number)) return {{"doubleValue", "NaN"}};
    if (std::isinf(number)) return {{"doubleValue", number > 0 ? "Infinity" : "-Infinity"}};
    return {{"doubleValue", number}};
  }
  Json operator()(bool truth) const { return {{"boolValue", truth}}; }
};

Json Attribute(const std::string& key, const SpanValue& value) {
  return {{"key", key}, {"value", std::visit(ValueToJson(), value)}};
}

Json ToJson(const TraceSpan& span) {
  Json json = {{"traceId", ToHex(span.trace_id)}, {"spanId", ToHex(span.id)}};
  if (span.parent.has_value()) json["parentSpanId"] = ToHex(*span.parent);
  json["name"] = Text(span.name);
  json["kind"] = kSpanKindInternal;
  json["startTimeUnixNano"] = Decimal(span.start_unix_ns);
  json["endTimeUnixNano"] = Decimal(span.end_unix_ns);
  for (const SpanAttribute& attribute : span.attributes) {
    json["attributes"].push_back(Attribute(attribute.key, attribute.value));
  }
  for (const SpanEvent& event : span.events) {
    json["events"].push_back(
        {{"timeUnixNano", Decimal(event.unix_ns)}, {"name", Text(event.name)}});
  }
  if (span.dropped_events > 0) json["droppedEventsCount"] = span.dropped_events;
  for (const SpanId& link : span.links) {
    json["links"].push_back({{"traceId", ToHex(span.trace_id)}, {"spanId", ToHex(link)}});
  }
  if (span.error.has_value()) {
    json["status"] = {{"code", kStatusError}, {"message", Text(*span.error)}};
  }
  return json;
}

}  // namespace

std::string OtlpJson(const TraceSender& sender, absl::Span<const TraceSpan> spans) {
  Json list = Json::array();
  for (const TraceSpan& span : spans) list.push_back(ToJson(span));
  const Json resource = {
      {"attributes",
       {Attribute("service.name", sender.name), Attribute("service.version", sender.version),
        Attribute("service.instance.id", sender.instance)}}};
  const Json scope = {{"name", "penstock"}, {"version", sender.version}};
  const Json request = {
      {"resourceSpans",
       {{{"resource", resource}, {"scopeSpans", {{{"scope", scope}, {"spans", list}}}}}}}};
  return request.dump();
}

int64_t OtlpBytes(const TraceSpan& span) {
  constexpr size_t kSpanBytes = 320;  // ids, times, keys
  constexpr size_t kPartBytes = 100;  // of an attribute, an event or a link
  size_t bytes = kSpanBytes + span.name.size() + kPartBytes * span.links.size();
  for (const SpanAttribute& attribute : span.attributes) {
    const auto* text = std::get_if<std::string>(&attribute.value);
    bytes += kPartBytes + attribute.key.size() + (text == nullptr ? 0 : text->size());
  }
  for (const SpanEvent& event : span.events) bytes += kPartBytes + event.name.size();
  if (span.error.has_value()) bytes += kPartBytes + span.error->size();
  return static_cast<int64_t>(bytes);
}

OtlpPartialSuccess ReadOtlpResponse(absl::string_view body) {
  OtlpPartialSuccess partial;
  const nlohmann::json json = nlohmann::json::parse(body.begin(), body.end(), nullptr,
                                                    /*allow_exceptions=*/false);
  if (!json.is_object()) return partial;
  const auto found = json.find("partialSuccess");
  if (found == json.end() || !found->is_object()) return partial;
  if (const auto rejected = found->find("rejectedSpans"); rejected != found->end()) {
    if (rejected->is_number_integer()) partial.rejected_spans = rejected->get<int64_t>();
    if (rejected->is_string() &&
        !absl::SimpleAtoi(rejected->get<std::string>(), &partial.rejected_spans)) {
      partial.rejected_spans = 0;
    }
  }
  if (const auto message = found->find("errorMessage");
      message != found->end() && message->is_string()) {
    partial.message = Text(message->get<std::string>());
  }
  partial.rejected_spans = std::max<int64_t>(0, partial.rejected_spans);
  return partial;
}

}  // namespace penstock
