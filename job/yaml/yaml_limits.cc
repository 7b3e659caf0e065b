#include "job/yaml/yaml_limits.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_node.h"

namespace penstock {
namespace {

// Looks at a document before a tree is made of it: counts levels, finds anchors and aliases.
class LimitChecker final : public YAML::EventHandler {
 public:
  explicit LimitChecker(const std::string& file_name) : file_name_(file_name) {}

  const absl::Status& status() const { return status_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Visit(mark, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { RefuseAlias(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string&) override {
    Visit(mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Enter(mark, anchor);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Enter(mark, anchor);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void Fail(const YAML::Mark& mark, absl::string_view what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(PlaceOf(file_name_, mark), ": ", what));
    }
  }
  void RefuseAlias(const YAML::Mark& mark) {
    Fail(mark, "anchors (&) and aliases (*) are not allowed here; write the value out");
  }
  void Visit(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) {
      RefuseAlias(mark);
    }
  }
  void Enter(const YAML::Mark& mark, YAML::anchor_t anchor) {
    Visit(mark, anchor);
    if (++depth_ > kYamlDepthMax) {
      Fail(mark, absl::StrCat("more than ", kYamlDepthMax, " levels of nesting"));
    }
  }

  const std::string& file_name_;
  absl::Status status_;
  int depth_ = 0;
};

absl::Status CheckText(absl::string_view text, const std::string& file_name) {
  if (static_cast<int64_t>(text.size()) > kYamlBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: has %d bytes; at most %d are read",
                                                      file_name, text.size(), kYamlBytesMax));
  }
  const size_t bad = std::min(FindInvalidUtf8(text), text.find('\0'));
  if (bad != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: byte %d (0x%02x) is not UTF-8 text", file_name, bad, static_cast<uint8_t>(text[bad])));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<YAML::Node> LoadYamlDocument(absl::string_view text, const std::string& file_name) {
  PENSTOCK_RETURN_IF_ERROR(CheckText(text, file_name));
  const std::string copy(text);
  std::istringstream stream(copy);
  YAML::Parser parser(stream);
  LimitChecker checker(file_name);
  if (!parser.HandleNextDocument(checker)) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": is empty"));
  }
  PENSTOCK_RETURN_IF_ERROR(checker.status());
  if (parser.HandleNextDocument(checker)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": holds more than one document (\"---\"); keep one"));
  }
  YAML::Node node = YAML::Load(copy);
  if (node.IsNull()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": is empty"));
  }
  return node;
}

}  // namespace penstock
