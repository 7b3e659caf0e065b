// Against the protocol's documentation: field names of opentelemetry/proto/trace/v1/trace.proto in lowerCamelCase,
// ids as hexadecimal digits, 64-bit numbers as strings, enums as numbers.
#include "services/tracing/otlp_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using Json = nlohmann::json;

const TraceSender kSender = {
    .name = "penstock-coordinator", .version = "1.2", .instance = "h:7070"};

TraceSpan FullSpan() {
  return {.trace_id = {0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c,
                       0x80, 0x31, 0x9c},
          .id = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31},
          .parent = SpanId{1, 2, 3, 4, 5, 6, 7, 8},
          .name = "steps 1-4",
          .start_unix_ns = 1'700'000'000'123'456'789,
          .end_unix_ns = 1'700'000'001'000'000'000,
          .attributes = {{"penstock.job", "a"},
                         {"penstock.steps", int64_t{-9'007'199'254'740'993}},
                         {"penstock.loss", 0.5},
                         {"penstock.yes", true}},
          .events = {{.unix_ns = 1'700'000'000'500'000'000, .name = "said \"so\"\n"}},
          .dropped_events = 3,
          .links = {SpanId{9}},
          .error = "no"};
}

TEST(OtlpJson, FullSpan_IsWhatTheProtocolAsks) {
  const TraceSpan span = FullSpan();
  EXPECT_EQ(Json::parse(OtlpJson(kSender, {span})), Json::parse(R"({
    "resourceSpans": [{
      "resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "penstock-coordinator"}},
        {"key": "service.version", "value": {"stringValue": "1.2"}},
        {"key": "service.instance.id", "value": {"stringValue": "h:7070"}}]},
      "scopeSpans": [{
        "scope": {"name": "penstock", "version": "1.2"},
        "spans": [{
          "traceId": "0af7651916cd43dd8448eb211c80319c",
          "spanId": "b7ad6b7169203331",
          "parentSpanId": "0102030405060708",
          "name": "steps 1-4",
          "kind": 1,
          "startTimeUnixNano": "1700000000123456789",
          "endTimeUnixNano": "1700000001000000000",
          "attributes": [
            {"key": "penstock.job", "value": {"stringValue": "a"}},
            {"key": "penstock.steps", "value": {"intValue": "-9007199254740993"}},
            {"key": "penstock.loss", "value": {"doubleValue": 0.5}},
            {"key": "penstock.yes", "value": {"boolValue": true}}],
          "events": [{"timeUnixNano": "1700000000500000000", "name": "said \"so\"\n"}],
          "droppedEventsCount": 3,
          "links": [{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "0900000000000000"}],
          "status": {"code": 2, "message": "no"}}]}]}]})"));
}

TEST(OtlpJson, WhatASpanLacks_IsLeftOut) {
  TraceSpan span = FullSpan();
  span.parent.reset();
  span.attributes.clear();
  span.events.clear();
  span.dropped_events = 0;
  span.links.clear();
  span.error.reset();
  const Json json = Json::parse(OtlpJson(kSender, {span}));
  const Json& sent = json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  for (const char* key :
       {"parentSpanId", "attributes", "events", "droppedEventsCount", "links", "status"}) {
    EXPECT_FALSE(sent.contains(key)) << key;
  }
}

TEST(OtlpJson, NumbersThatAreNone_AreWords) {
  TraceSpan span = FullSpan();
  span.attributes = {{"a", std::numeric_limits<double>::quiet_NaN()},
                     {"b", std::numeric_limits<double>::infinity()},
                     {"c", -std::numeric_limits<double>::infinity()}};
  const Json json = Json::parse(OtlpJson(kSender, {span}));
  const Json& attributes = json["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"];
  EXPECT_EQ(attributes[0]["value"]["doubleValue"], "NaN");
  EXPECT_EQ(attributes[1]["value"]["doubleValue"], "Infinity");
  EXPECT_EQ(attributes[2]["value"]["doubleValue"], "-Infinity");
}

TEST(OtlpJson, TextOfOthers_IsCleanAndBounded) {
  TraceSpan span = FullSpan();
  span.name = "\xff\x01";
  span.error = std::string(1 << 20, 'x');
  const Json json = Json::parse(OtlpJson(kSender, {span}));
  const Json& sent = json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(sent["name"], "\uFFFD\x01");
  EXPECT_LT(sent["status"]["message"].get<std::string>().size(), 10'000u);
}

TEST(OtlpJson, Bytes_AreAboutRight) {
  const TraceSpan span = FullSpan();
  const auto one = static_cast<int64_t>(OtlpJson(kSender, {span}).size());
  const auto two = static_cast<int64_t>(OtlpJson(kSender, {span, span}).size());
  EXPECT_GE(OtlpBytes(span), two - one);
  EXPECT_LE(OtlpBytes(span), 3 * (two - one));
}

TEST(OtlpResponse, PartialSuccess_IsRead) {
  for (const char* body : {R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}})",
                           R"({"partialSuccess":{"rejectedSpans":3,"errorMessage":"too old"}})"}) {
    EXPECT_EQ(ReadOtlpResponse(body).rejected_spans, 3) << body;
    EXPECT_EQ(ReadOtlpResponse(body).message, "too old");
  }
}

TEST(OtlpResponse, AnythingElse_RejectsNothing) {
  for (const char* body :
       {"", "{}", "[]", "null", "<html>", R"({"partialSuccess":null})", R"({"partialSuccess":{}})",
        R"({"partialSuccess":{"rejectedSpans":"many"}})",
        R"({"partialSuccess":{"rejectedSpans":-1}})", R"({"partialSuccess":{"rejectedSpans":1.5}})",
        R"({"partialSuccess":[1]})"}) {
    EXPECT_EQ(ReadOtlpResponse(body).rejected_spans, 0) << body;
  }
}

}  // namespace
}  // namespace penstock
