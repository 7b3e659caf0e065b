// The head of a language model (ops/gpt_head.cc) for more logits than are worth their memory, [rows, vocabulary]: they are
// computed a chunk of rows at a time, once in F and again in I, so that what is kept does not grow with the rows.
//
// I makes all three products of a chunk while its logits are there: logits, the gradient of the input, and that of the
// weight, which it adds up until W, [vocabulary, width]. That is a product more than a head which keeps its logits takes.
// Its probabilities are those of the weights that I reads. It leaves sums of chunks where that head leaves one sum, so its
// weight gradients are other bits.
#pragma once

#include "compute/cpu/ops.h"

namespace penstock::cpu {

// Whether the logits of a microbatch take more than 64 MiB, and more than twice the gradient of the weight does. A function
// of sizes alone, so that every worker and the reference compute alike.
bool IsChunkedHead(const KernelSpec& spec);

// REQUIRES: the node is a gpt_head. Errors: as ops.h.
MadeKernels MakeChunkedHead(CpuContext& context, const KernelSpec& spec);

}  // namespace penstock::cpu
