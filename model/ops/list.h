// All ops. A row here and a file in model/ops/, compute/cpu/ops/ and compute/cuda/ops/ make an op; each library has its
// own table of them, made from this list (no static initialisers).
#pragma once

#include "model/op.h"

#define PENSTOCK_OPS(ROW) \
  ROW(Add)                \
  ROW(AdditiveAttention)  \
  ROW(Attention)          \
  ROW(AttentionBranch)    \
  ROW(AvgPool)            \
  ROW(BatchNorm)          \
  ROW(ChannelsFirst)      \
  ROW(Concat)             \
  ROW(Conv2d)             \
  ROW(CrossEntropy)       \
  ROW(Dropout)            \
  ROW(Embedding)          \
  ROW(Flatten)            \
  ROW(Gelu)               \
  ROW(GptEmbedding)       \
  ROW(GptHead)            \
  ROW(GroupNorm)          \
  ROW(Image)              \
  ROW(LayerNorm)          \
  ROW(Linear)             \
  ROW(Lrn)                \
  ROW(Lstm)               \
  ROW(MaxPool)            \
  ROW(MlpBranch)          \
  ROW(Mse)                \
  ROW(Mul)                \
  ROW(Pad)                \
  ROW(Positions)          \
  ROW(Relu)               \
  ROW(Reshape)            \
  ROW(RmsNorm)            \
  ROW(Rope)               \
  ROW(Scale)              \
  ROW(Select)             \
  ROW(Sigmoid)            \
  ROW(Silu)               \
  ROW(Slice)              \
  ROW(Subsample)          \
  ROW(Tanh)

// Ops that no model is described with: what evaluation makes of others (model/decode_step.h). Back-ends have them too.
#define PENSTOCK_EVALUATION_OPS(ROW) ROW(CachedAttention)

namespace penstock::ops {

#define PENSTOCK_DECLARE_OP(Name) extern const Op k##Name;
PENSTOCK_OPS(PENSTOCK_DECLARE_OP)
PENSTOCK_EVALUATION_OPS(PENSTOCK_DECLARE_OP)
#undef PENSTOCK_DECLARE_OP

}  // namespace penstock::ops
