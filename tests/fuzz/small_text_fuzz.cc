// The small texts of flags, headers and messages: what is read is printed and read as the same, and what is cleaned for a
// log or a scrape is clean. The first line of an input says which parser the rest is for.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "base/trace_context.h"
#include "base/utf8.h"
#include "schedule/action.h"
#include "schedule/weight_policy.h"
#include "services/etcd/etcd_location.h"
#include "services/metrics/exposition.h"
#include "services/rpc/address.h"
#include "services/rpc/one_line.h"
#include "services/rpc/worker_name.h"
#include "services/security/identity.h"
#include "services/tracing/otlp_endpoint.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

// `print` is a value's text, which `parse` must read as a value with that text.
template <typename Parse, typename Print>
void CheckSmallText(absl::string_view text, Parse parse, Print print) {
  const auto value = parse(text);
  if (!value.ok()) return;
  FuzzAccepted();
  const std::string printed = print(*value);
  const auto again = parse(printed);
  PENSTOCK_CHECK(again.ok() && print(*again) == printed);
}

void CheckCleanTexts(absl::string_view text) {
  constexpr size_t kBytesMax = 64;
  const std::string clean = CleanUtf8(text, kBytesMax);
  PENSTOCK_CHECK(clean.size() <= kBytesMax);
  PENSTOCK_CHECK(FindInvalidUtf8(clean) == absl::string_view::npos);
  if (text.size() <= kBytesMax && FindInvalidUtf8(text) == absl::string_view::npos) {
    PENSTOCK_CHECK(clean == text);
  }
  const std::string line = OneLine(text);
  PENSTOCK_CHECK(FindInvalidUtf8(line) == absl::string_view::npos);
  PENSTOCK_CHECK(std::none_of(line.begin(), line.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  }));
  if (CheckWorkerName(text).ok()) PENSTOCK_CHECK(line == text);
}

// A label, such as a worker's name, never makes a line of its own.
void CheckLabel(absl::string_view text) {
  const std::string scrape =
      ExpositionText({{.name = "fuzzed",
                       .help = "A gauge.",
                       .samples = {{.labels = {{"worker", std::string(text)}}}}}});
  PENSTOCK_CHECK(std::count(scrape.begin(), scrape.end(), '\n') == 3);
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(small_text) {
  using namespace penstock;
  FuzzBytes input(data, size);
  const absl::string_view parser = input.TakeUntil('\n');
  const absl::string_view text = input.rest();
  CheckCleanTexts(text);
  CheckLabel(text);
  if (parser == "traceparent") {
    CheckSmallText(text, ParseTraceparent, FormatTraceparent);
  } else if (parser == "address") {
    CheckSmallText(text, ParseHostPort, [](const HostPort& value) { return value.ToString(); });
  } else if (parser == "etcd") {
    CheckSmallText(text, ParseEtcdLocation,
                   [](const EtcdLocation& value) { return value.ToString(); });
  } else if (parser == "otlp") {
    CheckSmallText(text, ParseOtlpUrl, [](const OtlpEndpoint& value) { return value.ToString(); });
  } else if (parser == "identity") {
    CheckSmallText(text, ParseIdentity, [](const Identity& value) { return value.ToUri(); });
  } else if (parser == "action") {
    CheckSmallText(text, ParseAction, [](const Action& value) { return ToString(value); });
  } else if (parser == "weights") {
    CheckSmallText(text, ParseWeightPolicy,
                   [](const WeightPolicy& value) { return ToString(value); });
  }
  return 0;
}
