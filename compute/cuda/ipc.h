// IpcShare: tensors between processes by CUDA's interprocess memory handles, on one GPU or between GPUs
// that reach each other's memory.
//
// A handle names a whole allocation of cudaMalloc, and the pool takes each of its blocks by one cudaMalloc,
// so a tensor lies at the start of what its handle names. Handles are made and opened once for each block
// and kept, because opening and closing synchronise the device.
//
// Thread safety: as compute/device_share.h.
#pragma once

#include <memory>

#include "compute/cuda/context.h"
#include "compute/cuda/copies.h"
#include "compute/device_share.h"

namespace penstock::cuda {

class IpcShare final : public DeviceShare {
 public:
  // REQUIRES: both outlive the share, and whatever it made but exporters.
  IpcShare(CudaContext& context, Copies& copies) : cuda_(context), copies_(copies) {}

  absl::StatusOr<std::shared_ptr<Exporter>> MakeExporter() override;
  absl::StatusOr<Outgoing> StartExporting(const Tensor& tensor) override;
  absl::StatusOr<std::unique_ptr<Importer>> Import(const ShareBytes& offer) override;

 private:
  CudaContext& cuda_;
  Copies& copies_;
  std::shared_ptr<Exporter> exporter_;
};

}  // namespace penstock::cuda
