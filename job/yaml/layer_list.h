// LayerList: the ops of a model in the order in which `model.layers` lists them, on their way to a graph.
//
// It names them, finds what they read, checks each where it is added, and cuts them into layers. Repeats, blocks and
// residual branches are calls here; the graph knows nothing of them.
//
// Thread-compatible.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/graph_builder.h"
#include "penstock/v1/model_graph.pb.h"

namespace penstock {

class LayerList {
 public:
  LayerList();

  // Errors: InvalidArgument (after the first op; a port that cannot be).
  absl::Status AddInput(Port port);

  // Adds an op and returns the full name of its value. `op` has its name in the scope, or none, and then gets that of the
  // op, with a number where it is taken; what it reads has full names. Without inputs it reads the value before, which
  // for the first op is the first input.
  // Errors: InvalidArgument starting with the name.
  absl::StatusOr<std::string> Add(NodeSpec op);

  // The full name of the value before, and another one in its place.
  const std::string& before() const { return before_; }
  void ContinueFrom(const std::string& value) { before_ = value; }
  // The full name of the value that is called `name` here, in a scope around here, or without one.
  // Errors: InvalidArgument, with the nearest name.
  absl::StatusOr<std::string> Find(absl::string_view name) const;

  // Names in a scope start with its name and a dot. Leaving it, the name stands for the last value in it.
  // Errors: InvalidArgument (the name is taken).
  absl::Status EnterScope(absl::string_view name);
  void LeaveScope();
  // `base`, with a number where it is taken in this scope.
  std::string FreeName(absl::string_view base) const;

  // All ops between these two are one layer, called as the scope they are in.
  // REQUIRES: a scope was entered; no block is open.
  void BeginBlock();
  void EndBlock();
  bool in_block() const { return in_block_; }

  // Outside blocks a layer begins at each op with parameters; the others belong to the layer before them, or at the
  // start of the model to the one behind them.
  // Errors: as GraphBuilder::Build.
  absl::StatusOr<v1::ModelGraph> Build() &&;

 private:
  std::string prefix() const { return scopes_.empty() ? "" : scopes_.back() + "."; }
  bool IsTaken(const std::string& name) const { return values_.count(name) > 0; }
  std::vector<LayerSpec> CutIntoLayers(const ModelGraph& graph) const;

  GraphBuilder builder_;
  std::map<std::string, std::string>
      values_;                       // by name, also of scopes: the value that it stands for
  std::vector<std::string> scopes_;  // full names
  std::string before_;
  bool has_ops_ = false;
  bool in_block_ = false;
  std::string block_;                       // the last one
  std::vector<std::string> blocks_of_ops_;  // the block's name, or empty
};

}  // namespace penstock
