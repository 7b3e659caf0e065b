#include "worker/transport.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

const char* Name(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kActivation:
      return "activation";
    case EdgeKind::kGradient:
      return "gradient";
    case EdgeKind::kCollective:
      return "collective";
    case EdgeKind::kCheckpoint:
      return "checkpoint";
    case EdgeKind::kSum:
      return "sum";
    case EdgeKind::kRequest:
      return "request";
    case EdgeKind::kWeights:
      return "weights";
  }
  return "unknown";
}

std::string EdgeId::ToString() const {
  return absl::StrCat(Name(kind), " ", source, "->", destination);
}

absl::Status CheckEdgeLimits(const EdgeId& edge, int capacity, int64_t tensor_bytes_max) {
  if (capacity < 1) {
    return absl::InvalidArgumentError(absl::StrCat("edge ", edge.ToString(), ": capacity is ",
                                                   capacity, ", expected at least 1 message"));
  }
  if (tensor_bytes_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("edge ", edge.ToString(),
                                                   ": tensor_bytes_max is ", tensor_bytes_max,
                                                   ", expected at least 1 byte"));
  }
  return absl::OkStatus();
}

absl::Status CheckMessageSize(const EdgeId& edge, int64_t sequence, const Tensor& tensor,
                              int64_t tensor_bytes_max) {
  const int64_t size_bytes = tensor ? tensor.size_bytes() : 0;
  if (size_bytes < 1 || size_bytes > tensor_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("edge ", edge.ToString(), ": message ", sequence,
                                                   " has ", size_bytes, " bytes, expected 1 to ",
                                                   tensor_bytes_max));
  }
  return absl::OkStatus();
}

absl::Status CheckExpectation(const EdgeId& edge, const TensorExpectation& expected,
                              const TensorExpectation& got) {
  if (expected == got) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("edge ", edge.ToString(), ": expected ",
                                                    expected.ToString(), ", got ", got.ToString(),
                                                    "; the sender follows another plan"));
}

absl::Status Sender::Send(int64_t sequence, const Tensor& tensor, absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(Reserve(sequence, tensor, deadline));
  return Put(sequence, tensor);
}

absl::StatusOr<ShareBytes> Sender::Describe(const Tensor& /*tensor*/) {
  return absl::FailedPreconditionError("this edge does not export");
}

absl::Status Sender::Export(int64_t sequence, const Tensor& /*tensor*/,
                            const ShareBytes& /*descriptor*/) {
  return absl::FailedPreconditionError(
      absl::StrCat("message ", sequence, ": this edge does not export"));
}

absl::StatusOr<Importer::Fetched> Receiver::Fetch(const Arrival& /*exported*/) {
  return absl::FailedPreconditionError("this edge does not export");
}

absl::StatusOr<Tensor> Receiver::Receive(const TensorExpectation& expected, absl::Time deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(Arrival arrival, Take(expected, deadline));
  if (!arrival.is_exported()) return std::move(arrival.tensor);
  return absl::FailedPreconditionError(
      absl::StrCat(expected.ToString(),
                   ": expected in host memory, got it exported; the sender follows another plan"));
}

std::string TensorExpectation::ToString() const {
  return absl::StrCat("message ", sequence, " of ", Name(dtype), " ", shape.ToString());
}

}  // namespace penstock
