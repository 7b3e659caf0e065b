// The kernels of the instruction set this file is compiled for, in the namespace that the build names.
#pragma once

#include "compute/cpu/kernels/kernels.h"

namespace penstock::PENSTOCK_ISA {

kernel::LayerNorm<float> LayerNorm;
kernel::LayerNorm<Bf16> LayerNorm;
kernel::LayerNormGradient LayerNormGradient;
kernel::ChannelMoments ChannelMoments;
kernel::ChannelNormal ChannelNormal;
kernel::ChannelGradientSums ChannelGradientSums;
kernel::ChannelGradient ChannelGradient;
kernel::ResponseWorkspace ResponseWorkspace;
kernel::ResponseNormal ResponseNormal;
kernel::ResponseGradient ResponseGradient;
kernel::BiasGelu<float> BiasGelu;
kernel::BiasGelu<Bf16> BiasGelu;
kernel::GeluGradient<float> GeluGradient;
kernel::GeluGradient<Bf16> GeluGradient;
kernel::RmsNorm RmsNorm;
kernel::RmsNormGradient RmsNormGradient;
kernel::Activate Activate;
kernel::ActivateGradient ActivateGradient;
kernel::AddBias AddBias;
kernel::Residual Residual;
kernel::ColumnSums ColumnSums;
kernel::MaskColumnSums<float> MaskColumnSums;
kernel::MaskColumnSums<Bf16> MaskColumnSums;
kernel::MaskRows MaskRows;
kernel::AddRow AddRow;
kernel::AddRowGradient AddRowGradient;
kernel::AttentionWorkspace AttentionWorkspace;
kernel::Attention Attention;
kernel::AttentionGradient AttentionGradient;
kernel::AdditiveAttentionForward AdditiveAttentionForward;
kernel::AdditiveAttentionBackward AdditiveAttentionBackward;
kernel::LstmForward<float> LstmForward;
kernel::LstmForward<Bf16> LstmForward;
kernel::LstmGradient<float> LstmGradient;
kernel::LstmGradient<Bf16> LstmGradient;
kernel::CrossEntropy CrossEntropy;
kernel::CrossEntropyGradient<float> CrossEntropyGradient;
kernel::CrossEntropyGradient<Bf16> CrossEntropyGradient;
kernel::TargetRanks TargetRanks;
kernel::NesterovDirection NesterovDirection;
kernel::Fill Fill;
kernel::AddInto AddInto;
kernel::Product Product;
kernel::Difference Difference;
kernel::SquaredDistance SquaredDistance;
kernel::LinearCombination LinearCombination;
kernel::CompensateDelay CompensateDelay;
kernel::SquaredNorm SquaredNorm;
kernel::ToBf16 ToBf16;
kernel::WidenBf16 WidenBf16;
kernel::RoundToNearest RoundToNearest;
kernel::RoundToBf16 RoundToBf16;

extern const OfElementwise<ElementwiseKernels> kElementwise;
extern const Kernels kKernels;

}  // namespace penstock::PENSTOCK_ISA
