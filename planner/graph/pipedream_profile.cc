#include "planner/graph/pipedream_profile.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr absl::string_view kSeparator = " -- ";

// Quotes the beginning of what a file holds, for messages.
std::string Quoted(absl::string_view text) {
  constexpr size_t kShownMax = 60;
  return text.size() <= kShownMax ? absl::StrCat("'", text, "'")
                                  : absl::StrCat("'", text.substr(0, kShownMax), "...'");
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a number, got ", Quoted(text)));
  }
  return value;
}

// Returns the text behind "key=".
absl::StatusOr<absl::string_view> ValueOf(absl::string_view key, absl::string_view field) {
  if (!absl::ConsumePrefix(&field, key) || !absl::ConsumePrefix(&field, "=")) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", key, "=.., got ", Quoted(field)));
  }
  return field;
}

absl::StatusOr<double> ParseAmount(absl::string_view key, absl::string_view field) {
  PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view text, ValueOf(key, field));
  const absl::StatusOr<double> value = ParseNumber(text);
  return value.ok() ? value : Annotate(value.status(), key);
}

// Parses "[1.0; 2.0]"; returns an empty list for a plain number.
absl::StatusOr<std::vector<double>> ParseList(absl::string_view text) {
  std::vector<double> elements;
  if (!absl::ConsumePrefix(&text, "[")) return elements;
  if (!absl::ConsumeSuffix(&text, "]")) {
    return absl::InvalidArgumentError("the list of an activation_size has no closing ]");
  }
  for (const absl::string_view element : absl::StrSplit(text, ';')) {
    PENSTOCK_ASSIGN_OR_RETURN(const double bytes, ParseNumber(absl::StripAsciiWhitespace(element)));
    elements.push_back(bytes);
  }
  return elements;
}

class Parser {
 public:
  absl::StatusOr<PipeDreamProfile> Parse(absl::string_view text) {
    if (text.size() > kPipeDreamProfileBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("the profile has ", text.size(),
                                                     " bytes, at most ", kPipeDreamProfileBytesMax,
                                                     " are read"));
    }
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ++line_;
      absl::ConsumeSuffix(&line, "\r");
      const absl::string_view content = absl::StripAsciiWhitespace(line);
      if (content.empty()) continue;
      const bool is_edge = line[0] == '\t' || line[0] == ' ';
      const absl::Status status = is_edge ? ParseEdge(content) : ParseNode(content);
      if (!status.ok()) return Annotate(status, absl::StrCat("line ", line_));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckLayerGraph(profile_.graph));
    return std::move(profile_);
  }

 private:
  absl::Status ParseNode(absl::string_view content) {
    const std::vector<absl::string_view> fields = absl::StrSplit(content, kSeparator);
    if (fields.size() < 3 || fields.size() > 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a node, 'id -- description -- costs' with or without ' -- "
                       "stage_id=N', or an edge, "
                       "'<TAB>id -- id', got ",
                       Quoted(content)));
    }
    LayerNode node{.id = std::string(fields[0]), .description = std::string(fields[1])};
    if (const auto [at, is_new] = line_of_.try_emplace(node.id, line_); !is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.id, " is there already, on line ", at->second));
    }
    const absl::Status status = ParseCosts(fields[2], node);
    if (!status.ok()) return Annotate(status, absl::StrCat("node ", node.id));
    PENSTOCK_RETURN_IF_ERROR(CheckLayerNode(node));

    std::optional<int32_t> stage;
    if (fields.size() == 4) {
      int32_t value = 0;
      absl::string_view text = fields[3];
      if (!absl::ConsumePrefix(&text, "stage_id=") || !absl::SimpleAtoi(text, &value) ||
          value < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "node ", node.id, ": expected stage_id=N with N from 0, got ", Quoted(fields[3])));
      }
      stage = value;
    }
    index_of_.emplace(node.id, static_cast<int>(profile_.graph.nodes.size()));
    profile_.graph.nodes.push_back(std::move(node));
    profile_.stage_of.push_back(stage);
    return absl::OkStatus();
  }

  absl::Status ParseCosts(absl::string_view costs, LayerNode& node) {
    const std::vector<absl::string_view> fields = absl::StrSplit(costs, ", ");
    if (fields.size() != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected 'forward_compute_time=.., backward_compute_time=.., "
                       "activation_size=.., parameter_size=..', got ",
                       Quoted(costs)));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const double forward_ms,
                              ParseAmount("forward_compute_time", fields[0]));
    PENSTOCK_ASSIGN_OR_RETURN(const double backward_ms,
                              ParseAmount("backward_compute_time", fields[1]));
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view activation,
                              ValueOf("activation_size", fields[2]));
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<double> outputs, ParseList(activation));
    if (outputs.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(node.activation_bytes, ParseAmount("activation_size", fields[2]));
    }
    for (const double bytes : outputs) {
      if (!(bytes >= 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("an element of activation_size must not be negative, got ", bytes));
      }
      node.activation_bytes += bytes;
    }
    PENSTOCK_ASSIGN_OR_RETURN(node.parameter_bytes, ParseAmount("parameter_size", fields[3]));
    node.forward_s = forward_ms / 1e3;
    node.backward_s = backward_ms / 1e3;
    profile_.output_bytes.push_back(std::move(outputs));
    return absl::OkStatus();
  }

  absl::Status ParseEdge(absl::string_view content) {
    const std::vector<absl::string_view> ends = absl::StrSplit(content, kSeparator);
    if (ends.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected an edge, '<TAB>id -- id', got ", Quoted(content)));
    }
    for (const absl::string_view end : ends) {
      if (!index_of_.contains(end)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the edge names node ", Quoted(end), ", which no line before describes"));
      }
    }
    profile_.graph.edges.push_back({index_of_[ends[0]], index_of_[ends[1]]});
    return absl::OkStatus();
  }

  int line_ = 0;
  PipeDreamProfile profile_;
  absl::flat_hash_map<std::string, int> line_of_;
  absl::flat_hash_map<std::string, int> index_of_;
};

// Formats as Python prints a float: whole numbers with one zero behind the point, others as short as they read back the
// same.
std::string FormatBytes(double bytes) {
  if (bytes == std::floor(bytes)) return absl::StrFormat("%.1f", bytes);
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, bytes);
    double read = 0;
    if (absl::SimpleAtod(text, &read) && read == bytes) return text;
  }
  return absl::StrFormat("%.17g", bytes);
}

std::string FormatOutput(const LayerNode& node, const std::vector<double>& outputs) {
  if (outputs.empty()) return FormatBytes(node.activation_bytes);
  return absl::StrCat("[",
                      absl::StrJoin(outputs, "; ",
                                    [](std::string* text, double bytes) {
                                      absl::StrAppend(text, FormatBytes(bytes));
                                    }),
                      "]");
}

}  // namespace

absl::StatusOr<PipeDreamProfile> ParsePipeDreamProfile(absl::string_view text) {
  return Parser().Parse(text);
}

std::string FormatPipeDreamProfile(const PipeDreamProfile& profile) {
  const LayerGraph& graph = profile.graph;
  std::vector<std::string> lines;
  lines.reserve(graph.nodes.size() + graph.edges.size());
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    const LayerNode& node = graph.nodes[index];
    lines.push_back(absl::StrFormat(
        "%s -- %s -- forward_compute_time=%.3f, backward_compute_time=%.3f, activation_size=%s, "
        "parameter_size=%.3f",
        node.id, node.description, node.forward_s * 1e3, node.backward_s * 1e3,
        FormatOutput(node, profile.output_bytes[index]), node.parameter_bytes));
    if (profile.stage_of[index].has_value()) {
      absl::StrAppend(&lines.back(), kSeparator, "stage_id=", *profile.stage_of[index]);
    }
  }
  for (const LayerEdge& edge : graph.edges) {
    lines.push_back(
        absl::StrCat("\t", graph.nodes[edge.from].id, kSeparator, graph.nodes[edge.to].id));
  }
  return absl::StrJoin(lines, "\n");
}

namespace {

PipeDreamProfile WithoutNodes(const PipeDreamProfile& profile, const std::vector<bool>& removed) {
  PipeDreamProfile left{.graph = WithoutNodes(profile.graph, removed)};
  for (size_t node = 0; node < removed.size(); ++node) {
    if (removed[node]) continue;
    left.output_bytes.push_back(profile.output_bytes[node]);
    left.stage_of.push_back(profile.stage_of[node]);
  }
  return left;
}

}  // namespace

PipeDreamProfile WithoutInputsAndUnreadItems(const PipeDreamProfile& profile) {
  std::vector<bool> removed(profile.graph.nodes.size());
  for (const int source : SourcesOf(profile.graph)) {
    removed[source] = absl::StartsWith(profile.graph.nodes[source].description, "Input");
  }
  const PipeDreamProfile without_inputs = WithoutNodes(profile, removed);
  removed.assign(without_inputs.graph.nodes.size(), false);
  for (const int sink : SinksOf(without_inputs.graph)) {
    removed[sink] = absl::StartsWith(without_inputs.graph.nodes[sink].description, "__getitem__");
  }
  return WithoutNodes(without_inputs, removed);
}

}  // namespace penstock
