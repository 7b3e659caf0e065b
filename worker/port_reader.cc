#include "worker/port_reader.h"

#include "base/status.h"

namespace penstock {

absl::StatusOr<absl::Span<const Tensor>> PortReader::Read(Stage& stage, Split split,
                                                          int64_t first_sample) {
  tensors_.clear();
  for (const int port : stage.ports()) {
    values_.resize(samples_ * model_.ports[port].type.size_bytes());
    data_->Read(split, first_sample, port, absl::MakeSpan(values_));
    PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor, stage.PortToDevice(port, values_));
    tensors_.push_back(std::move(tensor));
  }
  return tensors_;
}

void PortReader::Forget() { tensors_.clear(); }

}  // namespace penstock
