// First weights as PyTorch's own modules have them, whatever a model's family says.
//
// Tables (Embedding) are normal with deviation 1. Weights and biases of linear maps and convolutions are uniform between
// -1/sqrt(n) and 1/sqrt(n), where each output is a sum over n inputs; of an LSTM all are, with n its hidden width. Norms begin
// with gains of one and biases of zero, as they do anyway. A map that shares a table begins as the table. What PyTorch has no
// module for keeps what its op says, and maps that are to begin with zeros, such as the second ones of adapters, keep their zeros.
//
// A pure function.
#pragma once

#include "model/graph.h"

namespace penstock {

void InitialiseAsPyTorch(ModelGraph& model);

}  // namespace penstock
