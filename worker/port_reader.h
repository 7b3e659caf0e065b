// PortReader: the data of the ports that a stage reads, on its device, and where what it carries begins again.
//
// Thread safety: the thread that owns the stage's back-end.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/stage.h"
#include "worker/data_source.h"

namespace penstock {

// Returns whether any of these layers reads a port, or carries what data says the beginnings of.
bool ReadsData(const ModelGraph& model, LayerRange layers);

class PortReader {
 public:
  // `data`: null where no stage reads data. REQUIRES: `model` and `data` outlive the reader.
  PortReader(const ModelGraph& model, int64_t samples, const DataSource* data)
      : model_(model), samples_(samples), data_(data) {}

  // The tensors for Stage::Forward and the like, valid until the next call. Allocates nothing on the host after the
  // first microbatches.
  // Errors: InvalidArgument (the data has an id that the model cannot look up), ResourceExhausted, those of `data`.
  absl::StatusOr<absl::Span<const Tensor>> Read(Stage& stage, Split split, int64_t first_sample);
  // Of the microbatch that begins with this sample.
  MicrobatchStart StartOf(const Stage& stage, Split split, int64_t first_sample) const;
  // Drops the tensors.
  void Forget();

 private:
  const ModelGraph& model_;
  const int64_t samples_;
  const DataSource* const data_;
  std::vector<std::byte> values_;
  std::vector<Tensor> tensors_;
};

}  // namespace penstock
