#include "worker/port_reader.h"

#include <algorithm>

#include "base/status.h"

namespace penstock {

bool ReadsData(const ModelGraph& model, LayerRange layers) {
  if (model.FindCarrying(layers) != nullptr) return true;
  const auto first = model.nodes.begin() + model.layers[layers.first].first_node;
  const auto end = model.nodes.begin() + model.layers[layers.end() - 1].end_node();
  return std::any_of(first, end, [&](const Node& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](int value) { return model.is_port(value); });
  });
}

absl::StatusOr<absl::Span<const Tensor>> PortReader::Read(Stage& stage, Split split,
                                                          int64_t first_sample) {
  tensors_.clear();
  for (const int port : stage.ports()) {
    values_.resize(samples_ * model_.ports[port].type.size_bytes());
    PENSTOCK_RETURN_IF_ERROR(data_->Read(split, first_sample, port, absl::MakeSpan(values_)));
    PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor, stage.PortToDevice(port, values_));
    tensors_.push_back(std::move(tensor));
  }
  return tensors_;
}

MicrobatchStart PortReader::StartOf(const Stage& stage, Split split, int64_t first_sample) const {
  return {first_sample, !stage.carries() || data_->StartsAfresh(split, first_sample)};
}

void PortReader::Forget() { tensors_.clear(); }

}  // namespace penstock
