// GraphBuilder: makes a ModelGraph node by node, checking each where it is added.
//
//     GraphBuilder builder("gpt");
//     builder.AddPort({"tokens", {DType::kI32, {128}}, 256});
//     builder.BeginLayer("embedding");
//     builder.Add({.op = "gpt_embedding", .attributes = {...}, .inputs = {"tokens"}});
//     ...
//     absl::StatusOr<ModelGraph> graph = std::move(builder).Build();
//
// The first error is kept, and Build returns it: calls need not be checked one by one.
//
// Thread-compatible.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

struct NodeSpec {
  std::string name;  // empty: the layer's, which then may have no other node without a name
  std::string op;
  Attributes attributes;
  std::vector<std::string> inputs;  // names of ports and nodes; empty: the node before
  // Before the names of its parameters. Nodes that say one share the parameters whose names are equal. Absent: the node's
  // name and a dot; a parameter that then has a name that is taken is an error.
  std::optional<std::string> parameter_prefix;
  // The node whose parameters this one reads. Of two nodes of one op, those of the same name, and a layout says how each
  // reads them; of others, of each shape the first, then the next. All but the first may have a name or a shape that the
  // other node lacks, and are then its own, too. Empty: it has its own only.
  std::string weights_of;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string architecture);

  // REQUIRES: there are no nodes yet.
  void AddPort(Port port);
  // The nodes from here on are of this layer, whose name, other than those of ports and nodes, has no /.
  // REQUIRES: the layer before has a node.
  void BeginLayer(std::string name);
  void Add(NodeSpec spec);

  // OK as long as nothing was wrong. Errors: InvalidArgument starting with the node's name.
  const absl::Status& status() const { return status_; }
  // The name of the last node. REQUIRES: there is one.
  const std::string& last() const { return graph_.nodes.back().name; }
  // The type of a port's or node's value; null if there is none of this name.
  const ValueType* TypeOf(const std::string& name) const;

  // Errors: that of the first call which failed; InvalidArgument, starting with a node's or port's name where one is to
  // blame, if the last node is no loss, a value is read by nobody, or there are too many parameters.
  absl::StatusOr<ModelGraph> Build() &&;

 private:
  absl::Status CheckPort(const Port& port) const;
  absl::Status TryAdd(NodeSpec spec);
  absl::StatusOr<std::vector<int>> FindInputs(const NodeSpec& spec) const;
  // By the node's prefix, its buffers too.
  static absl::Status NameParameters(const NodeSpec& spec, Node& node);
  // Those names, also of parameters that the node is to share: Untie gives them to it.
  absl::Status TakeNames(const NodeSpec& spec, const Node& node);
  // By `weights_of`.
  absl::Status ShareParameters(Node& node) const;
  absl::Status ShareByName(const Node& other, Node& node) const;
  static absl::Status ShareByShape(const Node& other, Node& node);
  absl::Status LimitIds(const Node& node, const OpArguments& arguments);
  // Parameters of one name are one tensor.
  absl::Status CheckParameterShapes(const Node& node);
  absl::Status CheckReaders() const;
  absl::Status CheckParameterCount() const;

  ModelGraph graph_;
  std::map<std::string, int> values_;  // by name
  std::set<std::string> layers_;       // their names
  struct FirstUse {
    std::vector<int64_t> shape;
    std::string node;
  };
  std::map<std::string, FirstUse> first_uses_;  // of parameters, by name
  std::map<std::string, std::string>
      takers_;  // nodes, by what their parameters and buffers are called
  uint32_t draws_in_layer_ = 0;
  absl::Status status_;
};

}  // namespace penstock
