#include "compute/cpu/kernels/isa.h"

#define PENSTOCK_TEXT_INNER(name) #name
#define PENSTOCK_TEXT(name) PENSTOCK_TEXT_INNER(name)

namespace penstock::PENSTOCK_ISA {

const Kernels kKernels = {
    .instruction_set = PENSTOCK_TEXT(PENSTOCK_ISA),
    .f32 = {LayerNorm, BiasGelu, GeluGradient, MaskColumnSums, CrossEntropyGradient, LstmForward,
            LstmGradient},
    .bf16 = {LayerNorm, BiasGelu, GeluGradient, MaskColumnSums, CrossEntropyGradient, LstmForward,
             LstmGradient},
    .layer_norm_gradient = LayerNormGradient,
    .rms_norm = RmsNorm,
    .rms_norm_gradient = RmsNormGradient,
    .activate = Activate,
    .activate_gradient = ActivateGradient,
    .channel_moments = ChannelMoments,
    .channel_normal = ChannelNormal,
    .channel_gradient_sums = ChannelGradientSums,
    .channel_gradient = ChannelGradient,
    .response_workspace = ResponseWorkspace,
    .response_normal = ResponseNormal,
    .response_gradient = ResponseGradient,
    .add_bias = AddBias,
    .residual = Residual,
    .column_sums = ColumnSums,
    .mask_rows = MaskRows,
    .add_row = AddRow,
    .add_row_gradient = AddRowGradient,
    .attention_workspace = AttentionWorkspace,
    .attention = Attention,
    .attention_gradient = AttentionGradient,
    .additive_attention_forward = AdditiveAttentionForward,
    .additive_attention_backward = AdditiveAttentionBackward,
    .cross_entropy = CrossEntropy,
    .target_ranks = TargetRanks,
    .elementwise = &kElementwise,
    .nesterov_direction = NesterovDirection,
    .fill = Fill,
    .add_into = AddInto,
    .product = Product,
    .difference = Difference,
    .squared_distance = SquaredDistance,
    .linear_combination = LinearCombination,
    .compensate_delay = CompensateDelay,
    .squared_norm = SquaredNorm,
    .to_bf16 = ToBf16,
    .widen_bf16 = WidenBf16,
    .round_to_nearest = RoundToNearest,
    .round_to_bf16 = RoundToBf16,
};

}  // namespace penstock::PENSTOCK_ISA
