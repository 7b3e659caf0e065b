// FuseBranches: the residual branches of transformers, wherever a model has them, as the ops that are faster than their
// parts.
//
//     x + dropout(linear(attention(linear(layer_norm(x)))))    attention_branch
//     x + dropout(linear(gelu(linear(layer_norm(x)))))         mlp_branch
//
// A branch is found if it is nodes of one layer that follow each other, if nothing else reads a value inside it, and if
// it computes what the op does: the norm has the epsilon of GPT-2, both linear maps have a bias and one layout, the
// attention is causal and reads queries, keys and values side by side, GELU is in its tanh form, and dropout, which may
// be missing, drops element by element. Whatever else is left as it is.
//
// A pure function.
#pragma once

#include "model/graph.h"

namespace penstock {

// Returns the model as it is computed. Layers, their names and parameters, ties, values between layers and random numbers
// are those of `model`, so that cuts, initial weights and checkpoints do not differ; numbers differ by rounding. A fused
// node is called as the value it makes, and its parameters as those of the nodes it stands for, which no prefix tells:
// what is stored is the model that was described.
ModelGraph FuseBranches(const ModelGraph& model);

}  // namespace penstock
